//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

type nicChange struct {
	t          *testing.T
	ns, name   string
	cable      *cable
	attachment string
	// cards lists the interfaces from the guest's start: PCI address and MAC address of each.
	cards string
	node  string
	// migrations counts those of the VM.
	migrations int
}

const listCards = `for i in /sys/class/net/e*; do echo $(basename $(readlink -f $i/device/..)) $(cat $i/address); done | sort`

// migratesWorkloads is the shipped configuration: guests migrate when their change needs it. With staysByItself none
// does.
const (
	migratesWorkloads = `{"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":["LiveMigrate"]}}}`
	staysByItself     = `{"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":[]}}}`
)

// newNICChange makes an attachment to the cable, on which each node has an address.
func newNICChange(t *testing.T, ns, name string, c *cable) *nicChange {
	t.Helper()
	for i, node := range []string{node1, node2} {
		nl, err := netlink.NewHandleAt(nodeNetwork(t, node))
		if err != nil {
			t.Fatal(err)
		}
		addr, err := netlink.ParseAddr(fmt.Sprintf("192.0.2.%d/24", i+1))
		if err == nil {
			err = nl.AddrAdd(linkOf(t, nl, c.name), addr)
		}
		if err != nil {
			t.Fatalf("giving %s an address on the cable: %v", node, err)
		}
		nl.Close()
	}
	n := &nicChange{t: t, ns: ns, name: name, cable: c, attachment: "blue"}
	newAttachment(t, ns, n.attachment, c.attachment())
	n.cards = login(t, ns, name).run(listCards)
	n.node = awaitRunning(t, ns, name).Status.NodeName
	n.migrations = n.count()
	return n
}

func (n *nicChange) count() int {
	n.t.Helper()
	var list v1.VirtualMachineInstanceMigrationList
	if err := cluster.client.List(n.t.Context(), &list, client.InNamespace(n.ns)); err != nil {
		n.t.Fatal(err)
	}
	return len(list.Items)
}

// requires waits until the condition MigrationRequired has a status, "" for no condition, and returns its states on the
// way.
func (n *nicChange) requires(status corev1.ConditionStatus) (passed []v1.VirtualMachineInstanceCondition) {
	n.t.Helper()
	awaitVMI(n.t, n.ns, n.name, "MigrationRequired "+string(status), func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		if c == nil {
			return status == ""
		}
		if len(passed) == 0 || passed[len(passed)-1].Status != c.Status {
			passed = append(passed, *c)
		}
		return c.Status == status
	})
	return passed
}

// plug adds the interface to the VM's template; unplug sets it absent, and back removes that state.
func (n *nicChange) plug() {
	changeTemplate(n.t, n.ns, n.name, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Networks = append(spec.Networks, v1.Network{Name: n.attachment, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: n.attachment}}})
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces,
			v1.Interface{Name: n.attachment, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}})
	})
}

func (n *nicChange) unplug() { n.setState(v1.InterfaceStateAbsent) }

func (n *nicChange) back() { n.setState("") }

func (n *nicChange) setState(state v1.InterfaceState) {
	changeTemplate(n.t, n.ns, n.name, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Interfaces[len(spec.Domain.Devices.Interfaces)-1].State = state
	})
}

func (n *nicChange) listed(there bool) *v1.VirtualMachineInstance {
	n.t.Helper()
	return awaitVMI(n.t, n.ns, n.name, fmt.Sprintf("the interface %s, there: %v", n.attachment, there), func(vmi *v1.VirtualMachineInstance) bool {
		return nichotplug.InGuest(vmi, n.attachment) == there
	})
}

func (n *nicChange) reaches(g *guest) {
	n.t.Helper()
	n.stays(g, 1)
	g.run("ip addr add 192.0.2.7/24 dev eth2 && ip link set eth2 up")
	for i := range 2 {
		g.sees("an answer over the cable", fmt.Sprintf("ping -c 1 -W 2 192.0.2.%d >/dev/null && echo yes", i+1), "yes")
	}
}

// stays checks that the guest's interfaces have their old addresses, and that as many others follow.
func (n *nicChange) stays(g *guest, others int) {
	n.t.Helper()
	g.sees("its interfaces", listCards+" | wc -l", fmt.Sprint(strings.Count(n.cards, "\n")+1+others))
	if now := g.run(listCards); !strings.HasPrefix(now, n.cards) {
		n.t.Errorf("the guest has\n%s\nand had\n%s", now, n.cards)
	}
}

// migrates follows a change that needs a migration: MigrationRequired must be False first, and True after more than ten
// seconds; one migration must follow, after which the guest has the interface.
func (n *nicChange) migrates() *guest {
	n.t.Helper()
	seen := n.requires(corev1.ConditionTrue)
	if len(seen) != 2 || seen[0].Status != corev1.ConditionFalse || seen[1].LastTransitionTime.Sub(seen[0].LastTransitionTime.Time) <= 10*time.Second {
		n.t.Errorf("MigrationRequired was %+v", seen)
	}
	moved := awaitVMI(n.t, n.ns, n.name, "another node", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.NodeName != n.node })
	n.node = moved.Status.NodeName
	n.listed(true)
	n.requires("")
	n.migrations++
	if got := n.count(); got != n.migrations {
		n.t.Errorf("the VM has had %d migrations, want %d", got, n.migrations)
	}
	awaitNoRestartRequired(n.t, n.ns, n.name)
	return login(n.t, n.ns, n.name)
}

