//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/snapshot/clone"
)

// Without a target its name is generated.
func (w *world) clone(name, kind, source, target string, edits ...func(*clonev1.VirtualMachineCloneSpec)) {
	w.t.Helper()
	group := "kubevirt.io"
	if kind == "VirtualMachineSnapshot" {
		group = "snapshot.kubevirt.io"
	}
	c := &clonev1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec:       clonev1.VirtualMachineCloneSpec{Source: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: source}},
	}
	if target != "" {
		c.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: target}
	}
	for _, edit := range edits {
		edit(&c.Spec)
	}
	w.do("making the clone", w.client.Create(w.ctx, c))
}

// awaitClone waits until a clone is in a phase, and, if it has ended, has deleted its temporary objects.
func (w *world) awaitClone(name string, phase clonev1.VirtualMachineClonePhase) *clonev1.VirtualMachineClone {
	w.t.Helper()
	c := &clonev1.VirtualMachineClone{}
	w.eventually(fmt.Sprintf("the clone %s to be %s", name, phase), func() (bool, string) {
		w.do("reading the clone", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, c))
		return c.Status.Phase == phase && (!clone.Ended(c) || clone.Settled(c)), fmt.Sprintf("%+v", c.Status)
	})
	return c
}

// onTheWay counts the temporary objects of clones.
func (w *world) onTheWay() int {
	w.t.Helper()
	var snapshots snapshotv1.VirtualMachineSnapshotList
	var restores snapshotv1.VirtualMachineRestoreList
	w.do("listing snapshots", w.client.List(w.ctx, &snapshots, client.InNamespace(w.namespace)))
	w.do("listing restores", w.client.List(w.ctx, &restores, client.InNamespace(w.namespace)))
	return len(snapshots.Items) + len(restores.Items) + len(w.contents()) + w.volumeSnapshots()
}

func (w *world) nothingOnTheWay(but int) {
	w.t.Helper()
	w.eventually("what was made on the way to go", func() (bool, string) {
		n := w.onTheWay()
		return n == but, fmt.Sprintf("%d objects are there", n)
	})
}

func TestClones(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	vm := w.createVMOn("vm", "one", "two")
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	w.clone("c", "VirtualMachine", "vm", "copy", func(s *clonev1.VirtualMachineCloneSpec) {
		s.LabelFilters = []string{"!tier"}
		s.NewMacAddresses = map[string]string{"default": "02:00:00:00:00:09"}
		s.NewSMBiosSerial = new("S2")
		s.Patches = []string{`{"op": "add", "path": "/metadata/annotations", "value": {"note": "a copy"}}`}
	})
	c := w.awaitClone("c", clonev1.Succeeded)
	copied := w.vm("copy")
	w.asAsked(vm, copied)
	if *c.Status.TargetName != "copy" || c.Status.CreationTime == nil {
		t.Errorf("the clone says %+v", c.Status)
	}
	if left := w.claimsLeft(); len(left) != 4 || slices.ContainsFunc(copied.Spec.Template.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil && !strings.HasPrefix(v.PersistentVolumeClaim.ClaimName, "restore-")
	}) {
		t.Errorf("the claims are %v, the volumes %+v", left, copied.Spec.Template.Spec.Volumes)
	}
	w.nothingOnTheWay(0)
}

func (w *world) asAsked(vm, copied *v1.VirtualMachine) {
	w.t.Helper()
	spec := copied.Spec.Template.Spec
	if uuidOf(copied) == uuidOf(vm) || uuidOf(copied) == "" || spec.Domain.Firmware.Serial != "S2" ||
		spec.Domain.Devices.Interfaces[0].MacAddress != "02:00:00:00:00:09" || *copied.Spec.RunStrategy != v1.RunStrategyHalted ||
		copied.Labels["tier"] != "" || copied.Annotations["note"] != "a copy" {
		w.t.Errorf("the VM is %+v", copied)
	}
}

