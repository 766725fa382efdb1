//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/identity"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// TestAVMIsSnapshottedAndRestored snapshots a VM with two disks, lets its guest destroy both, and restores them,
// while a second VM is made of the same snapshot, and a third by a clone. Before that the guest is snapshotted
// while it writes to both disks in turn, and the second VM gets those disks. A content that a tenant writes must
// be refused.
//
// Guests print their UUIDs, for the rule's scenarios in which the API server's tests see only the VMs: 1 and 3, a
// VM that is older than the rule, stopped and running; 4 and 13, a content that is older; 8, a newer one.
func TestAVMIsSnapshottedAndRestored(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	warnsOfNothing(t, ns, "VirtualMachineSnapshotFailed") // for the guest that could not be frozen
	vmi := newVMI(ns, "vm")
	for _, name := range []string{"one", "two"} {
		create(t, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeMode: new(corev1.PersistentVolumeBlock), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")}},
			},
		})
		addDisk(vmi, v1.Disk{Name: name, Serial: strings.ToUpper(name), DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	create(t, newVM(vmi, v1.RunStrategyHalted))
	olderThanTheRule(t, ns, "vm")
	do(t, ns, "start", "vm")
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusRunning)
	g, id := login(t, ns, "vm"), string(firmware.Legacy("vm"))
	g.sees("its legacy UUID", "guestinfo uuid", id)
	olderThanTheRule(t, ns, "vm")
	g.sees("the same UUID, and runs on", "guestinfo uuid", id)
	online := g.snapshotWhileItWrites()
	g.write("before")
	knew := g.run(self)
	do(t, ns, "stop", "vm")
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusStopped)

	begin := time.Now()
	snapshot(t, ns, "snap", func(s *snapshotv1.VirtualMachineSnapshotStatus) bool { return s.ReadyToUse != nil && *s.ReadyToUse })
	t.Logf("the snapshot of two disks took %v", time.Since(begin).Round(time.Millisecond))
	forged := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forged"}}
	if err := cluster.client.Create(t.Context(), forged); err == nil || !strings.Contains(err.Error(), "only virt-controller may write") {
		t.Errorf("a content that a tenant writes: %v", err)
	}

	do(t, ns, "start", "vm")
	contentHasUUID(t, ns, "snap", "null")
	restoreTo(t, ns, "copy", nil)
	awaitRestored(t, ns, "copy")
	contentHasUUID(t, ns, "snap", `"`+id+`"`)
	addDisksOf(t, ns, "copy", online)
	do(t, ns, "start", "copy")
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusRunning)
	login(t, ns, "vm").write("destroyed")
	restoreTo(t, ns, "vm", new(snapshotv1.VirtualMachineRestoreStopTarget))
	awaitPrintable(t, ns, "copy", v1.VirtualMachineStatusRunning)
	other := login(t, ns, "copy")
	other.bothDisksHold("before")
	for i := range online {
		other.agreesOn(i)
	}
	other.sees("the legacy UUID of its name", "guestinfo uuid", string(firmware.Legacy("copy")))
	awaitRestored(t, ns, "vm")
	do(t, ns, "start", "vm")
	cloneOfSnapshot(t, ns, "twin")
	do(t, ns, "start", "twin")
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusRunning)
	again := login(t, ns, "vm")
	again.bothDisksHold("before")
	if now := again.run(self); now != knew {
		t.Errorf("after a restore in place the guest sees\n%s\nand saw\n%s", now, knew)
	}
	awaitPrintable(t, ns, "twin", v1.VirtualMachineStatusRunning)
	twin := login(t, ns, "twin")
	twin.bothDisksHold("before")
	differsByTheTable(t, identity.Clone, knew, twin.run(self))
}

// write writes a word to both disks.
func (g *guest) write(word string) {
	g.t.Helper()
	for _, serial := range []string{"ONE", "TWO"} {
		g.run("echo " + word + " | dd of=" + g.device(serial) + " conv=fsync")
	}
}

