package diskhotplug_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

const patience = 4 * time.Minute

// machine is a QEMU without a guest's system: its firmware runs, and nothing answers a PCI unplug request.
type machine struct {
	t *testing.T
	*qmp.Client
	dir    string
	pid    int
	events chan qmp.Event
}

func start(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "hotplug") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "qmp.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"),
		"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator.Of(t), "-m", "32", "-display", "none",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-device", "virtio-scsi-pci,id=scsi0", "-device", "pcie-root-port,id=port1,chassis=1",
		"-device", "ide-cd,id=disk-cd,bus=ide.0", "-qmp", "unix:"+socket+",server=on,wait=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	m := &machine{t: t, dir: dir, pid: cmd.Process.Pid, events: make(chan qmp.Event, 100)}
	t.Cleanup(func() {
		if m.Client != nil {
			_ = m.Close()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); m.Client == nil; <-tick {
		m.Client, err = qmp.Dial(t.Context(), socket, func(e qmp.Event) { qmptest.KeepLatest(m.events, e) })
		if err != nil && time.Now().After(deadline) {
			t.Fatalf("QEMU does not listen: %v", err)
		}
	}
	return m
}

// file makes a disk and opens it.
func (m *machine) file(size int64) *os.File {
	m.t.Helper()
	f, err := os.Create(filepath.Join(m.dir, "disk.img"))
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { f.Close() })
	return f
}

func tag(device string) diskhotplug.Tag {
	return diskhotplug.Tag{Volume: "a", Claim: "claim", Device: device, Drive: device == "disk-cd", Nodes: []string{"f-a", "n-a"}}
}

var scsi = diskhotplug.Properties{"driver": "scsi-hd", "bus": "scsi0.0", "channel": 0, "scsi-id": 0, "lun": 3}

func parts(device diskhotplug.Properties) func(string) (diskhotplug.Parts, error) {
	return func(path string) (diskhotplug.Parts, error) {
		p := diskhotplug.Parts{Blockdevs: []diskhotplug.Properties{
			{"driver": "file", "node-name": "f-a", "filename": path, "cache": diskhotplug.Properties{"direct": true}},
			{"driver": "raw", "node-name": "n-a", "file": "f-a"},
		}}
		if device != nil {
			p.Device = diskhotplug.Properties{"id": "disk-a", "drive": "n-a"}
			for key, value := range device {
				p.Device[key] = value
			}
		}
		return p, nil
	}
}

// look returns QEMU's state of volume a.
func (m *machine) look() diskhotplug.Disk {
	m.t.Helper()
	disks, err := diskhotplug.Observe(m.t.Context(), m)
	if err != nil {
		m.t.Fatal(err)
	}
	return disks["a"]
}

func (m *machine) await(event string) {
	m.t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case e := <-m.events:
			if e.Name == event {
				return
			}
		case <-timeout:
			m.t.Fatalf("QEMU did not tell of %s", event)
		}
	}
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) nothingLeft() {
	m.t.Helper()
	if d := m.look(); d.Stage != diskhotplug.Absent {
		m.t.Errorf("QEMU still has %+v", d)
	}
	for command, args := range map[string]any{
		"query-fdsets": nil, "query-named-block-nodes": map[string]any{"flat": true},
	} {
		var list []any
		m.must(m.Execute(m.t.Context(), command, args, &list))
		if len(list) > 0 {
			m.t.Errorf("%s: %v", command, list)
		}
	}
}

func TestADiskComesAndGoes(t *testing.T) {
	m := start(t)
	f := m.file(8 << 20)
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-a"), f, parts(scsi)))
	f.Close()
	d := m.look()
	if d.Stage != diskhotplug.Plugged || d.Claim != "claim" || d.Size != 8<<20 {
		t.Fatalf("after the plug QEMU has %+v", d)
	}
	m.must(os.Truncate(filepath.Join(m.dir, "disk.img"), 16<<20))
	m.must(diskhotplug.Resize(t.Context(), m, "n-a", 16<<20))
	if d = m.look(); d.Size != 16<<20 {
		t.Errorf("the disk has %d bytes after it grew", d.Size)
	}
	m.must(diskhotplug.Ask(t.Context(), m, d))
	m.await("DEVICE_DELETED")
	if d = m.look(); d.Stage != diskhotplug.Partial {
		t.Fatalf("after the unplug QEMU has %+v", d)
	}
	m.must(diskhotplug.Clear(t.Context(), m, d))
	m.nothingLeft()
}

// logged returns the requests that a node of QEMU's driver blklogwrites has logged: true for each flush, false for each
// write.
func (m *machine) logged(path string) (flushes []bool) {
	m.t.Helper()
	const flush, sector = 1, 512
	text, err := os.ReadFile(path)
	m.must(err)
	at := sector // behind the log's head
	for range binary.LittleEndian.Uint64(text[16:]) {
		flushes = append(flushes, binary.LittleEndian.Uint64(text[at+16:])&flush != 0)
		at += sector + int(binary.LittleEndian.Uint64(text[at+24:]))
	}
	return flushes
}

