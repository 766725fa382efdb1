package machine_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
)

// A VM with any of these types must start.
func TestQEMUHasTheMachineTypesThatAdmissionKnows(t *testing.T) {
	out, err := exec.Command(filepath.Base(layout.QEMUBinary), "-machine", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)^(q35|pc-q35-\S+)`).FindAllString(string(out), -1)
	want := machinetype.Versions()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
