package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

const targetPod = "the target pod"

// refusalPause is the pause before a target pod that the API server refused is created again.
const refusalPause = 20 * time.Second

// apply executes the plan in its order and returns when to look again.
func (r *Reconciler) apply(ctx context.Context, o *migration.Observed, plan migration.Plan) (time.Duration, error) {
	if plan.CreateTarget {
		refused, err := r.createTarget(ctx, o)
		if err != nil {
			return 0, err
		}
		if refused != "" {
			o.Refusal = refused
			if plan, err = r.decide(ctx, o); err != nil {
				return 0, err
			}
			plan.After = refusalPause
		}
	}
	if current, err := r.writeVMI(ctx, o, plan.VMI); err != nil || !current {
		return 0, err
	}
	current, err := r.writeStatus(ctx, o, plan.Migration)
	if err != nil || !current {
		return 0, err
	}
	if plan.DeleteTarget {
		if err := deletion.Once(ctx, r.Client, &r.deleted, o.Migration, o.Target, targetPod); err != nil {
			return 0, err
		}
	}
	if err := r.writeFinalizers(ctx, o.Migration, plan.Migration); err != nil {
		return 0, err
	}
	if !plan.Migration.IsFinal() {
		return plan.After, nil
	}
	return r.collect(ctx, o, plan.After)
}

