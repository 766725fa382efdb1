//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

func (w *world) createState(vm *v1.VirtualMachine, edits ...func(*corev1.PersistentVolumeClaim)) types.UID {
	w.t.Helper()
	claim := w.stateOf(vm)
	claim.Spec.StorageClassName = new(boundAtOnce)
	for _, edit := range edits {
		edit(claim)
	}
	w.do("creating the claim of the state", w.client.Create(w.ctx, claim))
	w.eventually("the claim of the state to be bound", func() (bool, string) {
		w.do("reading the claim", w.client.Get(w.ctx, client.ObjectKeyFromObject(claim), claim))
		return claim.Status.Phase == corev1.ClaimBound, string(claim.Status.Phase)
	})
	return claim.UID
}

// The claim must be the one for the VM's first guest, and filled from a VolumeSnapshot.
func (w *world) filledState(name string) types.UID {
	w.t.Helper()
	vm := w.vm(name)
	claim := &corev1.PersistentVolumeClaim{}
	w.do("reading the claim of the state", w.client.Get(w.ctx, client.ObjectKeyFromObject(w.stateOf(vm)), claim))
	if err := stateclaim.Check(stateclaim.Next(vm), claim); err != nil || claim.Status.Phase != corev1.ClaimBound ||
		claim.Spec.DataSource == nil || !strings.HasSuffix(claim.Spec.DataSource.Name, "-state") {
		w.t.Errorf("the claim of the state of %s is %+v (%v)", name, claim, err)
	}
	if vm.Status.RestoreInProgress != nil || vm.Annotations[stateclaim.AwaitedAnnotation] != "" {
		w.t.Errorf("the VM %s can't start: %+v, annotations %v", name, vm.Status, vm.Annotations)
	}
	return claim.UID
}

// A VM's state is snapshotted. It must be restored in place by every policy, to new VMs, and to a VM that replaces the
// snapshot's; a clone must have none of it.
func TestAVMsStateIsSnapshottedAndRestored(t *testing.T) {
	w := newWorld(t)
	vm := w.createVMWithTPM("vm", v1.RunStrategyHalted)
	last := w.createState(vm)
	w.snapshot("snap", "vm")
	s := w.awaitSnapshot("snap", snapshotv1.Succeeded)
	if got := s.Status.SnapshotVolumes; !slices.Equal(got.IncludedVolumes, []string{stateclaim.Volume}) || len(got.ExcludedVolumes) != 0 {
		t.Errorf("the snapshot has %+v", got)
	}
	for i, policy := range []snapshotv1.VolumeRestorePolicy{
		snapshotv1.VolumeRestorePolicyRandomizeNames, snapshotv1.VolumeRestorePolicyPrefixTargetName, snapshotv1.VolumeRestorePolicyInPlace,
	} {
		name := fmt.Sprintf("r-%d", i)
		w.restore(name, "snap", "vm", func(r *snapshotv1.VirtualMachineRestoreSpec) { r.VolumeRestorePolicy = &policy })
		w.awaitRestore(name, "complete", restore.Complete)
		now := w.filledState("vm")
		if now == last {
			t.Errorf("%s: the VM has the claim that it had", policy)
		}
		last = now
	}

	w.restore("r-new", "snap", "copy", func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.Patches = []string{`{"op": "replace", "path": "/spec/runStrategy", "value": "Always"}`}
	})
	w.awaitRestore("r-new", "complete", restore.Complete)
	w.filledState("copy")
	w.run("copy")
	w.clone("c", "VirtualMachineSnapshot", "snap", "twin")
	w.awaitClone("c", clonev1.Succeeded)
	if got := w.claimsLeft(); len(got) != 2 || slices.Contains(got, w.stateOf(w.vm("twin")).Name) {
		t.Errorf("after a clone the claims are %q", got)
	}
	w.remove(&v1.VirtualMachine{}, "vm")
	w.restore("r-gone", "snap", "vm")
	w.awaitRestore("r-gone", "complete", restore.Complete)
	w.filledState("vm")
}

func TestAStateThatCantBeSnapshottedIsNamed(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createState(w.createVMWithTPM("others", v1.RunStrategyHalted), func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil })
	w.snapshot("others", "others")
	s := w.awaitSnapshot("others", snapshotv1.Failed)
	if !strings.Contains(*s.Status.Error.Message, "belongs to something else") {
		t.Errorf("a snapshot of somebody else's claim says %s", *s.Status.Error.Message)
	}
	w.createVMOn("new", "one")
	w.awaitPrintable("new", v1.VirtualMachineStatusStopped)
	w.edit("new", func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	})
	w.snapshot("new", "new")
	if s = w.awaitSnapshot("new", snapshotv1.Succeeded); !slices.Equal(s.Status.SnapshotVolumes.IncludedVolumes, []string{"one"}) || len(s.Status.SnapshotVolumes.ExcludedVolumes) != 0 {
		t.Errorf("of a VM that has never run the snapshot has %+v", s.Status.SnapshotVolumes)
	}
}

// TestTheLoopsMayEndWhileAStateIsRestored restarts the loops again and again, each time a little later. The state must
// be restored.
func TestTheLoopsMayEndWhileAStateIsRestored(t *testing.T) {
	w := newWorld(t)
	was := w.createState(w.createVMWithTPM("vm", v1.RunStrategyHalted))
	w.snapshot("snap", "vm")
	w.awaitSnapshot("snap", snapshotv1.Succeeded)
	w.restore("in-place", "snap", "vm")
	w.restore("new", "snap", "copy")
	w.interrupt(12, 20*time.Millisecond)
	for _, name := range []string{"in-place", "new"} {
		w.awaitRestore(name, "complete", restore.Complete)
	}
	if w.filledState("vm") == was || w.filledState("copy") == "" || len(w.states()) != 2 {
		t.Errorf("the claims are %+v", w.states())
	}
}
