package deploy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAcceleratorsAreKnownWhenEveryNodeSaysWhatWasAskedFor(t *testing.T) {
	node := func(name, kvm string) unstructured.Unstructured {
		n := unstructured.Unstructured{Object: map[string]any{}}
		n.SetName(name)
		if kvm != "" {
			n.SetLabels(map[string]string{labelKVM: kvm})
		}
		return n
	}
	for name, c := range map[string]struct {
		asked string
		nodes []unstructured.Unstructured
		want  bool
	}{
		"no node yet":                             {"", nil, false},
		"a node that says nothing":                {"", []unstructured.Unstructured{node("a", "usable"), node("b", "")}, false},
		"all say something, nothing is asked for": {"", []unstructured.Unstructured{node("a", "usable"), node("b", "broken")}, true},
		"KVM is asked for and broken":             {"kvm", []unstructured.Unstructured{node("a", "broken")}, false},
		"KVM is asked for and there":              {"kvm", []unstructured.Unstructured{node("a", "usable")}, true},
		"the label is from before":                {"tcg", []unstructured.Unstructured{node("a", "off"), node("b", "usable")}, false},
	} {
		a, err := ParseAccelerator(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		if got, text := accelerators(c.nodes, a); got != c.want {
			t.Errorf("%s: known is %v (%s)", name, got, text)
		}
	}
	if _, err := ParseAccelerator("xen"); err == nil || !strings.Contains(err.Error(), "must be kvm, tcg or empty") {
		t.Errorf("xen is taken for an accelerator: %v", err)
	}
}