// The snapshot's source is deleted. A clone with its name must be a different VM.
func TestClonesOfASnapshot(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	vm := w.createVMOn("vm", "one")
	w.snapshot("golden", "vm")
	w.awaitSnapshot("golden", snapshotv1.Succeeded)
	kept := w.onTheWay()
	w.remove(&v1.VirtualMachine{}, "vm")
	w.clone("again", "VirtualMachineSnapshot", "golden", "vm")
	w.clone("unnamed", "VirtualMachineSnapshot", "golden", "")
	w.awaitClone("again", clonev1.Succeeded)
	unnamed := w.awaitClone("unnamed", clonev1.Succeeded)
	for _, name := range []string{"vm", *unnamed.Status.TargetName} {
		if got := w.vm(name); got == nil || uuidOf(got) == uuidOf(vm) || got.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress != "" || got.Labels["tier"] != "one" {
			t.Errorf("the VM %s is %+v", name, got)
		}
	}
	w.nothingOnTheWay(kept)
}

func TestClonesThatFailLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createVMOn("vm", "one")
	w.createVM("other", v1.RunStrategyHalted)
	fails := func(name, why string) {
		t.Helper()
		if got := clone.Says(w.awaitClone(name, clonev1.Failed)); !strings.Contains(got, why) {
			t.Errorf("the clone %s says %q, want %q", name, got, why)
		}
		w.nothingOnTheWay(0)
		if left := w.claimsLeft(); !slices.Equal(left, []string{"one"}) || w.vm("copy") != nil {
			t.Errorf("the claims are %v, the VM is %+v", left, w.vm("copy"))
		}
	}
	w.clone("taken", "VirtualMachine", "vm", "other")
	fails("taken", "the VM other exists already")
	w.clone("nic", "VirtualMachine", "vm", "copy", func(s *clonev1.VirtualMachineCloneSpec) {
		s.NewMacAddresses = map[string]string{"nothing": "02:00:00:00:00:09"}
	})
	fails("nic", "spec.newMacAddresses[\"nothing\"]: \"02:00:00:00:00:09\": the VM has no interface of that name")
	w.clone("patched", "VirtualMachine", "vm", "copy", func(s *clonev1.VirtualMachineCloneSpec) {
		s.Patches = []string{`{"op": "remove", "path": "/spec/template/spec/nothing"}`}
	})
	fails("patched", "making the VM copy has failed: applying the patches")

	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "claims", Namespace: w.namespace},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")}}}
	w.do("making a quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be counted", func() (bool, string) {
		w.do("reading the quota", w.client.Get(w.ctx, client.ObjectKeyFromObject(quota), quota))
		used := quota.Status.Used[corev1.ResourcePersistentVolumeClaims]
		return used.String() == "1", used.String()
	})
	w.clone("quota", "VirtualMachine", "vm", "copy")
	fails("quota", "exceeded quota")
	w.do("taking the quota away", w.client.Delete(w.ctx, quota))

	// A clone must wait for a missing source.
	w.clone("waits", "VirtualMachineSnapshot", "later", "copy")
	w.eventually("the clone to say what it waits for", func() (bool, string) {
		got := clone.Says(w.awaitClone("waits", clonev1.SnapshotInProgress))
		return strings.Contains(got, "the snapshot later, which is to be cloned, does not exist"), got
	})
	w.remove(&clonev1.VirtualMachineClone{}, "waits")
}

// The loops restart with empty memories at every step; then a clone is deleted in the middle.
func TestTheLoopsMayEndDuringAClone(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	w.createVMOn("vm", "one", "two")
	w.clone("c", "VirtualMachine", "vm", "copy")
	w.interrupt(8, 20*time.Millisecond)
	w.awaitClone("c", clonev1.Succeeded)
	w.nothingOnTheWay(0)
	if left := w.claimsLeft(); len(left) != 4 || w.vm("copy") == nil {
		t.Errorf("the claims are %v", left)
	}
	w.clone("away", "VirtualMachine", "vm", "gone")
	w.eventually("a restore", func() (bool, string) { return len(w.claimsLeft()) > 4, "it has made no claim" })
	w.remove(&clonev1.VirtualMachineClone{}, "away")
	w.nothingOnTheWay(0)
	w.eventually("its claims to go, unless the VM was made", func() (bool, string) {
		left := w.claimsLeft()
		return len(left) == 4 || w.vm("gone") != nil, fmt.Sprint(left)
	})
}
