package network

import (
	"fmt"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func podNetwork(name string) v1.Network {
	return v1.Network{Name: name, NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}
}

func TestPlanRefusesByTheFieldsPath(t *testing.T) {
	method := func(m v1.InterfaceBindingMethod) v1.Interface {
		return v1.Interface{Name: "default", InterfaceBindingMethod: m}
	}
	fine := method(v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}})
	with := func(change func(*v1.Interface)) v1.Interface {
		iface := fine
		change(&iface)
		return iface
	}
	second := with(func(i *v1.Interface) { i.Name = "second" })
	for name, c := range map[string]struct {
		interfaces []v1.Interface
		networks   []v1.Network
		want       string
	}{
		"no network of the interface's name": {
			[]v1.Interface{fine}, []v1.Network{podNetwork("other")},
			`spec.domain.devices.interfaces[0].name: no network in spec.networks is called "default"`,
		},
		"masquerade on a Multus network": {
			[]v1.Interface{fine}, []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{}}}},
			"spec.domain.devices.interfaces[0].masquerade: an interface on a multus network is connected by bridge or sriov",
		},
		"a network from nowhere": {
			[]v1.Interface{fine}, []v1.Network{{Name: "default"}},
			"spec.networks[0]: must say where the network comes from: pod or multus",
		},
		"SR-IOV": {
			[]v1.Interface{method(v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}})}, []v1.Network{podNetwork("default")},
			"spec.domain.devices.interfaces[0].sriov: only an interface on a multus network is a device of the node",
		},
		"a binding plugin": {
			[]v1.Interface{with(func(i *v1.Interface) { i.Binding = &v1.PluginBinding{Name: "passt"} })}, []v1.Network{podNetwork("default")},
			`spec.domain.devices.interfaces[0].binding.name: there is no network binding "passt" in the KubeVirt object's spec.configuration.network.binding, which has none`,
		},
		"no binding": {
			[]v1.Interface{method(v1.InterfaceBindingMethod{})}, []v1.Network{podNetwork("default")},
			"spec.domain.devices.interfaces[0]: must say how it is connected: masquerade or bridge",
		},
		"two interfaces on the pod network": {
			[]v1.Interface{fine, second}, []v1.Network{podNetwork("default"), podNetwork("second")},
			"spec.domain.devices.interfaces[1]: the pod network has one interface, and default is connected to it already",
		},
		"a port out of range": {
			[]v1.Interface{with(func(i *v1.Interface) { i.Ports = []v1.Port{{Port: 80}, {Port: 70000}} })}, []v1.Network{podNetwork("default")},
			"spec.domain.devices.interfaces[0].ports[1].port: 70000: must be from 1 to 65535",
		},
		"a range that ends before it starts": {
			[]v1.Interface{with(func(i *v1.Interface) { i.PortRanges = []v1.PortRange{{Protocol: "TCP", Start: 81, End: 80}} })}, []v1.Network{podNetwork("default")},
			"spec.domain.devices.interfaces[0].portRanges[0].port: 81-80: must be from 1 to 65535, the lower one first",
		},
		"an unknown protocol": {
			[]v1.Interface{with(func(i *v1.Interface) { i.Ports = []v1.Port{{Port: 80, Protocol: "SCTP"}} })}, []v1.Network{podNetwork("default")},
			`spec.domain.devices.interfaces[0].ports[0].protocol: "SCTP": must be TCP or UDP`,
		},
		"a MAC address that is none": {
			[]v1.Interface{with(func(i *v1.Interface) { i.MacAddress = "nonsense" })}, []v1.Network{podNetwork("default")},
			"spec.domain.devices.interfaces[0].macAddress: address nonsense: invalid MAC address",
		},
		"a guest network without room": {
			[]v1.Interface{fine},
			[]v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{VMNetworkCIDR: "10.1.2.0/31"}}}},
			"spec.networks: network default: pod.vmNetworkCIDR: 10.1.2.0/31: too small: the router and the guest need an address each",
		},
		"all errors at once": {
			[]v1.Interface{method(v1.InterfaceBindingMethod{}), second}, []v1.Network{podNetwork("default")},
			"spec.domain.devices.interfaces[0]: must say how it is connected: masquerade or bridge\n" +
				`spec.domain.devices.interfaces[1].name: no network in spec.networks is called "second"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Spec.Domain.Devices.Interfaces, vmi.Spec.Networks = c.interfaces, c.networks
			_, err := planInterfaces(vmi, Pod{})
			if err == nil || err.Error() != c.want {
				t.Errorf("got error\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestPlanLeavesAbsentInterfacesOut(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "gone", State: v1.InterfaceStateAbsent}}
	plans, err := planInterfaces(vmi, Pod{})
	if err != nil || len(plans) != 0 {
		t.Errorf("got %+v, %v", plans, err)
	}
}

func TestPlanRespectsTheGuestsNetwork(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name = "db." + strings.Repeat("x", 80)
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{
		Pod: &v1.PodNetwork{VMNetworkCIDR: "172.030.4.0/29", VMIPv6NetworkCIDR: "fd99::/64"},
	}}}
	plans, err := planInterfaces(vmi, Pod{})
	check(t, err)
	p := plans[0]
	for _, c := range []struct{ got, want string }{
		{p.subnet4.routerPrefix().String(), "172.30.4.1/29"},
		{p.subnet4.guestPrefix().String(), "172.30.4.2/29"},
		{p.subnet6.routerPrefix().String(), "fd99::1/64"},
		{p.subnet6.guest.String(), "fd99::2"},
		{p.options.hostname, "db"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestQueuesFollowTheCPUs(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		multi *bool
		cpu   *v1.CPU
		model string
		want  int
	}{
		"not asked for":             {nil, &v1.CPU{Cores: 4}, "", 1},
		"no topology":               {&yes, nil, "", 1},
		"cores by threads":          {&yes, &v1.CPU{Cores: 4, Threads: 2}, "", 8},
		"a model without queues":    {&yes, &v1.CPU{Cores: 4}, "e1000", 1},
		"more than a tap can have":  {&yes, &v1.CPU{Sockets: 2, Cores: 256}, v1.VirtIO, 256},
		"sockets, named as virtio ": {&yes, &v1.CPU{Sockets: 3}, v1.VirtIO, 3},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue = c.multi
		vmi.Spec.Domain.CPU = c.cpu
		if got := queues(vmi, &v1.Interface{Model: c.model}); got != c.want {
			t.Errorf("%s: %d queues, want %d", name, got, c.want)
		}
	}
}

func TestMultiQueueTapTakesSeveralQueues(t *testing.T) {
	w := newWorld(t, masquerade())
	yes := true
	w.vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue = &yes
	w.vmi.Spec.Domain.CPU = &v1.CPU{Cores: 2}
	made := w.setup(t, w.manager)
	if made.Queues != 2 {
		t.Fatalf("the interface has %d queues", made.Queues)
	}
	for range made.Queues {
		queue := openQueue(t, w.pod, made.Tap)
		defer queue.Close()
	}
}

func TestResolvConf(t *testing.T) {
	for name, c := range map[string]struct {
		text, subdomain string
		domain, search  string
		servers         int
		own             string
	}{
		"a pod's":                  {"nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local\n", "", "ns.svc.cluster.local", "ns.svc.cluster.local svc.cluster.local", 1, ""},
		"a pod's, subdomain":       {"nameserver 10.96.0.10\nsearch ns.svc.cluster.local\n", "web", "web.ns.svc.cluster.local", "web.ns.svc.cluster.local ns.svc.cluster.local", 1, ""},
		"empty":                    {"", "web", "", "", 0, ""},
		"comments, garbage":        {"# hello\nnameserver\nnameserver x.y\noptions ndots:5\nnameserver 192.0.2.1 # mine\n", "", "", "", 1, ""},
		"leading zeros":            {"nameserver 01.1.1.1\n", "", "", "", 1, ""},
		"the last list wins":       {"search a b\ndomain c\n", "", "c", "c", 0, ""},
		"an IPv6 server only":      {"nameserver fe80::1%eth0\n", "", "", "", 0, ""},
		"its own searches":         {"search web.ns.svc.cluster.local svc.cluster.local\n", "web", "web.ns.svc.cluster.local", "web.ns.svc.cluster.local svc.cluster.local", 0, "web.ns.svc.cluster.local svc.cluster.local"},
		"its own, elsewhere":       {"search example.com\n", "web", "web.example.com", "web.example.com example.com", 0, "example.com"},
		"its own, after the pod's": {"search ns.svc.cluster.local web.ns.svc.cluster.local\n", "web", "web.ns.svc.cluster.local", "ns.svc.cluster.local web.ns.svc.cluster.local", 0, "web.ns.svc.cluster.local"},
		"a namespace of the name":  {"search web.svc.cluster.local\n", "web", "web.web.svc.cluster.local", "web.web.svc.cluster.local web.svc.cluster.local", 0, ""},
	} {
		r := parseResolvConf(c.text)
		domain, search := r.domains(c.subdomain, strings.Fields(c.own))
		if domain != c.domain || strings.Join(search, " ") != c.search || len(r.servers4) != c.servers {
			t.Errorf("%s: domain %q, search %q, servers %v", name, domain, search, r.servers4)
		}
	}
}

func TestDHCPOptionsAreChecked(t *testing.T) {
	lease, err := plan{options: guestOptions{dhcp: v1.DHCPOptions{NTPServers: []string{"192.0.2.1", "0127.0.0.3"}}}}.lease(Pod{}, nil, 0)
	check(t, err)
	if got := fmt.Sprint(lease.NTP); got != "[192.0.2.1 127.0.0.3]" {
		t.Errorf("NTP servers %s", got)
	}
	for want, options := range map[string]v1.DHCPOptions{
		`x.dhcpOptions.ntpServers[1]: "ntp.example": must be an IPv4 address`: {NTPServers: []string{"192.0.2.1", "ntp.example"}},
		"x.dhcpOptions.privateOptions[0].option: 6: must be from 224 to 254":  {PrivateOptions: []v1.DHCPPrivateOptions{{Option: 6}}},
	} {
		_, err := plan{path: "x", options: guestOptions{dhcp: options}}.lease(Pod{}, nil, 0)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
