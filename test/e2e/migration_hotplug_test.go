//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"

	"drydock.dev/drydock/test/hotplugwatch"
)

// sharedClaims makes claims of both modes that every node reaches.
func sharedClaims(t *testing.T, ns string) (volumes map[string]v1.DiskBus) {
	t.Helper()
	volumes = map[string]v1.DiskBus{}
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		for _, bus := range []v1.DiskBus{v1.DiskBusSCSI, v1.DiskBusVirtio} {
			name := map[corev1.PersistentVolumeMode]string{corev1.PersistentVolumeFilesystem: "file-", corev1.PersistentVolumeBlock: "block-"}[mode] + string(bus)
			c := claimOfClass(ns, name, classShared, mode)
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			create(t, c)
			volumes[name] = bus
		}
	}
	return volumes
}

func (g *guest) places(volumes map[string]v1.DiskBus) map[string]string {
	g.t.Helper()
	places := map[string]string{}
	for name := range volumes {
		places[name] = g.run("readlink -f /sys/block/$(basename " + g.device(name) + ")")
	}
	return places
}

// The data is in the second MiB of each disk.
func (g *guest) fill(volumes map[string]v1.DiskBus) (sums map[string]string) {
	g.t.Helper()
	for name := range volumes {
		g.run("dd if=/dev/urandom of=" + g.device(name) + " bs=65536 seek=16 count=16 conv=notrunc,fsync 2>/dev/null")
	}
	return g.sums(volumes)
}

func (g *guest) sums(volumes map[string]v1.DiskBus) map[string]string {
	g.t.Helper()
	sums := map[string]string{}
	for name := range volumes {
		sums[name] = g.run("echo 3 >/proc/sys/vm/drop_caches; dd if=" + g.device(name) + " bs=65536 skip=16 count=16 2>/dev/null | sha256sum")
	}
	return sums
}

// writeOn starts a journal on each disk, and returns their names in the guest, by volume.
func (g *guest) writeOn(volumes map[string]v1.DiskBus) map[string]string {
	g.t.Helper()
	disks := map[string]string{}
	for name := range volumes {
		disks[name] = path.Base(g.device(name))
	}
	g.writeJournals(slices.Collect(maps.Values(disks)))
	return disks
}

// writesOn waits until a journal is longer than before, and checks that the disk has all of it.
func (g *guest) writesOn(disk string, before int) {
	g.t.Helper()
	eventually(g.t, "more that is written to "+disk, func(context.Context) error {
		if now := g.journaled(disk); now <= before {
			return fmt.Errorf("the guest knows of %d writes, and knew of %d", now, before)
		}
		return nil
	})
	g.holdsJournal(disk)
}

func awaitHeldOn(t *testing.T, ns, name, node string) {
	t.Helper()
	eventually(t, "the attachment pods of "+name+" on "+node+" only", func(ctx context.Context) error {
		pods, err := attachmentPods(ctx, ns, name)
		if err == nil && len(pods) == 0 {
			err = errors.New("there are none")
		}
		for i := range pods {
			if pods[i].Spec.NodeName != node {
				err = fmt.Errorf("%s is on %s", pods[i].Name, pods[i].Spec.NodeName)
			}
		}
		return err
	})
}

// TestHotpluggedDisksMigrate moves a guest that writes to four hotplugged disks to another node and back. The
// disks must keep places and data, no write may fail, and they must be unpluggable and pluggable there. Only a
// real guest knows its disks' places and failed writes.
func TestHotpluggedDisksMigrate(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	warnsOfNothing(t, ns)
	volumes := sharedClaims(t, ns)
	early := claimOfClass(ns, "early", classShared, corev1.PersistentVolumeFilesystem)
	early.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	create(t, early)
	g := bootVM(t, newMigratableVM(t, ns, "laden"))
	hotplugwatch.AttachmentPods(t, cluster.client, ns, "laden")
	// After an unplug, the next disk is not at the place that the spec alone would give it.
	do(t, ns, "addvolume", "laden", "--volume-name=early")
	g.gets("early")
	for name, bus := range volumes {
		do(t, ns, "addvolume", "laden", "--volume-name="+name, "--bus="+string(bus))
		g.gets(name)
	}
	do(t, ns, "removevolume", "laden", "--volume-name=early")
	g.loses("early")
	sums, places := g.fill(volumes), g.places(volumes)
	bootID, kept, disks := g.bootID(), g.keepJournals("vda"), g.writeOn(volumes)
	for _, turn := range []string{"there", "back"} {
		from := awaitMigratable(t, ns, "laden").Status.NodeName
		before := map[string]int{}
		for name, disk := range disks {
			before[name] = g.journaled(disk)
		}
		m := newMigration(ns, "laden")
		create(t, m)
		awaitEnd(t, m, v1.MigrationSucceeded)
		moved := awaitVMI(t, ns, "laden", "another node", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.NodeName != from })
		awaitOneLauncher(t, moved, moved.Status.NodeName)
		g = login(t, ns, "laden")
		for name, disk := range disks {
			g.gets(name)
			if now := g.places(map[string]v1.DiskBus{name: ""})[name]; now != places[name] {
				t.Errorf("%s: the disk %s is at %s, and was at %s", turn, name, now, places[name])
			}
			g.writesOn(disk, before[name])
		}
		kept.check(g)
		if g.bootID() != bootID {
			t.Errorf("%s: the guest was started again", turn)
		}
		if now := g.sums(volumes); fmt.Sprint(now) != fmt.Sprint(sums) {
			t.Errorf("%s: the disks have %v, and had %v", turn, now, sums)
		}
		if failed := g.run("cat /run/journal-failed 2>/dev/null || true"); failed != "" {
			t.Errorf("%s: writes failed:\n%s", turn, failed)
		}
		awaitHeldOn(t, ns, "laden", moved.Status.NodeName)
	}
	startedOnce(t, ns, "laden")
}

