package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func volumeIn(key string, values ...string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	if key != "" {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
		}}}}
	}
	return pv
}

func nodeWith(name, zone string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name, "zone": zone}}}
}

func TestHomes(t *testing.T) {
	nodes := []corev1.Node{nodeWith("n1", "east"), nodeWith("n2", "east"), nodeWith("n3", "west"), nodeWith("n4", "east"), nodeWith("n5", "east")}
	for name, c := range map[string]struct {
		volumes map[string]*corev1.PersistentVolume
		oneHome bool
		want    string // empty if they have a node in common
	}{
		"none is bound":                                       {nil, true, ""},
		"both on one node":                                    {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n1"), "b": volumeIn("host", "n1")}, true, ""},
		"one on a node, one anywhere":                         {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n1"), "b": volumeIn("")}, true, ""},
		"one on a node, one in its zone":                      {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n1"), "b": volumeIn("zone", "east")}, false, ""},
		"on two nodes":                                        {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n1"), "b": volumeIn("host", "n2")}, false, "no node has all of the VM's disks: claim a is on node n1, claim b is on node n2"},
		"one on a node, one in a zone away":                   {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n3"), "b": volumeIn("zone", "east")}, false, "no node has all of the VM's disks: claim a is on node n3, claim b is on nodes n1, n2, n4 and 1 more"},
		"the first is not bound, the others are on two nodes": {map[string]*corev1.PersistentVolume{"b": volumeIn("host", "n1"), "c": volumeIn("host", "n2")}, false, "no node has all of the VM's disks: claim b is on node n1, claim c is on node n2"},
		"one on a node, one on three others":                  {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n3"), "b": volumeIn("host", "n1", "n2", "n4")}, false, "no node has all of the VM's disks: claim a is on node n3, claim b is on nodes n1, n2, n4"},
		"one on a node that is gone":                          {map[string]*corev1.PersistentVolume{"a": volumeIn("host", "n9"), "b": volumeIn("host", "n2")}, false, "no node has all of the VM's disks: claim a is on a node that does not exist any more, claim b is on node n2"},
	} {
		if got := SameTopology(c.volumes); got != c.oneHome {
			t.Errorf("%s: one home is %v", name, got)
		}
		topologies := Topologies([]Claim{{Name: "a"}, {Name: "b"}, {Name: "c"}}, c.volumes, nodes)
		switch {
		case shareNode(topologies) != (c.want == ""):
			t.Errorf("%s: they meet is %v: %+v", name, shareNode(topologies), topologies)
		case c.want != "" && describeApart(topologies) != c.want:
			t.Errorf("%s: %q, want %q", name, describeApart(topologies), c.want)
		}
	}
}