func (g *guest) bothDisksHold(word string) {
	g.t.Helper()
	for _, serial := range []string{"ONE", "TWO"} {
		g.sees("what disk "+serial+" was restored to", "head -n 1 "+g.device(serial), word)
	}
}

// A backup tool follows the launcher pod's annotations: the guest must freeze and thaw.
func (g *guest) isBackedUp() {
	g.t.Helper()
	pod := launcherPod(g.t, awaitRunning(g.t, g.namespace, g.name))
	hook := func(when string) {
		g.t.Helper()
		var command []string
		if err := json.Unmarshal([]byte(pod.Annotations[when+".hook.backup.velero.io/command"]), &command); err != nil {
			g.t.Fatalf("the hook %s of the pod %s: %v", when, pod.Name, err)
		}
		args := []string{"-n", g.namespace, "exec", pod.Name, "-c", pod.Annotations[when+".hook.backup.velero.io/container"], "--"}
		if out, err := kubectl(g.t.Context(), append(args, command...)...); err != nil {
			g.t.Fatalf("the hook %s of the pod %s: %v, %s", when, pod.Name, err, out)
		}
	}
	hook("pre")
	awaitVMI(g.t, g.namespace, g.name, "that it is frozen", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.FSFreezeStatus == "frozen" })
	// This is no job of the login shell, which sometimes ends when one of its jobs does.
	g.run("(touch /mnt/ONE/later >/dev/null 2>&1 &)")
	at := g.run("cat /mnt/TWO/n; sleep 1; cat /mnt/TWO/n")
	if numbers := strings.Fields(at); len(numbers) != 2 || numbers[0] != numbers[1] {
		g.t.Errorf("the guest that is frozen writes on: %s", at)
	}
	hook("post")
	g.awaitProgress()
	eventually(g.t, "what waited to be done", func(context.Context) error {
		_, err := g.try("test -e /mnt/ONE/later")
		return err
	})
}

// snapshotWhileItWrites makes the guest count on both disks in turn, each number written back before the next. It
// snapshots the guest with its agent, with one that can't freeze, with a hanging one, and without one, and returns the
// first and the last snapshot.
func (g *guest) snapshotWhileItWrites() []*snapshotv1.VirtualMachineSnapshot {
	t := g.t
	t.Helper()
	for _, serial := range []string{"ONE", "TWO"} {
		g.run("mkfs.ext4 -q -F -b 1024 " + g.device(serial) + " && mkdir -p /mnt/" + serial + " && mount -t ext4 " + g.device(serial) + " /mnt/" + serial)
	}
	g.run("(diskcount /mnt/ONE/n /mnt/TWO/n >/dev/null 2>&1 &)")
	g.awaitProgress()
	boot, uptime := g.bootID(), g.uptime()

	g.isBackedUp()
	succeeds := func(s *snapshotv1.VirtualMachineSnapshotStatus) bool { return s.ReadyToUse != nil && *s.ReadyToUse }
	frozen := snapshot(t, g.namespace, "frozen", succeeds)
	saysHow(t, frozen, snapshotv1.VMSnapshotGuestAgentIndication)
	g.awaitProgress()
	g.isSnapshottedUnfrozen()
	g.run("killall -STOP qemu-ga")
	hung := snapshot(t, g.namespace, "hung", func(s *snapshotv1.VirtualMachineSnapshotStatus) bool {
		return s.Phase == snapshotv1.Failed && strings.Contains(*s.Error.Message, "did not freeze the guest's file systems")
	})
	saysHow(t, hung, snapshotv1.VMSnapshotQuiesceTimeoutIndication)
	g.awaitProgress()
	// An agent that disappears during a request fails the snapshot. One that continues first answers the earlier
	// request, until the answer is read.
	g.run("mv /usr/sbin/qemu-ga /tmp; killall -KILL qemu-ga; while pidof qemu-ga >/dev/null; do usleep 50000; done")
	stopped := g.snapshotWhileStopped("stopped")
	saysHow(t, stopped, snapshotv1.VMSnapshotNoGuestAgentIndication)
	g.awaitProgress()

	if got := g.bootID(); got != boot || g.uptime() <= uptime {
		t.Errorf("the guest that was snapshotted has the boot id %s, before %s", got, boot)
	}
	g.run("killall diskcount; while pidof diskcount >/dev/null; do usleep 50000; done; umount /mnt/ONE /mnt/TWO")
	return []*snapshotv1.VirtualMachineSnapshot{frozen, stopped}
}

