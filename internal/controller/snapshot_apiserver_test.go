//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// These tests use the storage of the embedded cluster: its claims, VolumeSnapshots and their restored claims are real.

// boundAtOnce is the cluster's class whose claims need no pod.
const boundAtOnce = "local-immediate"

func (w *world) createBoundClaim(name string) {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(boundAtOnce), VolumeMode: new(corev1.PersistentVolumeBlock),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")}},
		},
	}
	w.do("making the claim "+name, w.client.Create(w.ctx, claim))
	w.eventually("the claim "+name+" to be bound", func() (bool, string) {
		w.do("reading the claim", w.client.Get(w.ctx, client.ObjectKeyFromObject(claim), claim))
		return claim.Status.Phase == corev1.ClaimBound, string(claim.Status.Phase)
	})
}

func (w *world) createVMOn(name string, claims ...string) *v1.VirtualMachine {
	w.t.Helper()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: map[string]string{"tier": "one"}},
		Spec:       v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: testSpec()}},
	}
	spec := &vm.Spec.Template.Spec
	firmware.Set(spec, "5d307ca9-b3ef-428c-8861-06e72d69f223")
	spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", MacAddress: "02:00:00:00:00:01",
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}}
	for _, claim := range claims {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}})
	}
	w.do("creating the VM", w.client.Create(w.ctx, vm))
	return vm
}

// The loops may write the VM's status meanwhile.
func (w *world) edit(name string, change func(*v1.VirtualMachine)) {
	w.t.Helper()
	vm := w.vm(name)
	from := vm.DeepCopy()
	change(vm)
	w.do("changing the VM "+name, w.client.Patch(w.ctx, vm, client.MergeFrom(from)))
}

type shiftedClock struct{ ahead atomic.Int64 }

func (c *shiftedClock) apply(o *options) {
	o.now = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
}

