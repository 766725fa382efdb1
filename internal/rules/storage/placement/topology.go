package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Topology is the set of nodes that can use a bound claim.
type Topology struct {
	Claim string
	// Anywhere means all nodes; otherwise Nodes lists them.
	Anywhere bool
	Nodes    []string
}

// Topologies returns those of the claims that have a PV in volumes. Only PVs with a node affinity need nodes.
func Topologies(claims []Claim, volumes map[string]*corev1.PersistentVolume, nodes []corev1.Node) []Topology {
	var out []Topology
	for i := range claims {
		pv := volumes[claims[i].Name]
		if pv == nil {
			continue
		}
		topology := Topology{Claim: claims[i].Name}
		if required := affinity(pv); required == nil {
			topology.Anywhere = true
		} else {
			topology.Nodes = matching(required, nodes)
		}
		out = append(out, topology)
	}
	return out
}

// SameTopology reports whether all PVs with a node affinity have the same one: the usual case, which needs no nodes.
func SameTopology(volumes map[string]*corev1.PersistentVolume) bool {
	var first *corev1.NodeSelector
	for _, pv := range volumes {
		required := affinity(pv)
		switch {
		case required == nil:
		case first == nil:
			first = required
		case !equality.Semantic.DeepEqual(first, required):
			return false
		}
	}
	return true
}

func affinity(pv *corev1.PersistentVolume) *corev1.NodeSelector {
	if pv.Spec.NodeAffinity == nil {
		return nil
	}
	return pv.Spec.NodeAffinity.Required
}

func matching(required *corev1.NodeSelector, nodes []corev1.Node) []string {
	selector, err := nodeaffinity.NewNodeSelector(required)
	if err != nil {
		// The API server has accepted it; no node of its version matches.
		return nil
	}
	var out []string
	for i := range nodes {
		if selector.Match(&nodes[i]) {
			out = append(out, nodes[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

func shareNode(topologies []Topology) bool {
	var common []string
	restricted := false
	for _, h := range topologies {
		switch {
		case h.Anywhere:
		case !restricted:
			common, restricted = h.Nodes, true
		default:
			common = slices.DeleteFunc(slices.Clone(common), func(name string) bool { return !slices.Contains(h.Nodes, name) })
		}
	}
	return !restricted || len(common) > 0
}

const mostNodes = 3

func describeApart(topologies []Topology) string {
	var parts []string
	for _, h := range topologies {
		if !h.Anywhere {
			parts = append(parts, fmt.Sprintf("claim %s is on %s", h.Claim, describeNodes(h.Nodes)))
		}
	}
	return "no node has all of the VM's disks: " + strings.Join(parts, ", ")
}

func describeNodes(nodes []string) string {
	switch n := len(nodes); {
	case n == 0:
		return "a node that does not exist any more"
	case n == 1:
		return "node " + nodes[0]
	case n > mostNodes:
		return fmt.Sprintf("nodes %s and %d more", strings.Join(nodes[:mostNodes], ", "), n-mostNodes)
	}
	return "nodes " + strings.Join(nodes, ", ")
}