// An earlier creation of this loop is as good, and a foreign pod is noticed when it is read. refused is the API
// server's reason.
func (r *Reconciler) createTarget(ctx context.Context, o *migration.Observed) (refused string, err error) {
	target := launcherpod.Target{
		Migration: o.Migration.UID, Name: o.Migration.Name, SourceNode: o.VMI.Status.NodeName, NodeSelector: map[string]string{},
	}
	maps.Copy(target.NodeSelector, o.Migration.Spec.AddedNodeSelector)
	if target.SourceNode != "" {
		node, err := versioned.Read[corev1.Node](ctx, r.Reader, "node", types.NamespacedName{Name: target.SourceNode})
		if err != nil {
			return "", err
		}
		if node != nil {
			maps.Copy(target.NodeSelector, launcherpod.SameHost(o.VMI, node.Labels))
		}
	}
	pod, err := r.Render(ctx, o.VMI, target)
	if err != nil {
		return err.Error(), nil
	}
	if err := r.addUserfaultfd(ctx, o, target.SourceNode, pod); err != nil {
		return "", err
	}
	switch err := r.createPod(ctx, o.VMI, pod); {
	case err == nil:
		r.record(o.Migration, o.VMI, notice{corev1.EventTypeNormal, "SuccessfulCreate", "CreateTarget", "Created migration target pod " + pod.Name})
		return "", nil
	case apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		r.record(o.Migration, o.VMI, notice{corev1.EventTypeWarning, "FailedCreate", "CreateTarget", "Error creating the target pod: " + err.Error()})
		return err.Error(), nil
	default:
		return "", fmt.Errorf("creating the target pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
}

func (r *Reconciler) createPod(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	need, err := launcherpod.Need(vmi, settings)
	if err != nil {
		return fmt.Errorf("reckoning what the pod needs: %w", err)
	}
	return podcreation.Create(ctx, r.Client, r.Reader, pod, need)
}

// After a conflict writeVMI reports false: the newer version wakes this loop.
func (r *Reconciler) writeVMI(ctx context.Context, o *migration.Observed, told migration.Told) (current bool, err error) {
	if o.VMI == nil {
		return true, nil
	}
	facts := vmistatus.Migration{Of: o.Migration.UID, Abort: told.Abort, Failure: told.Failure}
	if b := told.Begin; b != nil {
		facts.Begin = (*vmistatus.MigrationBegin)(b)
	}
	to := vmicontroller.WithMigration(o.VMI, facts, o.Now)
	if equality.Semantic.DeepEqual(o.VMI.Status, to.Status) && equality.Semantic.DeepEqual(o.VMI.Labels, to.Labels) {
		return true, nil
	}
	written, err := versioned.Write(ctx, r.Client, "patching VMI", o.VMI, to)
	if err != nil || written == nil {
		return false, err
	}
	r.vmis.Wrote(written)
	r.choices.forget()
	for _, e := range eventsOfVMI(o.Migration, told) {
		r.record(o.VMI, o.Migration, e)
	}
	return true, nil
}

func (r *Reconciler) writeStatus(ctx context.Context, o *migration.Observed, to *v1.VirtualMachineInstanceMigration) (current bool, err error) {
	from := o.Migration
	if equality.Semantic.DeepEqual(from.Status, to.Status) {
		return true, nil
	}
	wanted := from.DeepCopy()
	wanted.Status = to.Status
	written, err := versioned.WriteStatus(ctx, r.Client, "patching the status of migration", from, wanted)
	if err != nil || written == nil {
		return false, err
	}
	r.written.Wrote(written)
	r.choices.forget()
	for _, e := range eventsOf(from, written) {
		r.record(from, o.VMI, e)
	}
	o.Migration = written
	return true, nil
}

func (r *Reconciler) writeFinalizers(ctx context.Context, from, to *v1.VirtualMachineInstanceMigration) error {
	if equality.Semantic.DeepEqual(from.Finalizers, to.Finalizers) {
		return nil
	}
	wanted := from.DeepCopy()
	wanted.Finalizers = to.Finalizers
	written, err := versioned.Write(ctx, r.Client, "taking the finalizer off migration", from, wanted)
	if err != nil || written == nil {
		return err
	}
	r.written.Wrote(written)
	return nil
}

// collect deletes migrations of the same VMI that ended long ago.
func (r *Reconciler) collect(ctx context.Context, o *migration.Observed, after time.Duration) (time.Duration, error) {
	list, err := r.migrationsOf(ctx, vmiKey(o.Migration))
	if err != nil {
		return 0, err
	}
	garbage, look := migration.Garbage(list, o.VMI != nil, o.Now)
	for _, m := range garbage {
		if _, err := deletion.Exact(ctx, r.Client, m, "the ended migration"); err != nil {
			return 0, err
		}
	}
	return backoff.Sooner(after, look), nil
}

// sweep deletes the target pods of deleted migrations of this name, or cancels the migration if the VMI was handed over
// with one. m is the cached migration, nil for none: a reason to read migration and VMI from the API server, after the pod.
func (r *Reconciler) sweep(ctx context.Context, key types.NamespacedName, m *v1.VirtualMachineInstanceMigration) error {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{byMigration: key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the target pods of migration %s: %w", key, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		of, _ := launcherpod.IsTarget(pod)
		if m != nil && m.UID == of || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.sweepPod(ctx, key, pod, of); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) sweepPod(ctx context.Context, key types.NamespacedName, pod *corev1.Pod, of types.UID) error {
	m, err := versioned.Read[v1.VirtualMachineInstanceMigration](ctx, r.Reader, "the migration", key)
	if err != nil || m != nil && m.UID == of {
		return err
	}
	vmi, err := r.storedVMI(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: launcherpod.VMIOf(pod)})
	if err != nil || vmi == nil || vmi.UID != launcherpod.MadeFor(pod) {
		// The loop of VMIs deletes the pods of VMIs that do not exist any more. A user who may change a pod can make
		// it name another VMI, but not another UID.
		return err
	}
	if launcherpod.BondOf(pod, vmi) == launcherpod.Chosen {
		return r.cancelOrphan(ctx, key, vmi)
	}
	logs.VMI(ctrl.LoggerFrom(ctx), vmi).Info("deleting a target pod whose migration is gone", "pod", pod.Name, "migration", of)
	_, err = deletion.Exact(ctx, r.Client, pod, targetPod)
	return err
}

// cancelOrphan cancels the VMI's migration if its object is gone because a user removed its finalizer. The loop of
// VMIs handles the target pod then. The pod's labels don't count: users can set them.
func (r *Reconciler) cancelOrphan(ctx context.Context, key types.NamespacedName, vmi *v1.VirtualMachineInstance) error {
	ms := vmi.Status.MigrationState
	if ms == nil {
		return nil
	}
	told := migration.Orphaned(vmi, ms.MigrationUID)
	if told == (migration.Told{}) {
		return nil
	}
	list, err := Stored(ctx, r.Reader, client.ObjectKeyFromObject(vmi))
	if err != nil || slices.ContainsFunc(list, func(m *v1.VirtualMachineInstanceMigration) bool { return m.UID == ms.MigrationUID }) {
		return err
	}
	gone := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: ms.MigrationUID}}
	logs.VMI(ctrl.LoggerFrom(ctx), vmi).Info("canceling a migration whose object is gone", "migration", gone.UID)
	current, err := r.writeVMI(ctx, &migration.Observed{Migration: gone, VMI: vmi}, told)
	if err == nil && !current {
		return fmt.Errorf("the migration %s, whose object is gone, is canceled once more: VMI %s has changed meanwhile", key, vmi.Name)
	}
	return err
}
