package vm

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/expansion"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/object/controllerrevision"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// revisions remembers the content of VMs' revisions, which never changes. The zero value is empty. It is safe for
// concurrent use.
type revisions struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[string]*vmcontroller.Referred
}

func (r *revisions) get(vm types.NamespacedName, name string) *vmcontroller.Referred {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[vm][name]
}

// A VM has at most two revisions, and two more after each change of its references.
func (r *revisions) put(vm types.NamespacedName, name string, known *vmcontroller.Referred) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[types.NamespacedName]map[string]*vmcontroller.Referred{}
	}
	if len(r.of[vm]) == 0 || len(r.of[vm]) > 3 {
		r.of[vm] = map[string]*vmcontroller.Referred{}
	}
	r.of[vm][name] = known
}

func (r *revisions) forget(vm types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, vm)
}

func (r *Reconciler) referred(ctx context.Context, vm *v1.VirtualMachine, to *instancetype.Reference) (*vmcontroller.Referred, error) {
	if to == nil {
		return nil, nil
	}
	key, name := client.ObjectKeyFromObject(vm), to.Revision()
	if known := r.revisions.get(key, name); known != nil && name != "" {
		return known, nil
	}
	source, missing, err := expansion.Source(ctx, r.Reader, vm.Namespace, to)
	switch {
	case err != nil:
		return nil, err
	case missing != nil:
		return &vmcontroller.Referred{Missing: missing.Error()}, nil
	}
	out := &vmcontroller.Referred{Source: source}
	if name == "" {
		return out, nil
	}
	revision, err := versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", types.NamespacedName{Namespace: vm.Namespace, Name: name})
	if err != nil || revision == nil {
		return out, err
	}
	out.Borrowed = borrowed(vm, revision)
	out.Unlabeled = slices.ContainsFunc(revision.OwnerReferences, ownerIs(vm)) && instancetype.Label(revision, source)
	if !out.Borrowed && !out.Unlabeled {
		r.revisions.put(key, name, out)
	}
	return out, nil
}

// borrowed reports whether a revision will be deleted with other owners. One without owners stays until its creator
// deletes it.
func borrowed(vm *v1.VirtualMachine, revision *appsv1.ControllerRevision) bool {
	return len(revision.OwnerReferences) > 0 && !slices.ContainsFunc(revision.OwnerReferences, ownerIs(vm))
}

func ownerIs(vm *v1.VirtualMachine) func(metav1.OwnerReference) bool {
	return func(owner metav1.OwnerReference) bool { return owner.UID == vm.UID }
}

// An existing revision must be the same.
func (r *Reconciler) makeRevision(ctx context.Context, vm *v1.VirtualMachine, wanted *appsv1.ControllerRevision) error {
	err := r.Client.Create(ctx, wanted.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("keeping the revision %s: %w", wanted.Name, err)
		}
		return nil
	}
	is, err := versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", client.ObjectKeyFromObject(wanted))
	switch {
	case err != nil:
		return err
	case is == nil:
		return fmt.Errorf("the ControllerRevision %s/%s has just been deleted", wanted.Namespace, wanted.Name)
	case !metav1.IsControlledBy(is, vm) || !bytes.Equal(is.Data.Raw, wanted.Data.Raw):
		return fmt.Errorf("found existing ControllerRevision with unexpected data: %s/%s was made by somebody else; delete it", wanted.Namespace, wanted.Name)
	}
	return nil
}

// holdRevision keeps a revision as long as the VM, whatever other owners it has, and adds the labels that it lacks.
func (r *Reconciler) holdRevision(ctx context.Context, vm *v1.VirtualMachine, keep vmcontroller.Keep) error {
	is, err := versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", types.NamespacedName{Namespace: vm.Namespace, Name: keep.Hold})
	if err != nil || is == nil {
		return err
	}
	to := is.DeepCopy()
	lacked := instancetype.Label(to, keep.Source)
	if borrowed(vm, is) {
		to.OwnerReferences = append(to.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1.VirtualMachineGroupVersionKind.GroupVersion().String(), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: vm.Name, UID: vm.UID,
		})
	} else if !lacked {
		return nil
	}
	_, err = versioned.Replace(ctx, r.Client, "holding the ControllerRevision", to)
	return err
}

