package migrationproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

type properties = map[string]any

// machine is a QEMU without a guest.
type machine struct {
	t       *testing.T
	monitor *qmp.Client
	// outOfBand is a monitor as virt-launcher's: QEMU may wait for memory and answer nothing on the other.
	outOfBand *qmp.Client
	process   *exec.Cmd

	mu   sync.Mutex
	said []string // statuses of its migration
}

func (m *machine) hear(e qmp.Event) {
	var d struct {
		Status string `json:"status"`
	}
	if e.Name != "MIGRATION" || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	m.mu.Lock()
	m.said = append(m.said, d.Status)
	m.mu.Unlock()
}

// reports waits for an event.
func (m *machine) reports(status string) {
	m.t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); ; <-tick {
		m.mu.Lock()
		said := slices.Clone(m.said)
		m.mu.Unlock()
		if slices.Contains(said, status) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("QEMU reports %q, and not %q", said, status)
		}
	}
}

// The firmware uses little of it.
const memory = 64

func boot(t *testing.T, dir string, more ...string) *machine {
	t.Helper()
	socket := filepath.Join(dir, layout.QMPSocket)
	ours, theirs, err := qmp.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	more = append(more, "-chardev", "socket,id=launcher0,fd=3", "-mon", "chardev=launcher0,mode=control")
	m := &machine{t: t, process: exec.Command(shipped.Program(t, "qemu-system-x86_64"), append([]string{"-nodefaults", "-no-user-config", "-machine", "q35",
		"-accel", accelerator.Of(t), "-m", strconv.Itoa(memory), "-display", "none", "-qmp", "unix:" + socket + ",server=on,wait=off"}, more...)...)}
	m.process.Stderr, m.process.ExtraFiles = os.Stderr, []*os.File{theirs}
	err = m.process.Start()
	_ = theirs.Close()
	if err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	t.Cleanup(func() {
		_ = m.process.Process.Kill()
		_ = m.process.Wait()
	})
	if m.outOfBand, err = qmp.NewOutOfBand(t.Context(), ours, m.hear); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.outOfBand.Close() })
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); ; <-tick {
		monitor, err := qmp.Dial(t.Context(), socket, func(qmp.Event) {})
		if err == nil {
			m.monitor = monitor
			t.Cleanup(func() { _ = monitor.Close() })
			return m
		}
		if time.Now().After(deadline) {
			t.Fatalf("QEMU does not answer: %v", err)
		}
	}
}

func (m *machine) do(command string, arguments any) {
	m.t.Helper()
	if err := m.monitor.Execute(m.t.Context(), command, arguments, nil); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) prepare(streams int) {
	m.t.Helper()
	var list []any
	for name, on := range map[string]bool{"return-path": true, "multifd": streams > 0, "events": true, "pause-before-switchover": false} {
		list = append(list, properties{"capability": name, "state": on})
	}
	m.do("migrate-set-capabilities", properties{"capabilities": list})
	if streams > 0 {
		m.do("migrate-set-parameters", properties{"multifd-channels": streams})
	}
	m.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 40})
}

func (m *machine) await(statuses ...string) {
	m.t.Helper()
	var now struct {
		Status string `json:"status"`
		Error  string `json:"error-desc"`
	}
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); ; <-tick {
		if err := m.monitor.Execute(m.t.Context(), "query-migrate", nil, &now); err != nil {
			m.t.Fatal(err)
		}
		for _, s := range statuses {
			if now.Status == s {
				return
			}
		}
		if time.Now().After(deadline) || now.Status == "failed" {
			m.t.Fatalf("the migration is %q (%s), want one of %q", now.Status, now.Error, statuses)
		}
	}
}

// QEMU sets the run state a moment after the migration's status.
func (m *machine) awaitRunState(want string) {
	m.t.Helper()
	m.awaitStatus("query-status", want)
}