// isSnapshottedUnfrozen hides a mounted file system below another one. The agent can't open it to freeze it, after it has
// frozen a later one. The snapshot must succeed, say so in the agent's words, and leave nothing frozen. The file system's only
// mount is hidden, since the agent skips others.
func (g *guest) isSnapshottedUnfrozen() {
	g.t.Helper()
	g.run("mkdir -p /mnt/over/under && mount -o move /mnt/ONE /mnt/over/under && mount -t tmpfs none /mnt/over")
	const words = "failed to open /mnt/over/under: No such file or directory"
	if said := saysHow(g.t, g.snapshotWhileStopped("unfrozen"), "QuiesceFailed"); !strings.Contains(said, words) {
		g.t.Errorf("it says %q, want %q in it", said, words)
	}
	g.awaitProgress()
	g.run("umount /mnt/over && mount -o move /mnt/over/under /mnt/ONE")
}

// snapshotWhileStopped snapshots the guest while its CPUs are stopped, for at most launch.MaxStopped. On a machine with
// slower storage the snapshot must fail, and another one is made.
func (g *guest) snapshotWhileStopped(name string) (stopped *snapshotv1.VirtualMachineSnapshot) {
	g.t.Helper()
	for deadline, n := time.Now().Add(patience), 1; ; n++ {
		var late string
		stopped = snapshot(g.t, g.namespace, fmt.Sprintf("%s-%d", name, n), func(s *snapshotv1.VirtualMachineSnapshotStatus) bool {
			if s.Phase == snapshotv1.Failed && strings.Contains(*s.Error.Message, "it was not released before its deadline") {
				late = *s.Error.Message
			}
			return late != "" || s.ReadyToUse != nil && *s.ReadyToUse
		})
		if late == "" {
			return stopped
		}
		g.t.Logf("the snapshot %s was too slow: %s", stopped.Name, late)
		if time.Now().After(deadline) {
			g.t.Fatal("no snapshot is done in time")
		}
		g.awaitProgress()
	}
}

func (g *guest) awaitProgress() {
	g.t.Helper()
	was := g.run("cat /mnt/TWO/n 2>/dev/null || echo 0")
	eventually(g.t, "the guest to write on", func(context.Context) error {
		if now := g.run("cat /mnt/TWO/n 2>/dev/null || echo 0"); now == was {
			return fmt.Errorf("it is still at %s", now)
		}
		return nil
	})
}

// saysHow checks that a snapshot has the indication of how the guest was frozen or stopped, and returns its message.
func saysHow(t *testing.T, s *snapshotv1.VirtualMachineSnapshot, how snapshotv1.Indication) string {
	t.Helper()
	for _, said := range s.Status.SourceIndications {
		t.Logf("the snapshot %s says %s: %s", s.Name, said.Indication, said.Message)
		if said.Indication == how {
			return said.Message
		}
	}
	t.Errorf("the snapshot %s does not say %s: %+v", s.Name, how, s.Status.SourceIndications)
	return ""
}

func addDisksOf(t *testing.T, ns, name string, snapshots []*snapshotv1.VirtualMachineSnapshot) {
	t.Helper()
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, vm); err != nil {
		t.Fatal(err)
	}
	to := vm.DeepCopy()
	spec := &to.Spec.Template.Spec
	for i, s := range snapshots {
		for _, volume := range []string{"one", "two"} {
			claim := fmt.Sprintf("%s-%d", volume, i)
			create(t, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: claim},
				Spec: corev1.PersistentVolumeClaimSpec{
					VolumeMode: new(corev1.PersistentVolumeBlock), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")}},
					DataSource: &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot",
						Name: fmt.Sprintf("vmsnapshot-%s-volume-%s", s.UID, volume)},
				},
			})
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: claim, Serial: strings.ToUpper(claim),
				DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}})
		}
	}
	if err := cluster.client.Patch(t.Context(), to, client.MergeFrom(vm)); err != nil {
		t.Fatalf("adding disks to the VM %s: %v", name, err)
	}
}

