package driver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// addNIC gives the VMI an interface on a network of Multus.
func addNIC(name string) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}})
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{
			Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
		})
	}
}

// blueState sets the state of the interface blue.
func blueState(state v1.InterfaceState) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		for i := range vmi.Spec.Domain.Devices.Interfaces {
			if iface := &vmi.Spec.Domain.Devices.Interfaces[i]; iface.Name == "blue" {
				iface.State = state
			}
		}
	}
}

// passedThrough makes an interface a device of the node.
func passedThrough(name string) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		for i := range vmi.Spec.Domain.Devices.Interfaces {
			if iface := &vmi.Spec.Domain.Devices.Interfaces[i]; iface.Name == name {
				iface.InterfaceBindingMethod = v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}
			}
		}
	}
}

// annotate writes Multus' status of the pod, and the networks that are asked for.
func (p *pod) annotate(status string, asked ...launcherpod.Attachment) *pod {
	version, _ := strconv.Atoi(p.object.ResourceVersion)
	p.object = p.object.DeepCopy()
	p.object.ResourceVersion = strconv.Itoa(version + 1)
	p.object.Annotations = map[string]string{nichotplug.StatusAnnotation: status, launcherpod.NetworksAnnotation: launcherpod.Encode(asked)}
	return p
}

// attach reports, as Multus, that the pod has networks.
func (p *pod) attach(networks ...string) *pod {
	var said []string
	var asked []launcherpod.Attachment
	for _, n := range networks {
		said = append(said, fmt.Sprintf(`{"name":"shop/%s","interface":%q}`, n, layout.SecondaryInterface(n)))
		asked = append(asked, launcherpod.Attachment{Namespace: "shop", Name: n, Interface: layout.SecondaryInterface(n)})
	}
	return p.annotate("["+strings.Join(said, ",")+"]", asked...)
}

// hasNICs reports whether the VMI's status shows interfaces, by name, source and link.
func hasNICs(want ...string) func(*v1.VirtualMachineInstance) bool {
	return func(vmi *v1.VirtualMachineInstance) bool {
		var got []string
		for _, i := range vmi.Status.Interfaces {
			got = append(got, i.Name+" "+i.InfoSource+" "+i.LinkState)
		}
		return slices.Equal(got, want)
	}
}

const (
	defaultNIC = "default domain up"
	blueNIC    = "blue domain, multus-status "
)

