package snapshot

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/snapshot"
)

func (r *Reconciler) observeRevisions(ctx context.Context, o snapshot.Observed) (map[string]bool, error) {
	if !snapshot.HoldsRevisions(o) {
		return nil, nil
	}
	held := map[string]bool{}
	for _, name := range snapshot.Revisions(o.Content) {
		revision, err := r.revision(ctx, o.Content, name)
		if err != nil {
			return nil, err
		}
		if revision != nil {
			held[name] = owns(o.Content, revision)
		}
	}
	return held, nil
}

func owns(content *snapshotv1.VirtualMachineSnapshotContent, revision *appsv1.ControllerRevision) bool {
	return slices.ContainsFunc(revision.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == content.UID })
}

func (r *Reconciler) revision(ctx context.Context, content *snapshotv1.VirtualMachineSnapshotContent, name string) (*appsv1.ControllerRevision, error) {
	key := client.ObjectKey{Namespace: content.Namespace, Name: name}
	return versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", key)
}

// holdRevisions makes the content another owner of the plan's revisions. The next observation notices one that was
// deleted in between.
func (r *Reconciler) holdRevisions(ctx context.Context, content *snapshotv1.VirtualMachineSnapshotContent, plan snapshot.Plan) error {
	owner := *metav1.NewControllerRef(content, snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotContent"))
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	for _, name := range plan.Revisions {
		is, err := r.revision(ctx, content, name)
		if err != nil || is == nil {
			return err
		}
		if owns(content, is) {
			continue // an earlier leader was faster
		}
		to := is.DeepCopy()
		to.OwnerReferences = append(to.OwnerReferences, owner)
		if err := versioned.Patch(ctx, r.Client, "holding the ControllerRevision", is, to); err != nil {
			return err
		}
	}
	return nil
}