func (c *shiftedClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// expire waits until a snapshot reports why it waits, and moves the clock past its deadline.
func (c *shiftedClock) expire(w *world, name, why string) {
	w.t.Helper()
	s := &snapshotv1.VirtualMachineSnapshot{}
	w.eventually("the snapshot "+name+" to say what it waits for", func() (bool, string) {
		w.do("reading the snapshot", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, s))
		return s.Status != nil && slices.ContainsFunc(s.Status.Conditions, func(c snapshotv1.Condition) bool {
			return strings.Contains(c.Message, why)
		}), fmt.Sprintf("%+v", s.Status)
	})
	deadline := snapshotv1.DefaultFailureDeadline
	if own := s.Spec.FailureDeadline; own != nil {
		deadline = own.Duration
	}
	c.set(deadline)
	// Any change triggers a reconciliation.
	w.do("changing the snapshot", w.client.Patch(w.ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"time":"is over"}}}`))))
}

func (w *world) snapshot(name, vm string, edits ...func(*snapshotv1.VirtualMachineSnapshot)) {
	w.t.Helper()
	s := &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: vm}},
	}
	for _, edit := range edits {
		edit(s)
	}
	w.do("making the snapshot", w.client.Create(w.ctx, s))
}

func (w *world) awaitSnapshot(name string, phase snapshotv1.VirtualMachineSnapshotPhase) *snapshotv1.VirtualMachineSnapshot {
	w.t.Helper()
	s := &snapshotv1.VirtualMachineSnapshot{}
	w.eventually(fmt.Sprintf("the snapshot %s to be %s", name, phase), func() (bool, string) {
		w.do("reading the snapshot", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, s))
		return s.Status != nil && s.Status.Phase == phase, fmt.Sprintf("%+v", s.Status)
	})
	return s
}

func (w *world) restore(name, snapshot, target string, edits ...func(*snapshotv1.VirtualMachineRestoreSpec)) {
	w.t.Helper()
	r := &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target:                     corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: target},
			VirtualMachineSnapshotName: snapshot,
		},
	}
	for _, edit := range edits {
		edit(&r.Spec)
	}
	w.do("making the restore", w.client.Create(w.ctx, r))
}

func (w *world) awaitRestore(name, what string, is func(*snapshotv1.VirtualMachineRestore) bool) *snapshotv1.VirtualMachineRestore {
	w.t.Helper()
	r := &snapshotv1.VirtualMachineRestore{}
	w.eventually(fmt.Sprintf("the restore %s to be %s", name, what), func() (bool, string) {
		w.do("reading the restore", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, r))
		return is(r), fmt.Sprintf("%+v", r.Status)
	})
	return r
}

// claimsLeft returns the names of the claims that are not being deleted.
func (w *world) claimsLeft() []string {
	w.t.Helper()
	var list corev1.PersistentVolumeClaimList
	w.do("listing claims", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

func (w *world) volumeSnapshots() int {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("snapshot.storage.k8s.io/v1")
	list.SetKind("VolumeSnapshotList")
	w.do("listing VolumeSnapshots", w.client.List(w.ctx, list, client.InNamespace(w.namespace)))
	return len(list.Items)
}

func (w *world) contents() []snapshotv1.VirtualMachineSnapshotContent {
	w.t.Helper()
	var list snapshotv1.VirtualMachineSnapshotContentList
	w.do("listing contents", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	return list.Items
}

func (w *world) remove(object client.Object, name string) {
	w.t.Helper()
	object.SetNamespace(w.namespace)
	object.SetName(name)
	w.do("deleting "+name, w.client.Delete(w.ctx, object))
	w.eventually(name+" to go", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), fmt.Sprintf("finalizers %v", object.GetFinalizers())
	})
}

// Contents that are older than the rule have no UUID.
func (w *world) oldContent(s *snapshotv1.VirtualMachineSnapshot) {
	w.t.Helper()
	var content snapshotv1.VirtualMachineSnapshotContent
	w.do("reading the content", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: *s.Status.VirtualMachineSnapshotContentName}, &content))
	content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain.Firmware = nil
	w.do("taking the UUID out", w.client.Update(w.ctx, &content))
}

func uuidOf(vm *v1.VirtualMachine) string {
	return string(vm.Spec.Template.Spec.Domain.Firmware.UUID)
}

// A VM with two disks is snapshotted, and restored to new VMs and in place.
func TestScenarios4And8And13SnapshotAndRestore(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	vm := w.createVMOn("vm", "one", "two")
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	s := w.snapshotOfTwoDisks(vm)
	w.restoreToNew(vm)

	// Scenario 8: the VM has a new UUID since.
	w.edit("vm", func(vm *v1.VirtualMachine) {
		firmware.Set(&vm.Spec.Template.Spec, "11111111-b3ef-428c-8861-06e72d69f223")
	})
	w.eventually("the VM to say which volumes are snapshotted, with what it says of its new generation", func() (bool, string) {
		got := w.vm("vm").Status.VolumeSnapshotStatuses
		return slices.Contains(got, v1.VolumeSnapshotStatus{Name: "one", Enabled: true}) && slices.Contains(got, v1.VolumeSnapshotStatus{Name: "two", Enabled: true}),
			fmt.Sprintf("%+v", got)
	})
	w.restore("r-place", "snap", "vm")
	w.awaitRestore("r-place", "complete", restore.Complete)
	restored := w.vm("vm")
	if uuidOf(restored) != uuidOf(vm) || restored.Status.RestoreInProgress != nil || restored.UID != vm.UID || !strings.HasPrefix(lastClaim(restored), "restore-") {
		t.Errorf("the VM that was restored in place is %+v", restored)
	}
	// The same with the original names, twice: the second restore must replace the objects of the first.
	for _, name := range []string{"r-names", "r-again"} {
		w.restore(name, "snap", "vm", func(r *snapshotv1.VirtualMachineRestoreSpec) {
			r.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyInPlace)
		})
		w.awaitRestore(name, "complete", restore.Complete)
		if got := lastClaim(w.vm("vm")); got != "two" {
			t.Errorf("the last disk is on %s", got)
		}
	}

	// Scenarios 4 and 13: the content is older than the rule.
	w.oldContent(s)
	for name, c := range map[string]struct{ target, uuid string }{
		"r-old": {"testvm", "5a9fc181-957e-5c32-9e5a-2de5e9673531"}, "r-old-place": {"vm", string(firmware.Legacy("vm"))},
	} {
		w.restore(name, "snap", c.target)
		w.awaitRestore(name, "complete", restore.Complete)
		if got := uuidOf(w.vm(c.target)); got != c.uuid {
			t.Errorf("the VM %s of an old backup has the UUID %s", c.target, got)
		}
	}
	w.forgetSnapshot()
}

func (w *world) snapshotOfTwoDisks(vm *v1.VirtualMachine) *snapshotv1.VirtualMachineSnapshot {
	w.t.Helper()
	w.awaitSettled()
	before := len(w.writes.of(w.namespace))
	w.snapshot("snap", vm.Name)
	s := w.awaitSnapshot("snap", snapshotv1.Succeeded)
	if !*s.Status.ReadyToUse || s.Status.CreationTime == nil || !slices.Equal(s.Status.SnapshotVolumes.IncludedVolumes, []string{"one", "two"}) ||
		len(s.Status.SnapshotVolumes.ExcludedVolumes) > 0 || *s.Status.SourceUID != vm.UID {
		w.t.Errorf("the snapshot says %+v", s.Status)
	}
	if by := w.vm(vm.Name).Status.SnapshotInProgress; by != nil {
		w.t.Errorf("the VM is still locked by %s", *by)
	}
	w.awaitSettled()
	// The loop does not control how often the storage reports a change.
	if writes := granted(w.writes.of(w.namespace)[before:]); len(writes) > 14 {
		w.t.Errorf("a snapshot of two disks takes %d writes: %q", len(writes), writes)
	} else {
		w.t.Logf("a snapshot of two disks takes %d writes: %q", len(writes), writes)
	}
	return s
}

func (w *world) restoreToNew(vm *v1.VirtualMachine) {
	w.t.Helper()
	w.restore("r-new", "snap", "copy")
	w.awaitRestore("r-new", "complete", restore.Complete)
	copied := w.vm("copy")
	if uuidOf(copied) == uuidOf(vm) || copied.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress != "" || *copied.Spec.RunStrategy != v1.RunStrategyHalted {
		w.t.Errorf("the new VM is %+v", copied.Spec)
	}
	for _, volume := range copied.Spec.Template.Spec.Volumes {
		var claim corev1.PersistentVolumeClaim
		w.do("reading a restored claim", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: volume.PersistentVolumeClaim.ClaimName}, &claim))
		if claim.Status.Phase != corev1.ClaimBound || *claim.Spec.StorageClassName != boundAtOnce || claim.Spec.Resources.Requests.Storage().String() != "4Mi" ||
			len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != copied.UID {
			w.t.Errorf("the restored claim is %+v", claim)
		}
	}
}

// forgetSnapshot deletes the snapshot: its objects must be deleted, and restored ones must stay.
func (w *world) forgetSnapshot() {
	w.t.Helper()
	claims := w.claimsLeft()
	w.remove(&snapshotv1.VirtualMachineSnapshot{}, "snap")
	w.eventually("the content and the VolumeSnapshots to go", func() (bool, string) {
		contents, cuts := len(w.contents()), w.volumeSnapshots()
		return contents+cuts == 0, fmt.Sprintf("%d contents and %d VolumeSnapshots are there", contents, cuts)
	})
	if now := w.claimsLeft(); !slices.Equal(now, claims) {
		w.t.Errorf("the claims are %v, they were %v", now, claims)
	}
	w.restore("r-late", "snap", "late")
	w.awaitRestore("r-late", "waiting", func(r *snapshotv1.VirtualMachineRestore) bool {
		return r.Status != nil && strings.Contains(condition.Find(r.Status.Conditions, snapshotv1.ConditionReady).Message, "the snapshot snap does not exist")
	})
	w.remove(&snapshotv1.VirtualMachineRestore{}, "r-late")
}

func lastClaim(vm *v1.VirtualMachine) string {
	volumes := vm.Spec.Template.Spec.Volumes
	return volumes[len(volumes)-1].PersistentVolumeClaim.ClaimName
}

func TestSnapshotsThatFailLeaveNothing(t *testing.T) {
	clock := &shiftedClock{}
	w := newWorld(t, clock.apply)
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	w.localClaim("path")
	fails := func(name, why string) {
		s := w.awaitSnapshot(name, snapshotv1.Failed)
		if !strings.Contains(*s.Status.Error.Message, why) || !condition.IsTrue(s.Status.Conditions, snapshotv1.ConditionFailure) {
			t.Errorf("the snapshot %s says %+v, want %q", name, s.Status, why)
		}
		w.eventually("nothing to be left", func() (bool, string) {
			contents, cuts := len(w.contents()), w.volumeSnapshots()
			return contents+cuts == 0, fmt.Sprintf("%d contents and %d VolumeSnapshots are there", contents, cuts)
		})
	}
	expires := func(name, why string) {
		t.Helper()
		clock.expire(w, name, why)
		fails(name, why)
		clock.set(0)
	}

	w.snapshot("nobody", "nobody")
	expires("nobody", "the VM nobody does not exist")
	w.createVMOn("on-path", "path")
	w.snapshot("no-class", "on-path")
	fails("no-class", "the claim path is on no CSI volume")
	w.createVMOn("unfinished", "one", "missing")
	w.snapshot("unfinished", "unfinished")
	expires("unfinished", "the claim missing of the volume missing does not exist")
	w.eventually("the VM to be unlocked", func() (bool, string) {
		return w.vm("unfinished").Status.SnapshotInProgress == nil, "it is locked"
	})
	w.createVM("runs", v1.RunStrategyAlways)
	w.eventually("a VMI", func() (bool, string) { return w.vmi("runs") != nil, "there is none" })
	w.snapshot("online", "runs")
	expires("online", "the VM runs is being started")

	// One of three disks can't be snapshotted: it must be named, and the others kept.
	w.createVMOn("three", "one", "path", "two")
	w.snapshot("three", "three")
	s := w.awaitSnapshot("three", snapshotv1.Succeeded)
	if v := s.Status.SnapshotVolumes; !slices.Equal(v.IncludedVolumes, []string{"one", "two"}) || !slices.Equal(v.ExcludedVolumes, []string{"path"}) {
		t.Errorf("the snapshot has the volumes %+v", v)
	}
	w.restore("r-three", "three", "copy")
	r := w.awaitRestore("r-three", "failed", restore.Failed)
	if why := condition.Find(r.Status.Conditions, snapshotv1.ConditionFailure).Message; !strings.Contains(why, "the volume path is on the claim path") {
		t.Errorf("its restore says %q", why)
	}
	if left := w.claimsLeft(); !slices.Equal(left, []string{"one", "path", "two"}) || w.vm("copy") != nil {
		t.Errorf("the claims are %v, the VM %+v", left, w.vm("copy"))
	}
}

// localClaim makes a claim on a volume that no driver can snapshot.
func (w *world) localClaim(name string, edits ...func(*corev1.PersistentVolume)) {
	w.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "none",
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: w.namespace, Name: name},
		},
	}
	for _, edit := range edits {
		edit(volume)
	}
	w.do("making a volume", w.client.Create(w.ctx, volume))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), volume) })
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("none"), VolumeName: volume.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	w.do("making the claim", w.client.Create(w.ctx, claim))
	w.eventually("the claim to be bound", func() (bool, string) {
		w.do("reading the claim", w.client.Get(w.ctx, client.ObjectKeyFromObject(claim), claim))
		return claim.Status.Phase == corev1.ClaimBound, string(claim.Status.Phase)
	})
}

func TestRestoresThatFailLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	vm := w.createVMOn("vm", "one", "two")
	w.snapshot("snap", "vm")
	w.awaitSnapshot("snap", snapshotv1.Succeeded)
	fails := func(name, why string) {
		r := w.awaitRestore(name, "failed", restore.Failed)
		if got := condition.Find(r.Status.Conditions, snapshotv1.ConditionFailure).Message; !strings.Contains(got, why) {
			t.Errorf("the restore %s says %q, want %q", name, got, why)
		}
		w.eventually("no claim to be left", func() (bool, string) {
			left := w.claimsLeft()
			return slices.Equal(left, []string{"one", "two"}), fmt.Sprint(left)
		})
	}
	w.createVM("other", v1.RunStrategyHalted)
	w.restore("taken", "snap", "other")
	fails("taken", "the VM other exists and is not the one of the snapshot")

	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "claims", Namespace: w.namespace},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("3")}}}
	w.do("making a quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be counted", func() (bool, string) {
		w.do("reading the quota", w.client.Get(w.ctx, client.ObjectKeyFromObject(quota), quota))
		used := quota.Status.Used[corev1.ResourcePersistentVolumeClaims]
		return used.String() == "2", used.String()
	})
	w.restore("quota", "snap", "copy")
	fails("quota", "exceeded quota")
	w.do("taking the quota away", w.client.Delete(w.ctx, quota))

	// A running target: one restore must not wait, the other must stop it. Nothing may start it before the restore is
	// done.
	w.strategy(v1.RunStrategyAlways)
	w.eventually("a VMI", func() (bool, string) { return w.vmi("vm") != nil, "there is none" })
	w.run("vm")
	w.restore("impatient", "snap", "vm", func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.TargetReadinessPolicy = new(snapshotv1.VirtualMachineRestoreFailImmediate)
	})
	fails("impatient", "the VM vm runs")
	w.restore("stops", "snap", "vm", func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.TargetReadinessPolicy = new(snapshotv1.VirtualMachineRestoreStopTarget)
	})
	w.eventually("the VM to be stopped", func() (bool, string) {
		vmi := w.vmi("vm")
		return vmi == nil || vmi.DeletionTimestamp != nil, "its VMI is there"
	})
	w.phase("vm", v1.Succeeded)
	if pods := w.pods(); len(pods) > 0 {
		w.removePod(&pods[0])
	}
	w.awaitRestore("stops", "complete", restore.Complete)
	if got := w.vm("vm"); *got.Spec.RunStrategy != v1.RunStrategyHalted || got.Status.RestoreInProgress != nil || got.UID != vm.UID {
		t.Errorf("the VM is %+v", got)
	}
}

// The loops are restarted with empty memories at every step of a snapshot and of restores.
func TestTheLoopsMayEndDuringASnapshotAndARestore(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.createBoundClaim("two")
	w.createVMOn("vm", "one", "two")
	w.snapshot("snap", "vm")
	w.interrupt(6, 20*time.Millisecond)
	w.awaitSnapshot("snap", snapshotv1.Succeeded)
	if contents, cuts := len(w.contents()), w.volumeSnapshots(); contents != 1 || cuts != 2 {
		t.Errorf("there are %d contents and %d VolumeSnapshots", contents, cuts)
	}
	w.restore("copy", "snap", "copy")
	w.interrupt(5, 20*time.Millisecond)
	w.awaitRestore("copy", "complete", restore.Complete)
	w.restore("place", "snap", "vm", func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyInPlace)
	})
	w.interrupt(5, 20*time.Millisecond)
	w.awaitRestore("place", "complete", restore.Complete)
	if left := w.claimsLeft(); len(left) != 4 {
		t.Errorf("the claims are %v", left)
	}
	if vm := w.vm("vm"); vm.Status.RestoreInProgress != nil || vm.Status.SnapshotInProgress != nil {
		t.Errorf("the VM is still locked: %+v", vm.Status)
	}
	// A restore that is deleted in the middle must leave nothing.
	w.restore("away", "snap", "away", func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyPrefixTargetName)
	})
	w.eventually("a claim", func() (bool, string) { return len(w.claimsLeft()) > 4, "there is none" })
	w.stop()
	w.do("deleting the restore", w.client.Delete(w.ctx, &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "away"}}))
	made := w.vm("away") != nil
	w.startLoops()
	w.eventually("the claims to go, unless the VM was made", func() (bool, string) {
		left := w.claimsLeft()
		return made || len(left) == 4, fmt.Sprint(left)
	})
}
