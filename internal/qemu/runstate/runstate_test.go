package runstate_test

import (
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/test/shipped"
)

func TestTheTableHasQEMUsRunStates(t *testing.T) {
	theirs := qmptest.Values(t, shipped.Program(t, "qemu-system-x86_64"), "query-status", "status")
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
	for _, s := range append(runstate.All(), runstate.Of(runstate.PausedToMigrate)) {
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
