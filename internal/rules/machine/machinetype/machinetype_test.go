package machinetype

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTypesOfOtherBuildsStandForQEMUsOwn(t *testing.T) {
	m, err := Parse("pc-q35-rhel7*=pc-q35-2.12, pc-q35-rhel8.?.0 = pc-q35-5.2\npc-q35-rhel*=q35\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"q35":                "q35",
		"pc-q35-7.2":         "pc-q35-7.2",
		"pc-q35-4.0.1":       "pc-q35-4.0.1",
		"pc-q35-rhel7.6.0":   "pc-q35-2.12",
		"pc-q35-rhel8.2.0":   "pc-q35-5.2",
		"pc-q35-rhel8.10.0":  "q35",
		"pc-q35-rhel9.4.0":   "q35",
		"pc-q35-noble":       "pc-q35-7.2",
		"pc-q35-9.2":         "pc-q35-9.2",
		"pc-q35-11.0":        "pc-q35-7.2",
		"pc-q35-noble-v2+a_": "pc-q35-7.2",
	} {
		if got, err := m.Resolve(name); err != nil || got != want {
			t.Errorf("%s runs as %s (%v), want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"", "pc", "pc-i440fx-7.2", "microvm", "pc-q35-", "pc-q35-7.2,smm=off", "pc-q35-a b", "pc-q35-é",
		"pc-q35-" + strings.Repeat("a", 60)} {
		if got, err := m.Resolve(name); err == nil {
			t.Errorf("%q runs as %s, want it refused", name, got)
		}
	}
}

func TestWhatAMapMustBe(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		" , \n":                      "",
		"pc-q35-rhel9*":              `"pc-q35-rhel9*" must be like pc-q35-rhel8*=pc-q35-5.2`,
		"=q35":                       `"=q35" must be like pc-q35-rhel8*=pc-q35-5.2`,
		"pc-q35-[=q35":               `"pc-q35-[=q35" must be like pc-q35-rhel8*=pc-q35-5.2`,
		"pc-q35-noble=pc-q35-11.0":   `QEMU has no machine type "pc-q35-11.0"; it has `,
		strings.Repeat("a=q35,", 64): "",
		strings.Repeat("a=q35,", 65): "there are 65 entries, and 64 are allowed",
	} {
		_, err := Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestPatternsOfWhatIsAllowed(t *testing.T) {
	for _, test := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, "pc-q35-7.2", true},
		{[]string{"q35*", "pc-q35*"}, "pc-q35-rhel9.4.0", true},
		{[]string{"pc-q35-rhel9*"}, "pc-q35-7.2", false},
		{[]string{"["}, "q35", false},
	} {
		if got := Allowed(test.patterns, test.name); got != test.want {
			t.Errorf("%q in %q: %v, want %v", test.name, test.patterns, got, test.want)
		}
	}
}

// The release before has QEMU 7.2.
func TestOldTypesAreInEveryRelease(t *testing.T) {
	for name, want := range map[string]bool{"q35": false, "pc-q35-7.2": true, "pc-q35-2.4": true, "pc-q35-8.0": false, Default: false} {
		if got := InEveryRelease(name); got != want {
			t.Errorf("%s is in every release: %v, want %v", name, got, want)
		}
	}
}

func TestVersionsAreNamedInOrder(t *testing.T) {
	all := Versions()
	if diff := cmp.Diff([]string{"q35", "pc-q35-10.0", "pc-q35-9.2"}, all[:3]); diff != "" {
		t.Error(diff)
	}
	if !Known(Default) {
		t.Errorf("QEMU does not have the default, %s", Default)
	}
}