// agreesOn compares the guest's counts on the two disks of a snapshot: they are of one point in time if the second is
// at most one behind.
func (g *guest) agreesOn(i int) {
	g.t.Helper()
	var numbers []int
	for _, volume := range []string{"ONE", "TWO"} {
		device := g.device(fmt.Sprintf("%s-%d", volume, i))
		text := g.run("mkdir -p /mnt/c && mount -t ext4 " + device + " /mnt/c && cat /mnt/c/n && umount /mnt/c")
		number, err := strconv.Atoi(text)
		if err != nil {
			g.t.Fatalf("the disk %s of the snapshot %d holds %q", volume, i, text)
		}
		numbers = append(numbers, number)
	}
	if numbers[0] != numbers[1] && numbers[0] != numbers[1]+1 || numbers[1] < 1 {
		g.t.Errorf("the disks of the snapshot %d are at %v", i, numbers)
	}
	g.t.Logf("the disks of the snapshot %d are at %v", i, numbers)
}

func snapshot(t *testing.T, ns, name string, seen func(*snapshotv1.VirtualMachineSnapshotStatus) bool) *snapshotv1.VirtualMachineSnapshot {
	t.Helper()
	return snapshotOf(t, ns, "vm", name, seen)
}

func snapshotOf(t *testing.T, ns, vm, name string, seen func(*snapshotv1.VirtualMachineSnapshotStatus) bool) *snapshotv1.VirtualMachineSnapshot {
	t.Helper()
	s := &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: vm}},
	}
	create(t, s)
	return await(t, s, &snapshotv1.VirtualMachineSnapshotList{}, "the end", func(s *snapshotv1.VirtualMachineSnapshot) bool {
		return s.Status != nil && seen(s.Status)
	})
}

// restoreTo restores the snapshot "snap" to a VM; the restore has the VM's name.
func restoreTo(t *testing.T, ns, target string, policy *snapshotv1.TargetReadinessPolicy) {
	t.Helper()
	create(t, &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: target},
		Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target:                     corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: target},
			VirtualMachineSnapshotName: "snap", TargetReadinessPolicy: policy,
		},
	})
}

// cloneOfSnapshot makes a VM of the snapshot "snap" by a clone of the VM's name.
func cloneOfSnapshot(t *testing.T, ns, target string) {
	t.Helper()
	c := &clonev1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: target},
		Spec: clonev1.VirtualMachineCloneSpec{
			Source: &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.SchemeGroupVersion.Group), Kind: "VirtualMachineSnapshot", Name: "snap"},
			Target: &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: target},
		},
	}
	create(t, c)
	c = await(t, c, &clonev1.VirtualMachineCloneList{}, "the end", func(c *clonev1.VirtualMachineClone) bool {
		return c.Status.Phase == clonev1.Succeeded || c.Status.Phase == clonev1.Failed
	})
	if c.Status.Phase != clonev1.Succeeded {
		t.Fatalf("the clone %s has failed: %+v", target, c.Status.Conditions)
	}
}

func awaitRestored(t *testing.T, ns, name string) {
	t.Helper()
	r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	r = await(t, r, &snapshotv1.VirtualMachineRestoreList{}, "the end", func(r *snapshotv1.VirtualMachineRestore) bool {
		return r.Status != nil && (*r.Status.Complete || condition.IsTrue(r.Status.Conditions, snapshotv1.ConditionFailure))
	})
	if !*r.Status.Complete {
		t.Fatalf("the restore %s has failed: %+v", name, r.Status.Conditions)
	}
}
