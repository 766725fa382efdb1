package clusterconfig

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// object is a KubeVirt object of this age; its key is its CPU model.
func object(namespace, name string, made int64) v1.KubeVirt {
	kv := v1.KubeVirt{}
	kv.Namespace, kv.Name, kv.CreationTimestamp = namespace, name, metav1.NewTime(time.Unix(made, 0))
	kv.Spec.Configuration.CPUModel = namespace + "/" + name
	return kv
}

func TestTheOneObjectThatCounts(t *testing.T) {
	for name, test := range map[string]struct {
		all  []v1.KubeVirt
		want string
	}{
		"none":                            {nil, ""},
		"of another name and namespace":   {[]v1.KubeVirt{object("cnv", "hco", 9)}, "cnv/hco"},
		"the components' namespace first": {[]v1.KubeVirt{object("a", "a", 1), object("home", "z", 9)}, "home/z"},
		"then the oldest":                 {[]v1.KubeVirt{object("a", "a", 3), object("z", "z", 2)}, "z/z"},
		"then by namespace":               {[]v1.KubeVirt{object("b", "a", 1), object("a", "b", 1)}, "a/b"},
		"then by name":                    {[]v1.KubeVirt{object("home", "b", 1), object("home", "a", 1)}, "home/a"},
	} {
		reversed := slices.Clone(test.all)
		slices.Reverse(reversed)
		for _, all := range [][]v1.KubeVirt{test.all, reversed} {
			got := ""
			if one := TheOne(all, "home"); one != nil {
				got = one.Spec.Configuration.CPUModel
			}
			if got != test.want {
				t.Errorf("%s: %q counts, want %q", name, got, test.want)
			}
		}
	}
}

func TestSettingsFollowTheOneThatCounts(t *testing.T) {
	w := &Watched{Home: "home", Current: &Current{}}
	theirs, ours := object("theirs", "kubevirt", 1), object("home", "kubevirt", 2)
	changed := ours.DeepCopy()
	changed.Spec.Configuration.CPUModel = "changed"
	for i, step := range []struct {
		do   func(*v1.KubeVirt)
		with *v1.KubeVirt
		want string
	}{
		{w.Seen, &theirs, "theirs/kubevirt"},
		{w.Seen, &ours, "home/kubevirt"},
		{w.Seen, &theirs, "home/kubevirt"},
		{w.Seen, changed, "changed"},
		{w.Gone, changed, "theirs/kubevirt"},
		{w.Gone, changed, "theirs/kubevirt"},
		{w.Gone, &theirs, ""},
	} {
		if step.do(step.with); w.Current.Get().CPUModel != step.want {
			t.Errorf("after step %d the settings are those of %q, want %q", i, w.Current.Get().CPUModel, step.want)
		}
	}
}