// TestHandlersDieWhileAGuestMigrates kills each virt-handler once while a guest with hotplugged disks migrates: the
// target's when the attachment pods get there, and the source's during the transfer. The migration must end, exactly
// one guest must run, and its disks must be unpluggable and pluggable there. internal/rules/migration/switchover explores at
// which steps a handler may die; here a kubelet restarts it beside a running QEMU.
func TestHandlersDieWhileAGuestMigrates(t *testing.T) {
	ns := newNamespace(t)
	volumes := sharedClaims(t, ns)
	// TestHotpluggedDisksMigrate has all four.
	delete(volumes, "file-virtio")
	delete(volumes, "block-scsi")
	g := bootVM(t, newMigratableVM(t, ns, "replugs"))
	// The transfer must last for longer than a busy virt-controller may need to see it.
	limit(t, ns, "replugs", migrationsv1.MigrationPolicySpec{BandwidthPerMigration: new(resource.MustParse("5Mi"))})
	hotplugwatch.AttachmentPods(t, cluster.client, ns, "replugs")
	for name, bus := range volumes {
		do(t, ns, "addvolume", "replugs", "--volume-name="+name, "--bus="+string(bus))
	}
	for name := range volumes {
		g.gets(name)
	}
	sums, bootID := g.fill(volumes), g.bootID()
	moved := false
	for _, side := range []string{"target", "source"} {
		moved = handlerDies(t, ns, "replugs", side) || moved
		if login(t, ns, "replugs").bootID() != bootID {
			t.Fatalf("the guest was started again when virt-handler of the %s died", side)
		}
		startedOnce(t, ns, "replugs")
	}
	if !moved {
		m := newMigration(ns, "replugs")
		create(t, m)
		awaitEnd(t, m, v1.MigrationSucceeded)
	}
	g = login(t, ns, "replugs")
	for name := range volumes {
		do(t, ns, "removevolume", "replugs", "--volume-name="+name)
	}
	for name := range volumes {
		g.loses(name)
	}
	awaitAttachmentPods(t, ns, "replugs", 0)
	for name, bus := range volumes {
		do(t, ns, "addvolume", "replugs", "--volume-name="+name, "--bus="+string(bus))
	}
	for name := range volumes {
		g.gets(name)
	}
	if now := g.sums(volumes); fmt.Sprint(now) != fmt.Sprint(sums) {
		t.Errorf("the disks have %v, and had %v", now, sums)
	}
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
	startedOnce(t, ns, "replugs")
}

// handlerDies migrates a guest with plugged disks, and kills virt-handler on a side. It reports whether the guest is on
// the other node.
func handlerDies(t *testing.T, ns, name, side string) (moved bool) {
	t.Helper()
	from := awaitMigratable(t, ns, name).Status.NodeName
	m := newMigration(ns, name)
	create(t, m)
	awaitPodElsewhere(t, ns, name, from)
	victim := otherThan(from)
	if side == "source" {
		awaitTransfer(t, m)
		victim = from
	}
	if err := syscall.Kill(processOf(t, handlerPod(t, victim), "virt"), syscall.SIGKILL); err != nil {
		t.Fatalf("killing virt-handler: %v", err)
	}
	ended := awaitMigration(t, m, "its end", func(m *v1.VirtualMachineInstanceMigration) bool { return m.IsFinal() })
	t.Logf("virt-handler of the %s was killed: %s, %+v", side, ended.Status.Phase, ended.Status.MigrationState)
	now := awaitVMI(t, ns, name, "Ready", ready)
	awaitOneLauncher(t, now, now.Status.NodeName)
	awaitHeldOn(t, ns, name, now.Status.NodeName)
	return now.Status.NodeName != from
}

func awaitPodElsewhere(t *testing.T, ns, name, node string) {
	t.Helper()
	eventually(t, "an attachment pod of "+name+" on another node than "+node, func(ctx context.Context) error {
		pods, err := attachmentPods(ctx, ns, name)
		for i := range pods {
			if at := pods[i].Spec.NodeName; at != "" && at != node {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("there are %d, none of them there", len(pods)))
	})
}
