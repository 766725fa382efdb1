//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// newPodDiskVM returns a VM that boots from an image, and has an empty disk and one that Drydock makes beside it: all
// of its guest's writes are in its pod, and must move with it.
func newPodDiskVM(t *testing.T, ns, name string) *v1.VirtualMachine {
	t.Helper()
	vmi := newVMI(ns, name)
	vmi.Labels = map[string]string{"vm": name}
	vmi.Spec.Volumes[0].ContainerDisk.Image = guestFullImage        // its kernel has a driver for SATA
	vmi.Spec.Domain.Memory.Guest = new(resource.MustParse("192Mi")) // the full image needs more
	for name, source := range map[string]v1.VolumeSource{
		"empty": {EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}},
		"made":  {CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\n"}},
	} {
		bus := v1.DiskBusVirtio
		if source.CloudInitNoCloud != nil {
			bus = v1.DiskBusSATA // a disk that the guest can write to
		}
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
			Name: name, Serial: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}},
		})
	}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	return newVM(vmi, v1.RunStrategyAlways)
}

// journalBlocks is the number of 4 KiB blocks of a journal, at the end of its disk.
const journalBlocks = 8

// journals holds, by disk, the checksum of everything before the journal. A journal is an endless sequence of numbered
// blocks that the guest writes.
type journals map[string]string

// keepJournals starts a journal on disks of the guest, by default all. It is one program of its own: a shell would
// start three programs per block, and leave an emulated guest no time for anything else. No disk has a mounted file
// system: the guest runs in memory.
func (g *guest) keepJournals(disks ...string) journals {
	g.t.Helper()
	if len(disks) == 0 {
		disks = strings.Fields(g.run("ls /sys/block | grep '^[sv]d'"))
	}
	all := journals{}
	for _, disk := range disks {
		g.run("dd if=/dev/urandom of=/dev/" + disk + " bs=4096 count=4 seek=1 conv=notrunc,fsync 2>/dev/null")
		all[disk] = g.before(disk)
	}
	g.writeJournals(disks)
	g.t.Logf("%s keeps a journal on %d disks", g.name, len(all))
	return all
}

// writeJournals starts a journal on each of the disks, and waits until it has been written once.
func (g *guest) writeJournals(disks []string) {
	g.t.Helper()
	g.run("(diskjournal /dev/" + strings.Join(disks, " /dev/") + " >/dev/null 2>&1 &)")
	for _, disk := range disks {
		g.run("while ! test \"$(cat /run/journal-" + disk + " 2>/dev/null || echo 0)\" -gt " + strconv.Itoa(journalBlocks) + "; do sleep 0.1; done")
	}
}

// Busybox's head, which copies byte by byte, took half a minute in an emulated guest.
func (g *guest) before(disk string) string {
	g.t.Helper()
	return g.run("diskjournal -before /dev/" + disk)
}

// check makes sure that none of the guest's writes is missing, and that it still writes.
func (j journals) check(g *guest) {
	g.t.Helper()
	for disk, want := range j {
		if got := g.before(disk); got != want {
			g.t.Errorf("the disk %s of %s has the checksum %s, want %s", disk, g.name, got, want)
		}
		done := g.holdsJournal(disk)
		g.run(fmt.Sprintf("while ! test $(cat /run/journal-%s) -gt %d; do sleep 0.1; done", disk, done))
	}
}

// holdsJournal checks that a disk has all writes that the guest knows to be there, and returns the newest.
func (g *guest) holdsJournal(disk string) (done int) {
	g.t.Helper()
	done = g.journaled(disk)
	blocks := strings.Fields(g.run("echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/" + disk + " bs=4096 skip=$(($(cat /sys/block/" + disk +
		"/size) / 8 - " + strconv.Itoa(journalBlocks) + ")) 2>/dev/null | tr -s ' ' '\\n'"))
	if len(blocks) != journalBlocks {
		g.t.Fatalf("the journal on %s of %s has %d blocks: %.200q", disk, g.name, len(blocks), blocks)
	}
	for slot, block := range blocks {
		// The newest block with this place that was surely written.
		want := done - (done-slot+journalBlocks)%journalBlocks
		if got, err := strconv.Atoi(block); err != nil || got < want || got%journalBlocks != slot {
			g.t.Errorf("block %d of the journal on %s of %s is %.20q, want %d or a later one", slot, disk, g.name, block, want)
		}
	}
	return done
}

// written returns the newest write on each disk of which the guest knows that it is there.
func (j journals) written(g *guest) map[string]int {
	g.t.Helper()
	newest := map[string]int{}
	for disk := range j {
		newest[disk] = g.journaled(disk)
	}
	return newest
}

func (g *guest) journaled(disk string) int {
	g.t.Helper()
	n, err := strconv.Atoi(g.run("cat /run/journal-" + disk))
	if err != nil {
		g.t.Fatalf("reading what %s has written to %s: %v", g.name, disk, err)
	}
	return n
}

// targetHangs stops the target's QEMU without ending it, while the pod's disks are sent. The migration must fail soon,
// and the guest must run on with all its writes, and write on.
func targetHangs(t *testing.T, g *guest) journals {
	t.Helper()
	ns := g.namespace
	kept := g.keepJournals()
	vmi, bootID := awaitRunning(t, ns, g.name), g.bootID()
	m, between := beginsToMigrate(t, ns, g.name)
	target := awaitPodRunning(t, ns, between.TargetPod)
	if err := syscall.Kill(processOf(t, target, "qemu-system-x86_64"), syscall.SIGSTOP); err != nil {
		t.Fatalf("stopping the target's QEMU: %v", err)
	}
	failed := awaitEnd(t, m, v1.MigrationFailed)
	// QEMU may hang before or after the source's QEMU has opened each of its disks.
	if said := failed.Status.MigrationState.FailureReason; !strings.Contains(said, "the copy of volume") && !strings.Contains(said, "cannot be copied to the target") {
		t.Errorf("the migration does not say that a disk could not be copied: %s", said)
	}
	awaitOneLauncher(t, vmi, vmi.Status.NodeName)
	kept.check(g)
	if g.bootID() != bootID {
		t.Error("the guest was started again")
	}
	return kept
}