// stored returns the current VMI.
func (a *api) stored(t *testing.T) *v1.VirtualMachineInstance {
	t.Helper()
	vmi, err := a.VMI(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return vmi
}

// TestAnInterfaceComesAndGoes: each step runs under another virt-handler.
func TestAnInterfaceComesAndGoes(t *testing.T) {
	n := newModelNode(t, scheduled("nic"))
	m, p := n.launcher(), n.newPod(n.api.vmi)
	h := n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	n.api.update(addNIC("blue"))
	n.api.update(blueState(v1.InterfaceStateLinkDown))
	n.api.update(link(v1.InterfaceStateLinkDown)) // a later change also means that the driver has seen the interface
	n.api.await(t, "another change", hasNICs("default domain down"))
	if m.qemu.Executed("netdev_add") != 0 {
		t.Error("it is plugged before the pod has it")
	}
	n.api.update(link(""))
	h.supervisor.PodSeen(p.attach("blue").object)
	plugged := n.api.await(t, "the interface, its link down", hasNICs(defaultNIC, blueNIC+"down"))
	if blue := plugged.Status.Interfaces[1]; blue.MAC == "" || blue.PodInterfaceName != "pod-blue" || blue.QueueCount != 1 {
		t.Errorf("the status says %+v", blue)
	}
	if !m.qemu.HasDevice(machine.NICID("blue")) || !slices.Contains(m.qemu.Netdevs(), machine.NetdevID("blue")) {
		t.Errorf("QEMU has the backends %v", m.qemu.Netdevs())
	}
	h.stop()

	h = n.startHandler(p)
	n.api.update(blueState(""))
	n.api.await(t, "its link up", hasNICs(defaultNIC, blueNIC+"up"))
	if got := m.qemu.Executed("netdev_add"); got != 1 {
		t.Errorf("it was plugged %d times", got)
	}
	h.stop()

	h = n.startHandler(p)
	n.api.update(blueState(v1.InterfaceStateAbsent))
	awaitTrue(t, "the guest to be asked", func() bool { return m.qemu.Executed("device_del") > 0 })
	if vmi := n.api.await(t, "the guest", well); !hasNICs(defaultNIC, blueNIC+"up")(vmi) {
		t.Errorf("one that the guest has not released is not shown: %+v", vmi.Status.Interfaces)
	}
	h.stop()
	m.qemu.Release(machine.NICID("blue"))

	n.startHandler(p)
	n.api.await(t, "the interface to be gone", hasNICs(defaultNIC))
	awaitTrue(t, "nothing to be left of it", func() bool {
		return !slices.Contains(m.qemu.Netdevs(), machine.NetdevID("blue")) && len(n.network.(*noNetwork).has()) == 0
	})
	// The user adds the interface again.
	n.api.update(blueState(""))
	n.api.await(t, "the interface again", hasNICs(defaultNIC, blueNIC+"up"))
	// The guest releases the interface under this virt-handler, when the spec no longer names it.
	n.api.update(func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Networks, vmi.Spec.Domain.Devices.Interfaces = vmi.Spec.Networks[:1], vmi.Spec.Domain.Devices.Interfaces[:1]
	})
	awaitTrue(t, "the guest to be asked again", func() bool {
		m.qemu.Release(machine.NICID("blue"))
		return !m.qemu.HasDevice(machine.NICID("blue"))
	})
	awaitTrue(t, "nothing to be left of it", func() bool {
		return !slices.Contains(m.qemu.Netdevs(), machine.NetdevID("blue")) && len(n.network.(*noNetwork).has()) == 0
	})
	n.api.await(t, "the interface to be gone", hasNICs(defaultNIC))
	if m.starts() != 1 {
		t.Errorf("QEMU was started %d times", m.starts())
	}
}

// TestADeviceOfTheNodeComesAndGoes: it is plugged only when network-status names a device that the pod was given.
func TestADeviceOfTheNodeComesAndGoes(t *testing.T) {
	n := newModelNode(t, scheduled("device"))
	m := n.launcher()
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	m.qemu.HasHostDevice(nodeDevice)
	n.api.update(addNIC("blue"))
	n.api.update(passedThrough("blue"))
	for i, early := range []func() *pod{
		func() *pod { return p.attach("blue") }, func() *pod { return p.deviceOf("0000:65:00.3") }, func() *pod { return p.deviceOf("nonsense") },
	} {
		h.supervisor.PodSeen(early().object)
		down := []v1.InterfaceState{v1.InterfaceStateLinkDown, ""}[i%2]
		n.api.update(link(down)) // a later change also means that the driver has seen the device
		n.api.await(t, "another change", hasNICs("default domain "+[]string{"down", "up"}[i%2]))
	}
	n.api.update(link(""))
	h.supervisor.PodSeen(p.deviceOf(nodeDevice).object)
	plugged := n.api.await(t, "the device", hasNICs(defaultNIC, blueNIC))
	if got := m.qemu.Executed("device_add"); got != 1 || m.qemu.Executed("netdev_add") != 0 || plugged.Status.Interfaces[1].MAC == "" {
		t.Errorf("it was plugged %d times: %+v", got, plugged.Status.Interfaces[1])
	}
	h.stop()

	h = n.startHandler(p)
	n.api.update(blueState(v1.InterfaceStateAbsent))
	awaitTrue(t, "the guest to be asked", func() bool { return m.qemu.Executed("device_del") > 0 })
	m.qemu.Release(machine.NICID("blue"))
	n.api.await(t, "the device to be gone", hasNICs(defaultNIC))
	h.stop()
}

