package network

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
)

var known = networkbinding.Registered{
	"theirs":  {DomainAttachmentType: v1.Tap},
	"managed": {DomainAttachmentType: v1.ManagedTap, Migration: &v1.InterfaceBindingMigration{}},
}

func boundTo(binding string) *v1.VirtualMachineInstance {
	vmi := onRed()
	vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{}
	vmi.Spec.Domain.Devices.Interfaces[0].Binding = &v1.PluginBinding{Name: binding}
	return vmi
}

// TestATapThatANetworkPluginHasMade must be used unchanged by QEMU, whether it is beside the pod's interface or
// replaces it.
func TestATapThatANetworkPluginHasMade(t *testing.T) {
	t.Parallel()
	vmi := boundTo("theirs")
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	pod := newNetNS(t)
	nl := handle(t, pod)
	_, err := m.Setup(t.Context(), Pod{NetNS: pod, Bindings: known}, vmi)
	want := "spec.domain.devices.interfaces[0].binding: the pod has no tap " + layout.SecondaryLink("tap", red) + ", nor is its interface " + layout.SecondaryInterface(red) + " a tap"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without a tap the answer is %v", err)
	}
	for _, name := range []string{layout.SecondaryInterface(red), layout.SecondaryLink("tap", red)} {
		in(t, pod, func() error { return makeTapHere(name, false) })
		link, err := nl.LinkByName(name)
		check(t, err)
		check(t, nl.LinkSetMTU(link, 1234))
		made := setupIn(t, m, Pod{NetNS: pod, Bindings: known}, vmi)
		if made.Tap != name || made.MTU != 1234 || made.MAC != machine.MAC(vmi, red) || made.PodInterface != layout.SecondaryInterface(red) ||
			made.Stays != "the network binding theirs does not say that its guests can migrate (migration)" {
			t.Errorf("Setup answers %+v", made)
		}
		check(t, m.Connect(Pod{NetNS: pod, Bindings: known}, vmi))
		link, err = nl.LinkByName(name)
		check(t, err)
		if link.Attrs().MasterIndex != 0 {
			t.Errorf("%s was connected", name)
		}
	}
	// The binding is removed while a QEMU runs.
	if made := setupIn(t, m, Pod{NetNS: pod, Runs: true}, vmi); made.Tap != layout.SecondaryLink("tap", red) || !strings.Contains(made.Stays, "there is no network binding") {
		t.Errorf("without its binding, QEMU has %+v", made)
	}
	if _, err := m.Setup(t.Context(), Pod{NetNS: pod}, vmi); err == nil || !strings.Contains(err.Error(), "[0].binding.name: there is no network binding") {
		t.Errorf("without its binding, it is started: %v", err)
	}
}

// TestALinkThatIsNoTap must not be used, and a tap that QEMU has lost must not stop other interfaces from being served.
func TestALinkThatIsNoTap(t *testing.T) {
	t.Parallel()
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	pod := newNetNS(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = layout.SecondaryInterface(red)
	check(t, handle(t, pod).LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	if _, err := m.Setup(t.Context(), Pod{NetNS: pod, Bindings: known}, boundTo("theirs")); err == nil || !strings.Contains(err.Error(), "nor is its interface") {
		t.Errorf("the answer is %v", err)
	}
	if made, err := m.Setup(t.Context(), Pod{NetNS: newNetNS(t), Runs: true, Bindings: known}, boundTo("theirs")); err != nil || len(made) != 0 {
		t.Errorf("QEMU has %+v (%v)", made, err)
	}
}

// The tap is virt-handler's own on a bridge, without DHCP.
func TestAManagedTap(t *testing.T) {
	t.Parallel()
	s, vmi := newShared(t), boundTo("managed")
	pod := s.pod(t, "pod", redAddress+"/24")
	m := New(testr.New(t))
	t.Cleanup(m.Close)
	made := setupIn(t, m, Pod{NetNS: pod, Bindings: known}, vmi)
	if made.Tap != layout.SecondaryLink("tap", red) || made.MAC != machine.MAC(vmi, red) || made.Stays != "" || len(made.IPs) != 1 {
		t.Errorf("Setup answers %+v", made)
	}
	if served := m.servers[vmi.UID]; len(served) != 0 {
		t.Errorf("%d servers serve it", len(served))
	}
	guest := newNIC(t, made)
	guest.run(openTap(t, pod, made.Tap, layout.QEMUUser))
	echo(t, guest.guest, redAddress+":80")
	conn, _ := reach(t, s.node, redAddress+":80")
	carries(t, conn, 1<<20)
	if _, err := m.Setup(t.Context(), Pod{NetNS: newNetNS(t), Bindings: known}, vmi); err == nil || !strings.Contains(err.Error(), "Multus, which makes it, did not run") {
		t.Errorf("without the pod's interface the answer is %v", err)
	}
}
