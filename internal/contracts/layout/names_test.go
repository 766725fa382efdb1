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

// TestNamesStay holds the names to those that objects of clusters in use have: another
// name for the same owner would be another object beside the first.
func TestNamesStay(t *testing.T) {
	long := strings.Repeat("a", 100)
	importer := "importer-" + strings.Repeat("b", 44) + "-" + long
	for name, c := range map[string]struct{ got, want string }{
		"a name that fits":                 {HostName("cdi-upload-disk", "disk"), "cdi-upload-disk"},
		"a host's name has no dots":        {HostName("cdi-upload-my.disk", "my.disk"), "cdi-upload-my-disk-1493840d"},
		"a long name is cut":               {HostName("cdi-upload-"+long, long), "cdi-upload-" + strings.Repeat("a", 43) + "-28165978"},
		"no separator is left at the cut":  {HostName(importer, importer), "importer-" + strings.Repeat("b", 44) + "-e0777684"},
		"the text tells names apart":       {HostName("importer-my.disk", "importer-my.disk"), "importer-my-disk-1e008da5"},
		"one of many":                      {ReplicaName("set", "u-1/3"), "set-izya6"},
		"one of many of a long name":       {ReplicaName(strings.Repeat("s", 56)+"-.x", "u-1/3"), strings.Repeat("s", 56) + "-izya6"},
		"what tells an owner from another": {LongDigest("6b5f0b7e"), "lbb25jnifs"},
		"the same in hexadecimal digits":   {HexDigest("6b5f0b7e", 10), "5843aea5a8"},
		"the short digest begins the same": {Digest("6b5f0b7e"), "lbb25"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}
