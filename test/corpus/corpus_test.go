package corpus

import (
	"strings"
	"testing"
)

func TestEachShapeIsThereOnce(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	shapes, booted := map[string]string{}, 0
	for _, m := range all {
		if other, twice := shapes[m.Shape]; twice {
			t.Errorf("%s and %s have the same shape: %s", other, m.Name, m.Shape)
		}
		shapes[m.Shape] = m.Name
		if len(m.Guest) > 0 {
			booted++
		}
	}
	if len(all) < 60 || booted < 20 {
		t.Errorf("there are %d manifests and guests for %d of them, want at least 60 and 20", len(all), booted)
	}
}

func TestHeadsThatSayTooLittleAreRefused(t *testing.T) {
	for head, want := range map[string]string{
		"kind: Pod":                                                   "no Shape",
		"# Shape: s\nkind: Pod":                                       "Verdict",
		"# Shape: s\n# Verdict: perhaps":                              `"perhaps"`,
		"# Shape: s\n# Verdict: refused":                              "refused with 0 lines",
		"# Shape: s\n# Verdict: accepted\n# Says: no":                 "accepted with 1 lines",
		"# Shape: s\n# Verdict: accepted\n# Beware: dog":              "Beware",
		"# Shape: s\n# Verdict: refused\n# Says: no\n# Guest: cpus 2": "no guest",
		"# Shape: s\n# Verdict: accepted\n# Drivers: hardware":        "needs no Drivers",
		"# Shape: s\n# Verdict: accepted\n# Drivers: all":             `"all"`,
	} {
		if _, err := parse([]byte(head)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", head, err, want)
		}
	}
}

func TestAHeadIsReadUpToTheFirstObject(t *testing.T) {
	m, err := parse([]byte("# Shape: a shape: with a colon\n# Verdict: warned\n# Says: spec.a: b\n# Guest: cpus 2\nkind: Pod\n# Shape: another\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Shape != "a shape: with a colon" || m.Verdict != Warned || m.Says[0] != "spec.a: b" || m.Guest[0] != (Fact{"cpus", "2"}) {
		t.Errorf("read %+v", m)
	}
}
