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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/snapshot"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// label labels a claim, as its user could.
func (w *world) label(claim, key string) error {
	object := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: claim}}
	return w.client.Patch(w.ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, key)))
}

func (w *world) backups(s *snapshotv1.VirtualMachineSnapshot) (names []string) {
	w.t.Helper()
	var content snapshotv1.VirtualMachineSnapshotContent
	w.do("reading the content", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: *s.Status.VirtualMachineSnapshotContentName}, &content))
	for _, b := range content.Spec.VolumeBackups {
		names = append(names, *b.VolumeSnapshotName)
	}
	return names
}

// The disks of a VM must be snapshotted by one VolumeGroupSnapshot if their driver has a class for that: while the VM
// is stopped, while it runs without being frozen, and while its agent has frozen it. A group with other volumes than
// intended must fail, and leave nothing.
func TestAVMIsSnapshottedByOneVolumeGroupSnapshot(t *testing.T) {
	n, late := &node{}, &atomic.Int64{}
	w := newWorld(t, func(o *options) {
		o.guests = n
		o.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	})
	d := w.newGroupDriver()
	d.claim("one", nil)
	d.claim("two", nil)
	d.claim("other", nil)
	vm := w.createVMOn("vm", "one", "two")
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	// This claim was once a disk of the VM, or never was.
	w.do("labeling a claim", w.label("other", snapshot.GroupLabel(vm)))

	w.awaitSettled()
	before := len(w.writes.of(w.namespace))
	w.snapshot("snap", "vm")
	s := w.awaitSnapshot("snap", snapshotv1.Succeeded)
	w.awaitSettled()
	writes := granted(w.writes.of(w.namespace)[before:])
	t.Logf("the first snapshot by a group takes %d writes, two of them for the labels and one for that of somebody else: %q", len(writes), writes)
	// The loop does not control how often the storage reports a change.
	if len(writes) > 15 {
		t.Errorf("a snapshot takes %d writes", len(writes))
	}
	names := w.backups(s)
	groups, err := d.groups(w.ctx)
	if err != nil || len(groups) != 1 || w.volumeSnapshots() != 2 || !strings.HasPrefix(names[0], "member-0-") || !strings.HasPrefix(names[1], "member-1-") {
		t.Errorf("there are the groups %v (%v), and the VolumeSnapshots %v", groups, err, names)
	}
	w.restoreFromGroup(d, names)

	w.snapshotsOfAGroupThatFail(d, vm, late)
	w.snapshotsOfGroupsThatRun(n)

	for _, name := range []string{"snap", "online", "frozen"} {
		w.remove(&snapshotv1.VirtualMachineSnapshot{}, name)
	}
	w.nothingIsLeft(d, 0)
}

// nothingIsLeft waits until there are only this many contents with their groups.
func (w *world) nothingIsLeft(d *groupDriver, want int) {
	w.t.Helper()
	w.eventually("groups and VolumeSnapshots to go", func() (bool, string) {
		groups, err := d.groups(w.ctx)
		contents, members := len(w.contents()), w.volumeSnapshots()
		return err == nil && len(groups) == want && contents == want && members == 2*want,
			fmt.Sprintf("%d groups, %d contents and %d VolumeSnapshots are there (%v)", len(groups), contents, members, err)
	})
}

// The claims must be filled from the members.
func (w *world) restoreFromGroup(d *groupDriver, names []string) {
	w.t.Helper()
	d.volume("copy-one")
	d.volume("copy-two")
	w.restore("r", "snap", "copy", func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyPrefixTargetName)
	})
	w.awaitRestore("r", "complete", restore.Complete)
	label := snapshot.GroupLabel(w.vm("vm"))
	for i, name := range []string{"copy-one", "copy-two"} {
		var claim corev1.PersistentVolumeClaim
		w.do("reading a restored claim", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &claim))
		if claim.Spec.DataSource == nil || claim.Spec.DataSource.Name != names[i] || metav1.HasLabel(claim.ObjectMeta, label) {
			w.t.Errorf("the claim %s has the labels %v and is filled from %+v, want %s", name, claim.Labels, claim.Spec.DataSource, names[i])
		}
	}
}

// Another claim is labeled during the snapshot; then the driver fails.
func (w *world) snapshotsOfAGroupThatFail(d *groupDriver, vm *v1.VirtualMachine, late *atomic.Int64) {
	w.t.Helper()
	fails := func(name, why string) {
		w.t.Helper()
		s := w.awaitSnapshot(name, snapshotv1.Failed)
		if got := *s.Status.Error.Message; !strings.Contains(got, why) {
			w.t.Errorf("the snapshot %s says %q, want %q", name, got, why)
		}
		w.nothingIsLeft(d, 1)
	}
	d.set(func(d *groupDriver) { d.meddle = func() { _ = w.label("other", snapshot.GroupLabel(vm)) } })
	w.snapshot("meddled", "vm")
	fails("meddled", "also has volumes that are not the VM's (1)")
	d.set(func(d *groupDriver) { d.meddle, d.refusal = nil, "this array takes no groups today" })
	w.snapshot("refused", "vm")
	w.eventually("the snapshot to say what the driver says", func() (bool, string) {
		s := &snapshotv1.VirtualMachineSnapshot{}
		w.do("reading the snapshot", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "refused"}, s))
		return s.Status != nil && strings.Contains(fmt.Sprint(s.Status.Conditions), "this array takes no groups today"), fmt.Sprintf("%+v", s.Status)
	})
	late.Store(int64(time.Hour))
	fails("refused", "this array takes no groups today")
	late.Store(0)
	d.set(func(d *groupDriver) { d.refusal = "" })
}

func (w *world) snapshotsOfGroupsThatRun(n *node) {
	w.t.Helper()
	w.strategy(v1.RunStrategyAlways)
	w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	said := func(name string) (all []string) {
		w.awaitSettled()
		before := len(w.writes.of(w.namespace))
		w.snapshot(name, "vm")
		for _, i := range w.awaitSnapshot(name, snapshotv1.Succeeded).Status.SourceIndications {
			all = append(all, string(i.Indication)+": "+i.Message)
		}
		w.awaitSettled()
		writes := granted(w.writes.of(w.namespace)[before:])
		w.t.Logf("the snapshot %s by a group takes %d writes: %q", name, len(writes), writes)
		// A snapshot does not change the running VM.
		if len(writes) > 14 {
			w.t.Errorf("the snapshot %s takes %d writes", name, len(writes))
		}
		return all
	}
	if got := said("online"); n.holds != 0 || len(got) != 2 || !strings.Contains(got[0], "The guest went on") {
		w.t.Errorf("without an agent the guest was held %d times; the snapshot says %q", n.holds, got)
	}
	vmi := w.vmi("vm")
	from := vmi.DeepCopy()
	vmi.Status.Conditions = append(slices.Clone(vmi.Status.Conditions), v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue})
	w.do("saying that there is an agent", w.client.Patch(w.ctx, vmi, client.MergeFrom(from)))
	if got := said("frozen"); n.holds != 1 || n.releases != 1 || len(got) != 2 || !strings.HasPrefix(got[0], "GuestAgent") {
		w.t.Errorf("with an agent the guest was held %d times and released %d times; the snapshot says %q", n.holds, n.releases, got)
	}
}
