package runstate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/qemu/runstate"
)

func TestTheDocumentHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := document(); !strings.Contains(string(page), table) {
		t.Errorf("docs/lifecycle.md lacks the table of run states; it must have:\n%s", table)
	}
}

func document() string {
	var page strings.Builder
	page.WriteString("| run state | the guest | Ready | Paused | virt-handler |\n|---|---|---|---|---|\n")
	for _, s := range runstate.All() {
		name := s.Name
		if s.Until != "" {
			name += " (until QEMU " + s.Until + ")"
		}
		ready, paused := "True", "–"
		if !s.Ready() {
			ready = "False: " + s.Reason
		}
		if s.Paused {
			paused = "True"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s |\n", name, outlooks[s.Outlook], ready, paused, deed(s))
	}
	fmt.Fprintf(&page, "| any other | %s | False: %s | – | waits |\n", outlooks[runstate.Unknown], runstate.ReasonUnknown)
	return page.String()
}

var outlooks = map[runstate.Outlook]string{
	runstate.Runs: "runs", runstate.Waits: "is stopped and can continue", runstate.Passes: "is stopped; QEMU ends that",
	runstate.Moved: "continues elsewhere", runstate.Over: "cannot continue", runstate.Unknown: "is unknown",
}

// deed formats virt-handler's action.
func deed(s runstate.State) string {
	switch {
	case s.Action == runstate.Resume:
		return "has it continue, until it does"
	case s.Failure != "":
		return "ends it; the VMI is Failed, reason " + string(s.Failure)
	case s.Action == runstate.End:
		return "ends QEMU; the VMI is Succeeded, or Failed if the guest had failed"
	case s.Outlook == runstate.Runs:
		return "–"
	}
	return "waits"
}
