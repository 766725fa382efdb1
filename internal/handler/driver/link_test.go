package driver

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// link sets the wanted state of the interface's link.
func link(state v1.InterfaceState) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) { instance.Spec.Domain.Devices.Interfaces[0].State = state }
}

// linked reports whether the VMI is Running and shows the link in the given state.
func linked(state v1.InterfaceState) func(*v1.VirtualMachineInstance) bool {
	return func(instance *v1.VirtualMachineInstance) bool {
		return well(instance) && len(instance.Status.Interfaces) == 1 && instance.Status.Interfaces[0].LinkState == string(state)
	}
}

// TestALinkFollowsTheVMI: a guest's link is down before its CPUs run. It is then switched under this virt-handler and
// under the next one.
func TestALinkFollowsTheVMI(t *testing.T) {
	t.Parallel()
	vmi := scheduled("link")
	link(v1.InterfaceStateLinkDown)(vmi)
	n := newNode(t, vmi)
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	p.start()
	running := n.api.await(t, "a guest that runs with its link down", linked(v1.InterfaceStateLinkDown))
	if h.hasMarker(t, running) {
		t.Error("the guest runs and counts as one that waits")
	}
	n.api.update(link(""))
	n.api.await(t, "the link up", linked(v1.InterfaceStateLinkUp))
	h.stop()
	n.api.update(link(v1.InterfaceStateLinkDown))
	n.startHandler(p)
	n.api.await(t, "the link down", linked(v1.InterfaceStateLinkDown))
	if got := len(p.qemus()); got != 1 {
		t.Errorf("%d QEMUs run", got)
	}
}

// hasMarker reports whether QEMU has the marker of a waiting guest.
func (h *handler) hasMarker(t *testing.T, instance *v1.VirtualMachineInstance) bool {
	t.Helper()
	m, err := h.supervisor.Lookup(instance.Namespace, instance.Name, instance.UID)
	if err != nil {
		t.Fatal(err)
	}
	var objects []struct {
		Name string `json:"name"`
	}
	if err := m.QEMU.Monitor().Execute(t.Context(), "qom-list", map[string]any{"path": "/objects"}, &objects); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.Name == machine.WaitMarker {
			return true
		}
	}
	return false
}
