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

// A VMI's volumes may have names as long as a pod's. Each must have its own volume in the pod.
func TestAPodHasAVolumeForEachOfAVMIs(t *testing.T) {
	var volumes []string
	for n := 1; n <= 63; n++ {
		volumes = append(volumes, strings.Repeat("a", n), strings.Repeat("a", n-1)+"b")
	}
	volumes = append(volumes, strings.Repeat("a", 44)+strings.Repeat("-", 18)+"b")
	seen := map[string]string{}
	for round := range 2 {
		for _, volume := range volumes {
			for kind, name := range map[string]string{
				"": PodVolume(volume), "user data of ": UserDataVolume(volume), "network data of ": NetworkDataVolume(volume),
			} {
				what := kind + volume
				if len(name) > 63 || strings.Contains(name, "--") {
					t.Errorf("%s: the pod's volume is %s, which is too long or ill cut", what, name)
				}
				if other, taken := seen[name]; taken && other != what {
					t.Errorf("%s: the pod's volume %s is that of %s, too", what, name, other)
				}
				seen[name] = what
			}
		}
		if round == 0 {
			// Volumes with the names of the pod's volumes must get others.
			for _, name := range []string{PodVolume(volumes[125]), UserDataVolume(volumes[125]), NetworkDataVolume(volumes[125])} {
				volumes = append(volumes, name, strings.TrimPrefix(name, "long-"), strings.TrimPrefix(name, "long-vol-"))
			}
		}
	}
	if PodVolume(strings.Repeat("a", 59)) != "vol-"+strings.Repeat("a", 59) {
		t.Error("a name that fits is changed")
	}
}

// Objects of existing clusters have these names: another name would make a second object.
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
