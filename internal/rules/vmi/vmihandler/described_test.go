package vmihandler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhichClaimsAreTheLauncherPods(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	for _, name := range []string{"plugged", "empty", "root"} {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name})
	}
	vmi.Spec.Volumes[0].DataVolume = &v1.DataVolumeSource{Name: "later", Hotpluggable: true}
	vmi.Spec.Volumes[1].EmptyDisk = &v1.EmptyDiskSource{}
	vmi.Spec.Volumes[2].DataVolume = &v1.DataVolumeSource{Name: "root-disk"}
	if diff := cmp.Diff(map[string]string{"root": "root-disk"}, Claims(vmi)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestWhichMachineAVMIAsksFor(t *testing.T) {
	for name, test := range map[string]struct {
		machine       *v1.Machine
		running, want string
	}{
		"it says nothing":          {nil, "pc-q35-7.1", "pc-q35-7.1"},
		"it says nothing of types": {&v1.Machine{}, "", "q35"},
		"it names a type":          {&v1.Machine{Type: "pc-q35-7.2"}, "pc-q35-7.2", "pc-q35-7.2"},
		"it names another one":     {&v1.Machine{Type: "pc-q35-7.2"}, "pc-q35-7.1", "pc-q35-7.2"},
		"it names the newest one":  {&v1.Machine{Type: "q35"}, "pc-q35-7.1", "pc-q35-7.1"},
		"QEMU's is unknown":        {nil, "microvm", "q35"},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Machine = test.machine
		if got := MachineType(vmi, "q35", test.running); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestTheMemoryOfTheStartIsSaidOnce(t *testing.T) {
	gib, old := resource.MustParse("1Gi"), resource.MustParse("2Gi")
	for name, test := range map[string]struct {
		guest *resource.Quantity
		said  *v1.MemoryStatus
		want  string
	}{
		"it is known and was not said":  {&gib, nil, "1Gi"},
		"it was said":                   {&gib, &v1.MemoryStatus{GuestAtBoot: &old}, "2Gi"},
		"it is not known":               {nil, nil, "nothing"},
		"it is not known, and was said": {nil, &v1.MemoryStatus{GuestAtBoot: &old}, "2Gi"},
	} {
		vmi, got := instance(), "nothing"
		vmi.Spec.Domain.Memory.Guest, vmi.Status.Memory = test.guest, test.said
		if m := Status(vmi, facts()).Memory; m != nil {
			got = m.GuestAtBoot.String()
		}
		if got != test.want {
			t.Errorf("%s: the status says %s, want %s", name, got, test.want)
		}
	}
}

// Interfaces that only the guest knows must follow virt-handler's, always in the same order.
func TestInterfacesOfTheGuest(t *testing.T) {
	vmi := instance()
	vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
	g := facts().Guest
	g.Interfaces[0].Queues = 0
	g.Interfaces = append(g.Interfaces, Interface{Name: "second", MAC: "02:00:00:00:00:02", Queues: 4, Multus: true})
	inGuest := func(name, mac string, ips ...string) v1.VirtualMachineInstanceNetworkInterface {
		return v1.VirtualMachineInstanceNetworkInterface{InterfaceName: name, MAC: mac, IPs: ips}
	}
	g.Agent = &Agent{Interfaces: []v1.VirtualMachineInstanceNetworkInterface{
		inGuest("veth0", "0a:00:00:00:00:03"), inGuest("docker0", "0a:00:00:00:00:02"), inGuest("veth0", "0a:00:00:00:00:01"),
		inGuest("eth0", "02:00:00:00:00:01"), inGuest("eth1", "02:00:00:00:00:02", "10.9.9.9", "fd00::9"),
	}}
	var got []string
	for _, i := range interfaces(vmi, g) {
		got = append(got, fmt.Sprintf("%s=%s %s %q %v x%d %s", i.Name, i.InterfaceName, i.MAC, i.IP, i.IPs, i.QueueCount, i.InfoSource))
	}
	want := []string{
		// The agent knows no address yet: virt-handler's must stay.
		`default=eth0 02:00:00:00:00:01 "10.0.0.5" [10.0.0.5 fd00::5] x1 domain, guest-agent`,
		`second=eth1 02:00:00:00:00:02 "10.9.9.9" [10.9.9.9 fd00::9] x4 domain, guest-agent, multus-status`,
		`=docker0 0a:00:00:00:00:02 "" [] x0 guest-agent`, `=veth0 0a:00:00:00:00:01 "" [] x0 guest-agent`, `=veth0 0a:00:00:00:00:03 "" [] x0 guest-agent`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

// The state that virt-handler has set is newer than that of the interface.
func TestLinksOfInterfaces(t *testing.T) {
	const up, down = v1.InterfaceStateLinkUp, v1.InterfaceStateLinkDown
	g := &Guest{
		Interfaces: []Interface{{Name: "default"}, {Name: "blue", Link: down}, {Name: "green", Link: up}},
		Links:      map[string]v1.InterfaceState{"default": up, "green": down},
	}
	var got []string
	for _, i := range interfaces(instance(), g) {
		got = append(got, i.Name+" "+i.LinkState)
	}
	if want := []string{"default up", "blue down", "green down"}; !slices.Equal(got, want) {
		t.Errorf("links are %v, want %v", got, want)
	}
}

// Whatever the guest builds on a card, and in whatever order it lists it, the card must be recognized.
func TestTheCardIsToldFromWhatIsMadeOfIt(t *testing.T) {
	const mac = "02:00:00:00:00:01"
	for names, want := range map[string]string{
		"eth0 eth0.100": "eth0", "eth0.100 eth0": "eth0", "br0 eth0": "eth0", "eth0 br0": "eth0", "bond0 enp1s0": "enp1s0",
		"team0 bond0 ens3 ens3.7": "ens3", "macvlan0@eth0 eth0": "eth0", "Ethernet vEthernet": "Ethernet", "bond0 bond0.7": "bond0", "": "",
	} {
		g, vmi := facts().Guest, instance()
		g.Agent = &Agent{}
		for _, name := range strings.Fields(names) {
			g.Agent.Interfaces = append(g.Agent.Interfaces, v1.VirtualMachineInstanceNetworkInterface{InterfaceName: name, MAC: mac})
		}
		list := interfaces(vmi, g)
		if got := list[0].InterfaceName; got != want || list[0].MAC != mac || len(list) != max(1, len(g.Agent.Interfaces)) {
			t.Errorf("of %q the card is %q, want %q; the list is %+v", names, got, want, list)
		}
		for _, other := range list[1:] {
			if other.Name != "" || other.InfoSource != infoAgent {
				t.Errorf("of %q: %+v", names, other)
			}
		}
	}
}

// A bond gives all its cards one MAC address, and the guest agent does not tell their own ones.
func TestTheCardsOfABondAreTold(t *testing.T) {
	const one, two, three = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
	for name, c := range map[string]struct {
		// nics are the addresses of the spec's interfaces; reported are the guest's devices, in its order.
		nics     []string
		reported string
		// want are the names of the spec's interfaces in the guest, others those of its other devices.
		want, others string
	}{
		"no bond":                                {[]string{one, two}, "eth0=1 eth1=2", "eth0 eth1", ""},
		"a bond with the first card's address":   {[]string{one, two}, "eth0=1 eth1=1 bond0=1", "eth0 eth1", "bond0"},
		"a bond with the second card's address":  {[]string{one, two}, "eth0=2 eth1=2 bond0=2", "eth0 eth1", "bond0"},
		"a bond with an address of its own":      {[]string{one, two}, "eth0=9 eth1=9 bond0=9", "eth0 eth1", "bond0"},
		"a bond that is listed first":            {[]string{one, two}, "bond0=1 enp1s0=1 enp2s0=1", "enp1s0 enp2s0", "bond0"},
		"a VLAN on the bond":                     {[]string{one, two}, "eth0=1 eth1=1 bond0=1 bond0.7=1", "eth0 eth1", "bond0 bond0.7"},
		"a bridge on the bond":                   {[]string{one, two}, "eth0=1 eth1=1 bond0=1 br0=1", "eth0 eth1", "bond0 br0"},
		"a team":                                 {[]string{one, two}, "eth0=1 eth1=1 team0=1", "eth0 eth1", "team0"},
		"a card beside the bond":                 {[]string{one, two, three}, "eth0=1 eth1=2 eth2=2 bond0=2", "eth0 eth1 eth2", "bond0"},
		"a card before it in the guest":          {[]string{one, two, three}, "eth0=1 eth1=1 eth2=3 bond0=1", "eth0 eth1 eth2", "bond0"},
		"two bonds":                              {[]string{one, two, three, "02:00:00:00:00:04"}, "eth0=1 eth1=1 eth2=4 eth3=4 bond0=1 bond1=4", "eth0 eth1 eth2 eth3", "bond0 bond1"},
		"a bond of one card":                     {[]string{one, two}, "eth0=1 eth1=2 bond0=1", "eth0 eth1", "bond0"},
		"a card for which the guest has nothing": {[]string{one, two}, "eth0=1 bond0=1", "eth0 -", "bond0"},
		"a device whose kind nobody knows":       {[]string{one, two}, "eth0=1 lan=1", "eth0 -", "lan"},
		"such a device on a bond":                {[]string{one, two}, "eth0=1 eth1=1 lan=1 bond0=1", "eth0 -", "bond0 eth1 lan"},
		"an address that two cards have":         {[]string{one, one}, "eth0=1 eth1=1", "eth0 eth1", ""},
	} {
		g, vmi := facts().Guest, instance()
		g.Interfaces = nil
		for i, mac := range c.nics {
			g.Interfaces = append(g.Interfaces, Interface{Name: fmt.Sprint("net", i), MAC: mac})
		}
		g.Agent = &Agent{}
		for _, device := range strings.Fields(c.reported) {
			is, mac, _ := strings.Cut(device, "=")
			g.Agent.Interfaces = append(g.Agent.Interfaces, v1.VirtualMachineInstanceNetworkInterface{InterfaceName: is, MAC: "02:00:00:00:00:0" + mac})
		}
		var got, others []string
		for i, status := range interfaces(vmi, g) {
			switch {
			case i >= len(c.nics):
				others = append(others, status.InterfaceName)
			case status.MAC != c.nics[i]:
				t.Errorf("%s: %s has the address %s", name, status.Name, status.MAC)
			case status.InterfaceName == "":
				got = append(got, "-")
			default:
				got = append(got, status.InterfaceName)
			}
		}
		if strings.Join(got, " ") != c.want || strings.Join(others, " ") != c.others {
			t.Errorf("%s: the cards are %q, want %q; the others are %q, want %q", name, got, c.want, others, c.others)
		}
	}
}

// A disk that was plugged into a running guest must keep its name, whatever is plugged and unplugged beside it.
func TestNamesOfDisksThatCome(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	add := func(name string, bus v1.DiskBus, hot bool) {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: hot},
		}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}}})
	}
	add("first", "", true) // before the disks of the start
	add("root", v1.DiskBusVirtio, false)
	add("kept", v1.DiskBusSCSI, true)
	add("data", v1.DiskBusSATA, false)
	add("fast", v1.DiskBusVirtio, true)
	have := []v1.VolumeStatus{
		{Name: "kept", Target: "sdf", HotplugVolume: &v1.HotplugVolumeStatus{}},
		{Name: "first", HotplugVolume: &v1.HotplugVolumeStatus{}}, // it has no name yet
		{Name: "root", Target: "vdz"},                             // a disk of the start: its name follows from the spec
	}
	want := map[string]string{"root": "vda", "data": "sda", "kept": "sdf", "first": "sdb", "fast": "vdb"}
	if diff := cmp.Diff(want, targets(vmi, have)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestHowManyFailedDisksAreNamed(t *testing.T) {
	disks := func(n int) (list []FailedDisk) {
		for i := range n {
			list = append(list, FailedDisk{Volume: fmt.Sprintf("d%d", i), Full: true})
		}
		return list
	}
	for n, want := range map[int]string{
		1: "The guest is stopped: there is no space left for disk d0. It continues",
		5: "there is no space left for disk d4. It continues",
		6: "there is no space left for disk d4; and 1 more disks failed. It continues",
	} {
		if got := stallMessage(disks(n), false); !strings.Contains(got, want) || strings.Count(got, "no space") > 5 {
			t.Errorf("%d disks: %q, want %q in it", n, got, want)
		}
	}
}

// A volume that is being plugged must not hide the names of the volumes after it in the spec.
func TestVolumesBehindOneThatComesCount(t *testing.T) {
	vmi := instance()
	plugging(vmi, v1.VolumeBound)
	slices.Reverse(vmi.Spec.Volumes)
	g := facts().Guest
	if list := volumes(vmi, vmi.Status.VolumeStatus, g); len(list) != 2 || list[0].Name != "plugged" || list[1].Name != "root" {
		t.Errorf("the volumes are %+v, want plugged and root", list)
	}
	alone := map[string]Volume{"root": {Claim: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
	if o := hindrancesOf(vmi, vmi.Status.VolumeStatus, alone, nil).all(); o == nil || !strings.Contains(o.Message, "PVC data is not shared") {
		t.Errorf("a claim for one node does not keep the VMI where it is: %+v", o)
	}
}

// No event reports the removal of a pod's folder, so virt-handler must look every two seconds.
func TestWhatIsLeftOfAPodIsLookedAtEveryTwoSeconds(t *testing.T) {
	gone := func(o *Observed) { o.Pod.Gone = true }
	if step, after := Next(observed(in(v1.Running), gone, changed)); step != Report || after != 2*time.Second {
		t.Errorf("%s after %v, want %s after 2s", step, after, Report)
	}
}