// inPlace checks that a change needed no migration.
func (n *nicChange) inPlace(there bool) {
	n.t.Helper()
	vmi := n.listed(there)
	n.requires("")
	if vmi.Status.NodeName != n.node || n.count() != n.migrations {
		n.t.Errorf("the guest is on %s after %d migrations, and was on %s after %d", vmi.Status.NodeName, n.count(), n.node, n.migrations)
	}
}

type attacher struct {
	*nicChange
	pod  *corev1.Pod
	link string
}

// newAttacher waits until the VM's pod requests the interface, or no longer does.
func newAttacher(n *nicChange, asks bool) *attacher {
	n.t.Helper()
	a := &attacher{nicChange: n, link: layout.SecondaryInterface(n.attachment)}
	eventually(n.t, fmt.Sprintf("a pod that asks for %s: %v", a.link, asks), func(ctx context.Context) error {
		vmi := awaitRunning(n.t, n.ns, n.name)
		a.pod = &corev1.Pod{}
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: n.ns, Name: launcherpod.CurrentName(vmi)}, a.pod); err != nil {
			return err
		}
		if got := a.pod.Annotations[launcherpod.NetworksAnnotation]; strings.Contains(got, a.link) != asks {
			return fmt.Errorf("it asks for %s", got)
		}
		return nil
	})
	return a
}

func (a *attacher) attach() {
	a.t.Helper()
	inPod, err := netns.GetFromPid(processOf(a.t, a.pod, "virt-launcher"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = inPod.Close() }()
	onNode, err := netlink.NewHandleAt(nodeNetwork(a.t, a.node))
	if err != nil {
		a.t.Fatal(err)
	}
	defer onNode.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "attached0"
	if err := onNode.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: a.link, PeerNamespace: netlink.NsFd(inPod)}); err != nil {
		a.t.Fatalf("attaching the pod: %v", err)
	}
	plug(a.t, onNode, attrs.Name, a.cable.name)
	there, err := netlink.NewHandleAt(inPod)
	if err != nil {
		a.t.Fatal(err)
	}
	defer there.Close()
	if err := there.LinkSetUp(linkOf(a.t, there, a.link)); err != nil {
		a.t.Fatal(err)
	}
	a.say(true)
}

func (a *attacher) detach() {
	a.t.Helper()
	inPod, err := netns.GetFromPid(processOf(a.t, a.pod, "virt-launcher"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = inPod.Close() }()
	there, err := netlink.NewHandleAt(inPod)
	if err != nil {
		a.t.Fatal(err)
	}
	defer there.Close()
	if err := there.LinkDel(linkOf(a.t, there, a.link)); err != nil {
		a.t.Fatalf("detaching the pod: %v", err)
	}
	a.say(false)
}

func (a *attacher) say(attached bool) {
	a.t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(a.pod.Annotations[nichotplug.StatusAnnotation]), &list); err != nil {
		a.t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(entry map[string]any) bool { return entry["interface"] == a.link })
	if attached {
		list = append(list, map[string]any{"name": a.ns + "/" + a.attachment, "interface": a.link})
	}
	text, err := json.Marshal(list)
	if err != nil {
		a.t.Fatal(err)
	}
	before := a.pod.DeepCopy()
	a.pod.Annotations[nichotplug.StatusAnnotation] = string(text)
	if err := cluster.client.Patch(a.t.Context(), a.pod, client.MergeFrom(before)); err != nil {
		a.t.Fatalf("saying what the pod is attached to: %v", err)
	}
}

// changeNICs plugs an interface into a running guest by a migration, and unplugs and plugs it in place.
func changeNICs(t *testing.T, ns, name string, c *cable) *nicChange {
	t.Helper()
	began := time.Now()
	n := newNICChange(t, ns, name, c)
	n.plug()
	g := n.migrates()
	n.reaches(g)
	// The guest assigned this address by itself.
	blue := awaitVMI(t, ns, name, "the address that the guest gave itself", func(vmi *v1.VirtualMachineInstance) bool {
		return len(vmi.Status.Interfaces) > 2 && slices.Contains(vmi.Status.Interfaces[2].IPs, "192.0.2.7")
	}).Status.Interfaces[2]
	if blue.MAC == "" || blue.PodInterfaceName != layout.SecondaryInterface(n.attachment) || blue.QueueCount != 1 || !strings.HasSuffix(blue.InfoSource, "multus-status") {
		t.Errorf("the VMI says of the interface %+v", blue)
	}

	// A change in place comes before a migration is required only if the attaching controller is quick enough: here it
	// may be slow.
	configure(t, staysByItself, migratesWorkloads)
	n.unplug()
	newAttacher(n, false).detach()
	n.inPlace(false)
	n.stays(g, 0)

	n.back()
	newAttacher(n, true).attach()
	n.inPlace(true)
	n.reaches(g)
	if again := n.listed(true).Status.Interfaces[2]; again.MAC != blue.MAC {
		t.Errorf("the interface has come back with %s, and had %s", again.MAC, blue.MAC)
	}
	t.Logf("an interface came by a migration, went in place and came back in %v", time.Since(began))
	configureFurther(t, migratesWorkloads)
	n.changeNetworks()
	return n
}