func TestAGuestThatKeepsAnInterfaceIsReported(t *testing.T) {
	n := newModelNode(t, scheduled("keeps"))
	n.pass(0)
	n.launcher()
	p := n.newPod(n.api.vmi).attach("blue")
	n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	n.api.update(addNIC("blue"))
	n.api.await(t, "the interface", hasNICs(defaultNIC, blueNIC+"up"))
	n.api.update(blueState(v1.InterfaceStateAbsent))
	said := func(vmi *v1.VirtualMachineInstance) bool {
		return strings.Contains(visibleFailure(vmi), "the guest has not released interfaces that are to be unplugged (blue)")
	}
	awaitTrue(t, "what keeps it", func() bool {
		n.pass(11 * time.Second)
		n.api.update(func(vmi *v1.VirtualMachineInstance) { vmi.Annotations = map[string]string{"look": time.Now().String()} })
		return said(n.api.stored(t))
	})
	if !hasNICs(defaultNIC, blueNIC+"up")(n.api.stored(t)) {
		t.Errorf("it has %+v", n.api.stored(t).Status.Interfaces)
	}
	n.api.update(blueState(""))
	n.api.await(t, "nothing to be wrong", func(vmi *v1.VirtualMachineInstance) bool { return visibleFailure(vmi) == "" })
}

// TestAnInterfaceThatTheGuestHasKeptIsConnectedAgain: the pod has lost its side of the interface meanwhile, and got a
// new one.
func TestAnInterfaceThatTheGuestHasKeptIsConnectedAgain(t *testing.T) {
	n := newModelNode(t, scheduled("again"))
	n.pass(0)
	m, p := n.launcher(), n.newPod(n.api.vmi).attach("blue")
	h := n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	n.api.update(addNIC("blue"))
	n.api.await(t, "the interface", hasNICs(defaultNIC, blueNIC+"up"))
	n.api.update(blueState(v1.InterfaceStateAbsent))
	awaitTrue(t, "the guest to be asked", func() bool { return m.qemu.Executed("device_del") > 0 })
	h.supervisor.PodSeen(p.attach().object)
	setUps := n.network.(*noNetwork)
	before := setUps.times()
	n.api.update(blueState(""))
	n.api.update(link(v1.InterfaceStateLinkDown)) // a later change also means that the driver has seen the interface
	n.api.await(t, "another change", hasNICs("default domain down", blueNIC+"up"))
	if setUps.times() != before {
		t.Error("it is connected before the pod has it")
	}
	n.pass(11 * time.Second)
	h.supervisor.PodSeen(p.attach("blue").object)
	awaitTrue(t, "it to be connected", func() bool { return setUps.times() > before })
	n.api.update(link(""))
	n.api.await(t, "nothing else", hasNICs(defaultNIC, blueNIC+"up"))
	if got, plugged := setUps.times(), m.qemu.Executed("netdev_add"); got != before+1 || plugged != 1 {
		t.Errorf("it was set up %d times more, and plugged %d times", got-before, plugged)
	}
}

// TestAnInterfaceThatThePodHasExchangedIsConnectedAgain: an attacher has removed the pod's side and made it again,
// which no object shows.
func TestAnInterfaceThatThePodHasExchangedIsConnectedAgain(t *testing.T) {
	n := newModelNode(t, scheduled("exchanged"))
	n.pass(0)
	m, p := n.launcher(), n.newPod(n.api.vmi).attach("blue")
	h := n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	n.api.update(addNIC("blue"))
	n.api.await(t, "the interface", hasNICs(defaultNIC, blueNIC+"up"))
	setUps := n.network.(*noNetwork)
	before := setUps.times()
	setUps.loses("blue")
	n.pass(11 * time.Second)
	h.supervisor.PodSeen(p.attach("blue").object)
	awaitTrue(t, "it to be connected", func() bool { return setUps.times() > before })
	setUps.loses()
	if plugged := m.qemu.Executed("netdev_add"); plugged != 1 {
		t.Errorf("it was plugged %d times", plugged)
	}
}