// Two real QEMUs migrate through two virt-handlers, with one stream and with several.
func TestQEMUMigratesThroughTheVirtHandlers(t *testing.T) {
	for _, streams := range []int{0, 4, 16} {
		t.Run(fmt.Sprintf("multifd with %d streams", streams), func(t *testing.T) {
			p := meet(t)
			p.expect(&Facts{}, newEar())
			source := boot(t, dirOf(p.sourceDir))
			target := boot(t, dirOf(p.targetDir), "-S", "-incoming", "defer")
			source.prepare(streams)
			target.prepare(streams)
			target.do("migrate-incoming", properties{"uri": "unix:" + socket(p.targetDir)})
			f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
			stop := p.forward(f)
			source.do("migrate", properties{"uri": "unix:" + socket(p.sourceDir)})
			source.await("completed")
			target.await("completed")
			source.awaitRunState("postmigrate")
			target.awaitRunState("paused")
			stop()
			if f.failure != nil {
				t.Errorf("a stream failed: %v", f.failure)
			}
			t.Logf("%d KiB there, %d bytes on the return path", f.Sent()>>10, f.Received())
			if f.Sent() < 100<<10 || f.Received() == 0 {
				t.Errorf("%d bytes there, %d back", f.Sent(), f.Received())
			}
		})
	}
}

// When the target's virt-handler ends in the middle, both QEMUs must notice, and the source must run on.
func TestQEMURunsOnWhenTheTargetsVirtHandlerEnds(t *testing.T) {
	p := meet(t)
	p.expect(&Facts{}, newEar())
	source := boot(t, dirOf(p.sourceDir))
	target := boot(t, dirOf(p.targetDir), "-S", "-incoming", "defer")
	source.prepare(0)
	target.prepare(0)
	target.do("migrate-incoming", properties{"uri": "unix:" + socket(p.targetDir)})
	// Slow enough to be in the middle when the stream ends.
	source.do("migrate-set-parameters", properties{"max-bandwidth": 4 << 10})
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	p.forward(f)
	source.do("migrate", properties{"uri": "unix:" + socket(p.sourceDir)})
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); f.Sent() == 0; <-tick {
		if time.Now().After(deadline) {
			t.Fatal("nothing is sent")
		}
	}
	p.stop()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = target.process.Wait() // it fails
	}()
	select {
	case <-exited:
	case <-time.After(patience):
		t.Error("the target's QEMU still waits")
	}
	var now struct {
		Status string `json:"status"`
	}
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); now.Status != "failed"; <-tick {
		if err := source.monitor.Execute(context.Background(), "query-migrate", nil, &now); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the source's migration is %s", now.Status)
		}
	}
	source.awaitRunState("running")
	if err := f.Failure(); err == nil {
		t.Error("no reason is known")
	} else {
		t.Logf("the reason is: %v", err)
	}
}

// statusIs waits for a status that a migration may leave again, other than failure.
func (m *machine) statusIs(want string) {
	m.t.Helper()
	m.awaitStatus("query-migrate", want)
}

func (m *machine) awaitStatus(query string, wanted ...string) {
	m.t.Helper()
	var now struct {
		Status string `json:"status"`
	}
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); !slices.Contains(wanted, now.Status); <-tick {
		if err := m.monitor.Execute(m.t.Context(), query, nil, &now); err != nil {
			m.t.Fatal(err)
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s says %q, want %q", query, now.Status, wanted)
		}
	}
}

