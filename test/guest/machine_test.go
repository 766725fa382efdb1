package guest_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/test/console"
	"drydock.dev/drydock/test/guest"
	"drydock.dev/drydock/test/shipped"
)

// buildCache is shared with `make images`, so that a test run after that has nothing to build.
const buildCache = "../../build/cache"

// patience bounds one wait on a busy machine, life all that a test does with one guest, or the making of its files.
const (
	patience = 4 * time.Minute
	life     = 20 * time.Minute
)

// machine is a guest in a plain QEMU, without any part of Drydock.
type machine struct {
	t       *testing.T
	ctx     context.Context
	console *console.Console
	monitor *qmp.Client
	events  chan string
	ended   chan error
}

// both joins QEMU's standard input and output, which are the guest's serial port.
type both struct {
	io.Reader
	io.Writer
}

func buildGuest(t *testing.T, flavor guest.Flavor) guest.Files {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), life)
	defer cancel()
	files, err := guest.Build(ctx, buildCache, flavor)
	if err != nil {
		t.Fatalf("building the guest: %v", err)
	}
	return files
}

func start(t *testing.T, args ...string) *machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), life)
	t.Cleanup(cancel)
	socket := filepath.Join(t.TempDir(), "qmp")
	cmd := exec.CommandContext(ctx, shipped.Program(t, "qemu-system-x86_64"), append([]string{
		"-machine", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-action", "panic=shutdown", "-qmp", "unix:" + socket + ",server=on,wait=off",
	}, args...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// QEMU's own complaints go to the test's output, not to the console.
	cmd.Stderr = os.Stderr
	// Wait must not close the pipe while the console still reads.
	output, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = writer
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	_ = writer.Close()
	m := &machine{t: t, ctx: ctx, events: make(chan string, 100), ended: make(chan error, 1)}
	go func() { m.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	m.console = console.New(both{output, input})
	m.connect(socket)
	return m
}

// connect waits for QEMU's monitor.
func (m *machine) connect(socket string) {
	m.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		monitor, err := qmp.Dial(m.ctx, socket, func(event qmp.Event) { qmptest.KeepLatest(m.events, event.Name) })
		if err == nil {
			m.monitor = monitor
			m.t.Cleanup(func() { _ = monitor.Close() })
			return
		}
		select {
		case <-tick.C:
		case err := <-m.ended:
			m.t.Fatalf("QEMU ended at once: %v", err)
		case <-m.ctx.Done():
			m.t.Fatalf("connecting to QEMU's monitor: %v", err)
		}
	}
}

func (m *machine) login() {
	m.t.Helper()
	if err := m.console.Login(m.ctx); err != nil {
		m.t.Fatalf("logging in: %v", err)
	}
}

// Devices and addresses appear a moment late. The command must have no effects.
func (m *machine) sees(command, want string) {
	m.t.Helper()
	var got string
	for {
		now, _, err := m.console.Run(m.ctx, command)
		if err != nil {
			m.t.Fatalf("%s printed %q and not %q: %v", command, got, want, err)
		}
		if got = now; got == want {
			return
		}
		select {
		case <-m.ctx.Done():
		case <-time.After(50 * time.Millisecond): // the guest does not announce new devices
		}
	}
}

// monitorRuns executes a command of QEMU's monitor.
func (m *machine) monitorRuns(command string, args any) {
	m.t.Helper()
	if err := m.monitor.Execute(m.ctx, command, args, nil); err != nil {
		m.t.Fatalf("executing %s: %v", command, err)
	}
}

func (m *machine) ends() {
	m.t.Helper()
	select {
	case err := <-m.ended:
		if err != nil {
			m.t.Errorf("QEMU ended with %v", err)
		}
	case <-time.After(patience):
		m.t.Errorf("QEMU still runs after %s; the console shows %q", patience, m.console.Transcript())
	}
}

// happened reports whether QEMU reported an event.
func (m *machine) happened(name string) bool {
	for {
		select {
		case event := <-m.events:
			if event == name {
				return true
			}
		default:
			return false
		}
	}
}
