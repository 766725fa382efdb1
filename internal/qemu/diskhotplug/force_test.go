package diskhotplug_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
)

const detachedNode = "x-a"

var virtio = diskhotplug.Properties{"driver": "virtio-blk-pci", "bus": "port1", "addr": "0x0", "werror": "stop", "rerror": "stop"}

func stubborn(t *testing.T) *machine {
	t.Helper()
	m := start(t)
	f := m.file(1 << 20)
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-a"), f, parts(virtio)))
	f.Close()
	m.must(diskhotplug.Ask(t.Context(), m, m.look()))
	return m
}

// is checks the stage of volume a.
func (m *machine) is(want diskhotplug.Stage) diskhotplug.Disk {
	m.t.Helper()
	d := m.look()
	if d.Stage != want {
		m.t.Fatalf("QEMU has %+v, want it %s", d, want)
	}
	return d
}

func (m *machine) hasOpen() bool {
	m.t.Helper()
	process, err := procfs.NewProc(m.pid)
	m.must(err)
	open, err := process.FileDescriptorTargets()
	m.must(err)
	return slices.ContainsFunc(open, func(target string) bool { return strings.HasSuffix(target, "/disk.img") })
}

func TestADiskIsTakenFromAGuestThatDoesNotLetGo(t *testing.T) {
	m := stubborn(t)
	m.must(diskhotplug.Force(t.Context(), m, m.is(diskhotplug.Plugged), detachedNode))
	m.must(diskhotplug.Clear(t.Context(), m, m.is(diskhotplug.Partial)))
	d := m.is(diskhotplug.Detached)
	if d.Volume != "a" || d.Claim != "claim" || d.Size != 0 || m.hasOpen() {
		t.Errorf("what is left is %+v, the file is open: %v", d, m.hasOpen())
	}
	m.must(diskhotplug.Force(t.Context(), m, d, detachedNode))
	m.must(diskhotplug.Ask(t.Context(), m, d))

	// A reset releases the disk.
	m.must(m.Execute(t.Context(), "system_reset", nil, nil))
	m.clearAll()
}

// clearAll clears the rest of a disk whose device is being removed. QEMU releases the node after its vCPU has paused,
// which may never happen while it runs a loop of the firmware, and happens all the time under a system.
func (m *machine) clearAll() {
	m.t.Helper()
	err := error(nil)
	for deadline, tick := time.Now().Add(2*patience), time.Tick(50*time.Millisecond); ; <-tick {
		d := m.look()
		switch {
		case d.Stage == diskhotplug.Absent:
			m.nothingLeft()
			return
		case time.Now().After(deadline):
			m.t.Fatalf("QEMU still has %+v: %v", d, err)
		case d.Stage == diskhotplug.Partial:
			if err = diskhotplug.Clear(m.t.Context(), m, d); err != nil {
				m.must(m.Execute(m.t.Context(), "stop", nil, nil))
				m.must(m.Execute(m.t.Context(), "cont", nil, nil))
			}
		}
	}
}

func TestAForceThatWasCutShortGoesOn(t *testing.T) {
	const commands = 3 // add-fd, the node, the device's drive
	for done := range commands {
		t.Run(fmt.Sprintf("virt-handler was killed after %d commands", done), func(t *testing.T) {
			m := stubborn(t)
			err := diskhotplug.Force(t.Context(), &dying{m, done}, m.look(), detachedNode)
			if !errors.Is(err, errKilled) {
				t.Fatalf("it says %v", err)
			}
			m.must(diskhotplug.Force(t.Context(), m, m.is(diskhotplug.Plugged), detachedNode))
			m.must(diskhotplug.Clear(t.Context(), m, m.is(diskhotplug.Partial)))
			m.is(diskhotplug.Detached)
			m.must(m.Execute(t.Context(), "system_reset", nil, nil))
			m.clearAll()
		})
	}
}

func TestAForceThatWasCutShortIsClearedWhenTheGuestLetsGo(t *testing.T) {
	m := stubborn(t)
	if err := diskhotplug.Force(t.Context(), &dying{m, 2}, m.look(), detachedNode); !errors.Is(err, errKilled) {
		t.Fatalf("it says %v", err)
	}
	m.must(m.Execute(t.Context(), "system_reset", nil, nil))
	m.clearAll()
}

func TestAMediumIsTakenFromItsDriveByForce(t *testing.T) {
	m := start(t)
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-cd"), m.file(1<<20), parts(nil)))
	m.must(diskhotplug.Force(t.Context(), m, m.is(diskhotplug.Plugged), detachedNode))
	m.must(diskhotplug.Clear(t.Context(), m, m.is(diskhotplug.Partial)))
	if d := m.look(); d.Stage != diskhotplug.Absent || m.hasOpen() {
		t.Errorf("QEMU still has %+v", d)
	}
}