// A SCSI disk disappears before the guest knows, and the guest's last flush fails. QEMU must write all received
// data, and flush it before it releases the volume.
func TestWhatAGuestHasWrittenIsOnTheDiskThatIsTakenFromIt(t *testing.T) {
	m := start(t)
	f := m.file(1 << 20)
	log := filepath.Join(m.dir, "log")
	m.must(os.WriteFile(log, make([]byte, 1<<20), 0o600))
	watched := tag("disk-a")
	watched.Nodes = []string{"f-log", "f-a", "l-a", "n-a"}
	m.must(diskhotplug.Plug(t.Context(), m, watched, f, func(path string) (diskhotplug.Parts, error) {
		p, err := parts(scsi)(path)
		p.Blockdevs = []diskhotplug.Properties{
			{"driver": "file", "node-name": "f-log", "filename": log}, p.Blockdevs[0],
			{"driver": "blklogwrites", "node-name": "l-a", "file": "f-a", "log": "f-log"},
			{"driver": "raw", "node-name": "n-a", "file": "l-a"},
		}
		return p, err
	}))
	f.Close()
	var said string
	m.must(m.Execute(t.Context(), "human-monitor-command", map[string]any{"command-line": `qemu-io -d disk-a "write -P 65 0 4k"`}, &said))
	m.must(diskhotplug.Ask(t.Context(), m, m.look()))
	m.await("DEVICE_DELETED")
	m.must(diskhotplug.Clear(t.Context(), m, m.look()))
	m.nothingLeft()
	written, err := os.ReadFile(filepath.Join(m.dir, "disk.img"))
	if err != nil || !bytes.HasPrefix(written, bytes.Repeat([]byte("A"), 4096)) {
		t.Errorf("the disk begins with %q, %v; QEMU said %q", written[:min(16, len(written))], err, said)
	}
	if got := m.logged(log); len(got) < 2 || got[0] || !got[len(got)-1] {
		t.Errorf("of the requests to the disk these were flushes: %v; want one after the write", got)
	}
}

// dying is a monitor of a virt-handler that is killed after some commands.
type dying struct {
	*machine
	left int
}

var errKilled = errors.New("virt-handler was killed")

func (d *dying) Execute(ctx context.Context, command string, args, result any) error {
	if d.left--; d.left < 0 {
		return errKilled
	}
	return d.machine.Execute(ctx, command, args, result)
}

func (d *dying) ExecuteWithFile(ctx context.Context, command string, args any, f *os.File, result any) error {
	if d.left--; d.left < 0 {
		return errKilled
	}
	return d.machine.ExecuteWithFile(ctx, command, args, f, result)
}

func TestWhoeverComesNextClearsAPlugThatWasCutShort(t *testing.T) {
	m := start(t)
	f := m.file(1 << 20)
	const commands = 4 // add-fd, two nodes, the device
	for done := range commands {
		err := diskhotplug.Plug(t.Context(), &dying{m, done}, tag("disk-a"), f, parts(scsi))
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed after %d commands, the plug says %v", done, err)
		}
		d := m.look()
		if want := done > 0; (d.Stage == diskhotplug.Partial) != want {
			t.Fatalf("killed after %d commands, QEMU has %+v", done, d)
		}
		m.must(diskhotplug.Clear(t.Context(), m, d))
		m.nothingLeft()
	}
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-a"), f, parts(scsi)))
}

func TestAStepThatFailsUndoesThoseBefore(t *testing.T) {
	m := start(t)
	f := m.file(1 << 20)
	for name, device := range map[string]diskhotplug.Properties{
		"no such bus":    {"driver": "scsi-hd", "bus": "scsi9.0"},
		"no such driver": {"driver": "none"},
		// Part of a LUN's behavior without a SCSI device.
		"a LUN on what is no SCSI device": {"driver": "scsi-block", "bus": "scsi0.0", "channel": 0, "scsi-id": 0, "lun": 3},
	} {
		var refusal *qmp.Error
		if err := diskhotplug.Plug(t.Context(), m, tag("disk-a"), f, parts(device)); !errors.As(err, &refusal) {
			t.Errorf("%s: the plug says %v", name, err)
		}
		m.nothingLeft()
	}
}

// Without a guest's system nothing answers, as in a guest without PCI hotplug.
func TestAGuestThatDoesNotAnswerKeepsItsDisk(t *testing.T) {
	m := start(t)
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-a"), m.file(1<<20), parts(diskhotplug.Properties{
		"driver": "virtio-blk-pci", "bus": "port1", "addr": "0x0",
	})))
	for range 2 {
		d := m.look()
		if d.Stage != diskhotplug.Plugged {
			t.Fatalf("QEMU has %+v", d)
		}
		m.must(diskhotplug.Ask(t.Context(), m, d))
	}
}

func TestAMediumIsPutIntoADriveAndTakenOut(t *testing.T) {
	m := start(t)
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-cd"), m.file(1<<20), parts(nil)))
	d := m.look()
	if d.Stage != diskhotplug.Plugged || d.TrayOpen {
		t.Fatalf("QEMU has %+v", d)
	}
	m.must(diskhotplug.Ask(t.Context(), m, d))
	d = m.look()
	if d.Stage != diskhotplug.Partial || d.TrayOpen {
		t.Fatalf("after it was taken out QEMU has %+v", d)
	}
	m.must(diskhotplug.Clear(t.Context(), m, d))
	if d := m.look(); d.Stage != diskhotplug.Absent {
		t.Errorf("QEMU still has %+v", d)
	}
}

// QEMU 7.2 removes no descriptor while its guest is paused.
func TestAPausedGuestsDescriptorGoesWhenItRunsOn(t *testing.T) {
	m := start(t)
	m.must(diskhotplug.Plug(t.Context(), m, tag("disk-a"), m.file(1<<20), parts(scsi)))
	m.must(m.Execute(t.Context(), "stop", nil, nil))
	m.must(diskhotplug.Ask(t.Context(), m, m.look()))
	m.await("DEVICE_DELETED")
	m.must(diskhotplug.Clear(t.Context(), m, m.look()))
	m.must(m.Execute(t.Context(), "cont", nil, nil))
	if d := m.look(); d.Stage == diskhotplug.Partial {
		m.must(diskhotplug.Clear(t.Context(), m, d))
	}
	m.nothingLeft()
}
