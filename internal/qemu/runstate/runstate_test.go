package runstate_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
)

// schema is an entry of QEMU's description of its own protocol.
type schema struct {
	Name    string `json:"name"`
	RetType string `json:"ret-type"`
	Members []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"members"`
}

// qemusStates are the run states of the QEMU that is installed, in its own words:
// what query-status may answer.
func qemusStates(t *testing.T) []string {
	t.Helper()
	program, err := exec.LookPath(filepath.Base(layout.QEMUBinary))
	if err != nil {
		t.Skip("QEMU is not installed")
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-machine", "none", "-nodefaults", "-display", "none",
		"-chardev", "socket,id=m,fd=3", "-mon", "chardev=m,mode=control")
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := qmp.New(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // QEMU is killed anyway
	var all []schema
	if err := client.Execute(ctx, "query-qmp-schema", nil, &all); err != nil {
		t.Fatal(err)
	}
	byName := map[string]schema{}
	for _, entry := range all {
		byName[entry.Name] = entry
	}
	// Types have no names there, so the way leads through the command.
	var states []string
	for _, member := range byName[byName["query-status"].RetType].Members {
		if member.Name == "status" {
			for _, state := range byName[member.Type].Members {
				states = append(states, state.Name)
			}
		}
	}
	return states
}

func TestTheTableHasQEMUsRunStates(t *testing.T) {
	theirs := qemusStates(t)
	if len(theirs) < 10 {
		t.Fatalf("QEMU names only %q", theirs)
	}
	for _, name := range theirs {
		if runstate.Of(name).Outlook == runstate.Unknown {
			t.Errorf("the table lacks QEMU's run state %s", name)
		}
	}
	for _, state := range runstate.All() {
		if state.Until == "" && !slices.Contains(theirs, state.Name) {
			t.Errorf("the table has %s, which is none of QEMU's run states: %q", state.Name, theirs)
		}
	}
}

func TestTheTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range runstate.All() {
		switch {
		case seen[s.Name]:
			t.Errorf("%s is there twice", s.Name)
		case s.Ready() != (s.Outlook == runstate.Runs):
			t.Errorf("%s: Ready is %v, and the guest %s", s.Name, s.Ready(), s.Outlook)
		case !s.Ready() && s.Message == "":
			t.Errorf("%s has no message", s.Name)
		case s.Paused && s.Outlook != runstate.Waits:
			t.Errorf("%s shows the guest as paused, and it cannot be unpaused", s.Name)
		case (s.Action == runstate.End) != (s.Outlook == runstate.Over):
			t.Errorf("%s: virt-handler's action is %s, and the guest is %s", s.Name, s.Action, s.Outlook)
		case s.Action == runstate.Resume && s.Outlook != runstate.Waits:
			t.Errorf("%s: virt-handler resumes a guest that does not wait", s.Name)
		case s.Failure != "" && (s.Action != runstate.End || !s.Failure.Failed()):
			t.Errorf("%s: %q is no failure that ends a guest", s.Name, s.Failure)
		}
		seen[s.Name] = true
	}
	if got := runstate.Of("internal-error").Failure; got != launch.ReasonInternalError {
		t.Errorf("internal-error is reported as %q", got)
	}
}

func TestARunStateThatTheTableLacks(t *testing.T) {
	for _, name := range []string{"", "hibernating", "\x1b[2J\n" + strings.Repeat("x", 1<<20)} {
		s := runstate.Of(name)
		if s.Ready() || s.Action != runstate.Leave || s.Paused || s.Outlook != runstate.Unknown {
			t.Errorf("%.20q: %.200v", name, s)
		}
		if len(s.Message) > 500 || strings.ContainsAny(s.Message, "\x1b\n") {
			t.Errorf("%.20q: the message is %.500q", name, s.Message)
		}
	}
	if message := runstate.Of("hibernating").Message; !strings.Contains(message, `"hibernating"`) {
		t.Errorf("the message lacks the name: %s", message)
	}
}