// TestAGuestMigratesWithItsInterfaces: the target starts QEMU with the guest's interfaces, and plugs the others.
func TestAGuestMigratesWithItsInterfaces(t *testing.T) {
	v := newVoyage(t)
	v.from.handler.supervisor.PodSeen(v.from.pod.attach("red").object)
	v.api.update(addNIC("red"))
	v.api.await(t, "the interface", hasNICs(defaultNIC, "red domain, multus-status up"))
	v.api.update(addNIC("blue"))
	v.to.pod.attach("red", "blue")
	arrives := ""
	v.to.model.scripted = func(q *qmptest.Server) { q.AddNIC("red") }
	v.begin(nil)
	v.to.start()
	v.copies()
	for _, r := range v.to.model.Requests() {
		if r.Start != nil {
			arrives = strings.Join(r.Start.Args, " ")
		}
	}
	if !strings.Contains(arrives, machine.NICID("red")) || strings.Contains(arrives, machine.NICID("blue")) {
		t.Errorf("QEMU is started with %s", arrives)
	}
	v.release()
	v.api.await(t, "the guest at the target", completed)
	if v.to.model.qemu.HasDevice(machine.NICID("blue")) {
		t.Error("an interface is plugged before the VMI is at its new node")
	}
	v.arrive()
	v.api.await(t, "both interfaces", hasNICs(defaultNIC, "red domain, multus-status up", blueNIC+"up"))
	v.alone(v.to, v.from)
}

// deviceOf reports, as Multus, that the pod's interface blue is a device of the node.
func (p *pod) deviceOf(address string) *pod {
	return p.annotate(fmt.Sprintf(`[{"name":"shop/blue","interface":%q,"device-info":{"type":"pci","pci":{"pci-address":%q}}}]`, layout.SecondaryInterface("blue"), address),
		launcherpod.Attachment{Namespace: "shop", Name: "blue", Interface: layout.SecondaryInterface("blue")})
}

// withItsDevice returns a guest that has a device of the node that it should leave.
func withItsDevice(t *testing.T) *voyage {
	t.Helper()
	v := newVoyage(t)
	v.from.model.qemu.HasHostDevice(nodeDevice)
	v.from.handler.supervisor.PodSeen(v.from.pod.deviceOf(nodeDevice).object)
	v.api.update(func(vmi *v1.VirtualMachineInstance) {
		addNIC("blue")(vmi)
		passedThrough("blue")(vmi)
	})
	v.api.await(t, "the device", hasNICs(defaultNIC, blueNIC))
	v.to.pod.deviceOf(nodeDevice)
	v.to.model.scripted = func(q *qmptest.Server) { q.HasHostDevice(nodeDevice) }
	return v
}

// TestAGuestLeavesDevicesOfItsNode: it gets others at the target.
func TestAGuestLeavesDevicesOfItsNode(t *testing.T) {
	v := withItsDevice(t)
	v.begin(nil)
	v.to.start()
	awaitTrue(t, "the guest to be asked", func() bool { return v.from.model.qemu.Executed("device_del") > 0 })
	if got := v.from.model.qemu.Executed("migrate"); got != 0 {
		t.Errorf("QEMU sends its guest with a device")
	}
	v.from.model.qemu.Release(machine.NICID("blue"))
	v.copies()
	for _, r := range v.to.model.Requests() {
		if r.Start != nil && strings.Contains(strings.Join(r.Start.Args, " "), machine.NICID("blue")) {
			t.Errorf("QEMU is started with %v", r.Start.Args)
		}
	}
	v.release()
	v.api.await(t, "the guest at the target", completed)
	v.arrive()
	v.api.await(t, "its device", hasNICs(defaultNIC, blueNIC))
	v.alone(v.to, v.from)
}

