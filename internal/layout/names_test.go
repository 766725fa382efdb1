package layout

import (
	"strings"
	"testing"
)

func TestNamesFitWhereTheyGo(t *testing.T) {
	long := strings.Repeat("a", 60) + "-." + strings.Repeat("b", 191)
	for name, c := range map[string]struct {
		got, want string
		most      int
	}{
		"a short name is its own label":            {LabelValue("vm-1.example"), "vm-1.example", 63},
		"the longest that a label holds":           {LabelValue(long[:60] + "xyz"), long[:60] + "xyz", 63},
		"a longer one is cut":                      {LabelValue(strings.Repeat("a", 64)), strings.Repeat("a", 57) + "-" + Digest(strings.Repeat("a", 64)), 63},
		"no separator is left at the cut":          {LabelValue("a" + strings.Repeat("-", 60) + "bcdef"), "a-" + Digest("a"+strings.Repeat("-", 60)+"bcdef"), 63},
		"a pod's name":                             {PodName("virt-launcher-", "vm", "-abcde"), "virt-launcher-vm-abcde", 154},
		"a pod whose logs need a folder of a name": {PodName("virt-launcher-", long, "-abcde"), "virt-launcher-" + long[:134] + "-abcde", 154},
	} {
		if c.got != c.want || len(c.got) > c.most {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
	if LabelValue(long+"x") == LabelValue(long+"y") {
		t.Error("two names have one label")
	}
}