// After a failure they stay as long as the VM.
func (r *Reconciler) dropRevisions(ctx context.Context, from, to *v1.VirtualMachine) {
	for _, name := range vmcontroller.DroppedRevisions(from, to) {
		if err := r.dropRevision(ctx, to, name); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "letting go of a revision that the VM went by", "revision", name)
		}
	}
}

// dropRevision removes the VM from a revision's owners. It deletes a revision without others only in the version that was
// read, since another VM may be about to hold it.
func (r *Reconciler) dropRevision(ctx context.Context, vm *v1.VirtualMachine, name string) error {
	is, err := versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", types.NamespacedName{Namespace: vm.Namespace, Name: name})
	if err != nil || is == nil || !slices.ContainsFunc(is.OwnerReferences, ownerIs(vm)) {
		return err
	}
	to := is.DeepCopy()
	to.OwnerReferences = slices.DeleteFunc(to.OwnerReferences, ownerIs(vm))
	if len(to.OwnerReferences) > 0 {
		_, err = versioned.Replace(ctx, r.Client, "letting go of the ControllerRevision", to)
		return err
	}
	return client.IgnoreNotFound(deletion.AsSeen(ctx, r.Client, is))
}

// releaseRevisions removes the VM from the owners of unsorted revisions, which earlier versions and other tools
// created: the garbage collector would retry forever to orphan those (package controllerrevision).
func (r *Reconciler) releaseRevisions(ctx context.Context, vm *v1.VirtualMachine) error {
	toRelease := func(is *appsv1.ControllerRevision) bool {
		return slices.ContainsFunc(is.OwnerReferences, ownerIs(vm)) && !controllerrevision.Sorted(is)
	}
	names, err := pagedlist.Collect(ctx, r.Reader, &appsv1.ControllerRevisionList{}, func(is *appsv1.ControllerRevision) (string, bool) {
		return is.Name, toRelease(is)
	}, client.InNamespace(vm.Namespace))
	if err != nil {
		return fmt.Errorf("listing the ControllerRevisions of VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	for _, name := range names {
		is, err := versioned.Read[appsv1.ControllerRevision](ctx, r.Reader, "the ControllerRevision", client.ObjectKey{Namespace: vm.Namespace, Name: name})
		if err != nil {
			return err
		}
		if is == nil || !toRelease(is) {
			continue
		}
		to := is.DeepCopy()
		to.OwnerReferences = slices.DeleteFunc(to.OwnerReferences, ownerIs(vm))
		written, err := versioned.Replace(ctx, r.Client, "releasing the ControllerRevision", to)
		if err != nil {
			return err
		}
		if written == nil {
			return fmt.Errorf("releasing the ControllerRevision %s/%s: it has changed meanwhile", is.Namespace, is.Name)
		}
	}
	return nil
}

// Updates count for VMs that have not seen the object yet.
func creations() predicate.Predicate {
	return predicate.Funcs{
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// referredIndex names the index of VMs that wait for an instance type or a preference, by kind, namespace and name.
const referredIndex = "drydock.referred"

func unresolved(object client.Object) []string {
	vm := object.(*v1.VirtualMachine)
	var names []string
	toType, toPreference := instancetype.References(vm)
	for _, r := range []*instancetype.Reference{toType, toPreference} {
		if r == nil || r.Revision() != "" {
			continue
		}
		name := r.KindOf() + "/" + r.Name
		if r.Namespaced() {
			name = r.KindOf() + "/" + vm.Namespace + "/" + r.Name
		}
		names = append(names, name)
	}
	return names
}

func (r *Reconciler) waiters(ctx context.Context, object client.Object) []reconcile.Request {
	name := instancetype.SourceOf(object).Kind + "/" + object.GetName()
	if object.GetNamespace() != "" {
		name = instancetype.SourceOf(object).Kind + "/" + object.GetNamespace() + "/" + object.GetName()
	}
	var list v1.VirtualMachineList
	if err := r.Client.List(ctx, &list, client.MatchingFields{referredIndex: name}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the VMs that wait for an instance type or a preference", "name", name)
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}
