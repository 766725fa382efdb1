package migrationproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
)

const diskSize = 8 << 20

func diskOf(t *testing.T, dir string, content []byte) (file string, args []string) {
	t.Helper()
	file = filepath.Join(dir, "disk.img")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, []string{"-blockdev", "driver=file,node-name=f-root,filename=" + file, "-blockdev", "driver=raw,node-name=n-root,file=f-root",
		"-device", "virtio-blk-pci,id=disk-root,drive=n-root"}
}

func (m *machine) writes(what string) {
	m.t.Helper()
	m.do("human-monitor-command", properties{"command-line": "qemu-io -d /machine/peripheral/disk-root/virtio-backend \"write " + what + "\""})
}

func (m *machine) job(status string) string {
	m.t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); ; <-tick {
		var jobs []struct{ Status, Error string }
		if err := m.monitor.Execute(m.t.Context(), "query-jobs", nil, &jobs); err != nil {
			m.t.Fatal(err)
		}
		if len(jobs) == 1 && jobs[0].Status == status {
			return jobs[0].Error
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the jobs are %+v, want one that is %s", jobs, status)
		}
	}
}

func copying(t *testing.T) (source, target *machine, here, there string, stop func()) {
	t.Helper()
	p := meet(t)
	p.expectations.Expect(Expected{
		MigrationUID: header.MigrationUID, VMIUID: header.VMIUID, Namespace: header.Namespace, Name: header.Name, SourceNode: "node1",
		Target: Target{Facts: &Facts{}, DialDisks: func(ctx context.Context) (*net.UnixConn, error) { return p.targetDir.Dial(ctx, layout.DisksSocket) }},
	})
	content := make([]byte, diskSize)
	_, _ = rand.Read(content)
	here, args := diskOf(t, t.TempDir(), content)
	source = boot(t, dirOf(p.sourceDir), append(args, "-S")...)
	there, args = diskOf(t, t.TempDir(), make([]byte, diskSize))
	target = boot(t, dirOf(p.targetDir), append(args, "-S", "-incoming", "defer")...)
	target.do("nbd-server-start", properties{"addr": properties{"type": "unix", "data": properties{"path": filepath.Join(dirOf(p.targetDir), layout.DisksSocket)}}})
	target.do("block-export-add", properties{"type": "nbd", "id": "mirror-root", "name": "mirror-root", "node-name": "n-root", "writable": true})
	stop = p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Disks, Admit: ours})
	source.do("blockdev-add", properties{"driver": "nbd", "node-name": "m-root", "export": "mirror-root", "server": properties{"type": "unix", "path": socket(p.sourceDir)}})
	source.do("blockdev-mirror", properties{"job-id": "mirror-root", "device": "n-root", "target": "m-root", "sync": "full", "copy-mode": "background",
		"on-source-error": "report", "on-target-error": "report", "auto-dismiss": false})
	source.job("ready")
	return source, target, here, there, stop
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestQEMUCopiesADiskThroughTheVirtHandlers(t *testing.T) {
	source, target, here, there, _ := copying(t)
	source.writes("-P 65 1M 64k")
	source.do("block-job-cancel", properties{"device": "mirror-root", "force": false})
	if failure := source.job("concluded"); failure != "" {
		t.Errorf("the copy has failed: %s", failure)
	}
	source.do("blockdev-del", properties{"node-name": "m-root"})
	target.do("nbd-server-stop", nil)
	a, b := read(t, here), read(t, there)
	if !bytes.Equal(a, b) {
		t.Error("the disks differ")
	}
	if written := bytes.Repeat([]byte{65}, 64<<10); !bytes.Equal(b[1<<20:1<<20+len(written)], written) {
		t.Error("what was written last has not come")
	}
}

// The guest must not notice: its write must succeed, and be on its disk.
func TestACopysEndLeavesTheDiskAsItIs(t *testing.T) {
	source, _, here, _, stop := copying(t)
	stop()
	source.writes("-P 66 2M 64k")
	if failure := source.job("concluded"); failure == "" {
		t.Error("a copy whose way has ended is finished without an error")
	}
	source.do("blockdev-del", properties{"node-name": "m-root"})
	source.writes("-P 67 3M 64k")
	for offset, value := range map[int]byte{2 << 20: 66, 3 << 20: 67} {
		if got := read(t, here)[offset : offset+64<<10]; !bytes.Equal(got, bytes.Repeat([]byte{value}, 64<<10)) {
			t.Errorf("what was written at %d is not on the disk", offset)
		}
	}
}