// A guest whose post-copy can't arrive must come back, whatever has become of the target.
func TestQEMUTakesBackAPostCopyThatIsWithdrawn(t *testing.T) {
	for name, happens := range map[string]func(*pair, *machine){
		"it is unwanted":                 func(*pair, *machine) {},
		"the target's QEMU ends":         func(_ *pair, target *machine) { _ = target.process.Process.Kill() },
		"the target's virt-handler ends": func(p *pair, _ *machine) { p.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			p := meet(t)
			p.expect(&Facts{}, newEar())
			source, target := boot(t, dirOf(p.sourceDir)), boot(t, dirOf(p.targetDir), "-S", "-incoming", "defer")
			f := source.postCopy(p, target)
			happens(p, target)
			if name != "it is unwanted" {
				for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); !f.Lost(); <-tick {
					if time.Now().After(deadline) {
						t.Fatal("nobody notices that the stream has ended")
					}
				}
			}
			if done, err := f.Reject(); done || err != nil {
				t.Fatalf("a stream that has not ended is answered: %v", err)
			}
			f.Discard()
			source.do("migrate-set-parameters", properties{"max-postcopy-bandwidth": 1 << 40})
			for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); ; <-tick {
				done, err := f.Reject()
				if err != nil || time.Now().After(deadline) {
					t.Fatalf("QEMU does not come to the end: %v", err)
				}
				if done {
					break
				}
			}
			source.statusIs("failed")
			source.awaitStatus("query-status", "postmigrate", "paused") // of QEMU 7.2 and 10
			source.do("cont", nil)
			source.awaitRunState("running")
		})
	}
}

// postCopy sends the guest, which is stopped, before its memory, which follows slowly.
func (m *machine) postCopy(p *pair, target *machine) *Forward {
	m.t.Helper()
	on := properties{"capabilities": []properties{{"capability": "postcopy-ram", "state": true}}}
	if err := target.monitor.Execute(m.t.Context(), "migrate-set-capabilities", on, nil); err != nil {
		m.t.Skipf("no post-copy here: %v", err)
	}
	m.prepare(0)
	target.prepare(0)
	m.do("migrate-set-capabilities", on)
	target.do("migrate-incoming", properties{"uri": "unix:" + socket(p.targetDir)})
	m.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 18, "max-postcopy-bandwidth": 1 << 17})
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	p.forward(f)
	m.do("migrate", properties{"uri": "unix:" + socket(p.sourceDir)})
	m.statusIs("active")
	f.Shield()
	m.do("stop", nil)
	m.do("migrate-start-postcopy", nil)
	m.statusIs("postcopy-active")
	target.statusIs("postcopy-active")
	return f
}

// A post-copy whose streams have ended must continue by others, through the same sockets.
func TestQEMUsPostCopyGoesOnThroughTheVirtHandlers(t *testing.T) {
	p := meet(t)
	forget := p.expect(&Facts{}, newEar())
	source, target := boot(t, dirOf(p.sourceDir)), boot(t, dirOf(p.targetDir), "-S", "-incoming", "defer")
	on := properties{"capabilities": []properties{{"capability": "postcopy-ram", "state": true}}}
	if err := target.monitor.Execute(t.Context(), "migrate-set-capabilities", on, nil); err != nil {
		t.Skipf("no post-copy here: %v", err)
	}
	source.prepare(0)
	target.prepare(0)
	source.do("migrate-set-capabilities", on)
	there := properties{"uri": "unix:" + socket(p.targetDir)}
	target.do("migrate-incoming", there)
	slow := properties{"max-bandwidth": 1 << 18, "max-postcopy-bandwidth": 1 << 17}
	source.do("migrate-set-parameters", slow)
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours}
	p.forward(f)
	here := properties{"uri": "unix:" + socket(p.sourceDir)}
	source.do("migrate", here)
	source.statusIs("active")
	source.do("migrate-start-postcopy", nil)
	source.statusIs("postcopy-active")
	target.statusIs("postcopy-active")
	target.do("cont", nil)
	sent := f.Sent()
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); f.Sent() < sent+32<<10; <-tick {
		if time.Now().After(deadline) {
			t.Fatal("no memory follows the guest")
		}
	}
	forget() // the target's virt-handler ends
	source.statusIs("postcopy-paused")
	target.reports("postcopy-paused")
	p.expect(&Facts{}, newEar())
	if err := target.outOfBand.ExecuteOutOfBand(t.Context(), "migrate-recover", there, nil); err != nil {
		t.Fatal(err)
	}
	source.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 40, "max-postcopy-bandwidth": 1 << 40})
	source.do("migrate", properties{"uri": here["uri"], "resume": true})
	source.statusIs("completed")
	target.statusIs("completed")
	source.awaitRunState("postmigrate")
	target.awaitRunState("running")
}
