package machine_test

import (
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/test/shipped"
)

// A VM with any of these types must start.
func TestQEMUHasTheMachineTypesThatAdmissionKnows(t *testing.T) {
	out, err := exec.Command(shipped.Program(t, "qemu-system-x86_64"), "-machine", "help").Output()
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