// TestAGuestThatKeepsADeviceIsNotSent: it still has the device after the migration has failed.
func TestAGuestThatKeepsADeviceIsNotSent(t *testing.T) {
	v := withItsDevice(t)
	v.begin(nil)
	v.to.start()
	awaitTrue(t, "the guest to be asked", func() bool { return v.from.model.qemu.Executed("device_del") > 0 })
	look := func() {
		v.from.pass(11 * time.Second)
		v.api.update(func(vmi *v1.VirtualMachineInstance) { vmi.Annotations = map[string]string{"look": time.Now().String()} })
	}
	awaitTrue(t, "the end of the migration", func() bool {
		look()
		return failedNow(v.api.stored(t))
	})
	if why := v.api.stored(t).Status.MigrationState.FailureReason; !strings.Contains(why, "the guest has not released devices of its node, which it can't take along (blue)") {
		t.Errorf("it says %s", why)
	}
	v.alone(v.from, v.to)
	// The guest releases the device after all, and gets it again.
	v.from.model.qemu.Release(machine.NICID("blue"))
	awaitTrue(t, "the device again", func() bool {
		look()
		return v.from.model.qemu.Executed("device_add") == 2
	})
	v.api.await(t, "the device", hasNICs(defaultNIC, blueNIC))
}

// TestAGuestThatHasYetToReleaseAnInterfaceIsNotSent: the target can't connect the interface to anything.
func TestAGuestThatHasYetToReleaseAnInterfaceIsNotSent(t *testing.T) {
	v := newVoyage(t)
	v.from.handler.supervisor.PodSeen(v.from.pod.attach("blue").object)
	v.api.update(addNIC("blue"))
	v.api.await(t, "the interface", hasNICs(defaultNIC, blueNIC+"up"))
	v.api.update(blueState(v1.InterfaceStateAbsent))
	awaitTrue(t, "the guest to be asked", func() bool { return v.from.model.qemu.Executed("device_del") > 0 })
	v.begin(nil)
	v.to.start()
	failed := v.api.await(t, "the end of the migration", failedNow)
	if why := failed.Status.MigrationState.FailureReason; !strings.Contains(why, "the guest has not released interfaces that are to be unplugged (blue)") {
		t.Errorf("it says %s", why)
	}
	v.alone(v.from, v.to)
}

// TestAnInterfaceIsPluggedIntoQEMU: no guest would release it. The next virt-handler finds the interface, and reports
// that it is kept.
func TestAnInterfaceIsPluggedIntoQEMU(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("plugged"))
	p := n.newPod(n.api.vmi)
	p.links = []string{layout.SecondaryInterface("blue")}
	h := n.startHandler(p)
	p.start()
	n.api.await(t, "a guest that runs", well)
	n.api.update(addNIC("blue"))
	n.api.update(blueState(v1.InterfaceStateLinkDown))
	h.supervisor.PodSeen(p.attach("blue").object)
	plugged := n.api.await(t, "the interface", hasNICs(defaultNIC, blueNIC+"down"))
	if blue := plugged.Status.Interfaces[1]; blue.MAC != machine.MAC(plugged, "blue") || blue.PodInterfaceName != p.links[0] {
		t.Errorf("the status says %+v", blue)
	}
	h.stop()
	n.startHandler(p)
	n.api.update(blueState(""))
	n.api.await(t, "its link up", hasNICs(defaultNIC, blueNIC+"up"))
	n.api.update(blueState(v1.InterfaceStateAbsent))
	n.api.await(t, "what keeps it", func(vmi *v1.VirtualMachineInstance) bool {
		return strings.Contains(visibleFailure(vmi), "the guest has not released interfaces that are to be unplugged (blue)") &&
			hasNICs(defaultNIC, blueNIC+"up")(vmi)
	})
	n.api.update(blueState(v1.InterfaceStateLinkUp))
	n.api.await(t, "nothing to be wrong", well)
	if got := len(p.qemus()); got != 1 {
		t.Errorf("%d QEMUs run", got)
	}
}
