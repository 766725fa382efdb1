package subresource

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestCancelEvacuation(t *testing.T) {
	const refused = `Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "vm-cirros": `
	for name, c := range map[string]struct{ marked, node, err string }{
		"one that is marked":                   {"node1", "", ""},
		"one that is marked for that node":     {"node1", "node1", ""},
		"one that is marked for another node":  {"node1", "node2", refused + "VMI is marked for evacuation from node node1, not from node node2"},
		"one that is not marked":               {"", "", refused + "VMI is not marked for evacuation"},
		"one that is not marked, and the node": {"", "node1", refused + "VMI is not marked for evacuation"},
	} {
		vmi := instance(v1.Running)
		vmi.Status.EvacuationNodeName = c.marked
		got := ""
		if err := CancelEvacuation(vmi, c.node); err != nil {
			got = err.Error()
		}
		if got != c.err {
			t.Errorf("%s: %q, want %q", name, got, c.err)
		}
	}
}
