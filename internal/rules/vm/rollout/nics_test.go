package rollout

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

func bridged(name string) v1.Interface {
	return v1.Interface{Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}}
}

func attached(name string) v1.Network {
	return v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}}
}

func nicState(name string, state v1.InterfaceState) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		s.Domain.Devices.Interfaces[index(s.Domain.Devices.Interfaces, name)].State = state
	}
}

// nic adds an interface with its network, at the end.
func nic(name string, edits ...func(*v1.Interface)) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		iface := bridged(name)
		for _, edit := range edits {
			edit(&iface)
		}
		s.Domain.Devices.Interfaces = append(s.Domain.Devices.Interfaces, iface)
		s.Networks = append(s.Networks, attached(name))
	}
}

func without(name string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		s.Domain.Devices.Interfaces = slices.DeleteFunc(s.Domain.Devices.Interfaces, func(i v1.Interface) bool { return i.Name == name })
		s.Networks = slices.DeleteFunc(s.Networks, func(n v1.Network) bool { return n.Name == name })
	}
}

func severalNICs(names ...string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		for _, name := range names {
			nic(name)(s)
		}
	}
}

func bare(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.Interfaces, s.Networks = nil, nil }

// bareButDefault is the result of admission for a VMI without interfaces.
func bareButDefault(s *v1.VirtualMachineInstanceSpec) { without("red")(s) }

func swapped(s *v1.VirtualMachineInstanceSpec) { slices.Reverse(s.Domain.Devices.Interfaces) }

func swappedNetworks(s *v1.VirtualMachineInstanceSpec) { slices.Reverse(s.Networks) }

func fixedMachine(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.DisableHotplug = true }

func onOtherNetwork(name string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		networkOf(s.Networks, name).Multus = &v1.MultusNetwork{NetworkName: "another"}
	}
}

// bound connects an interface by a network binding.
func bound(i *v1.Interface) {
	i.InterfaceBindingMethod, i.Binding = v1.InterfaceBindingMethod{}, &v1.PluginBinding{Name: "mine"}
}

func boundRed(s *v1.VirtualMachineInstanceSpec) {
	bound(&s.Domain.Devices.Interfaces[index(s.Domain.Devices.Interfaces, "red")])
}

func onPodNetwork(name string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		networkOf(s.Networks, name).NetworkSource = v1.NetworkSource{Pod: &v1.PodNetwork{}}
	}
}

func first(name string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		nic(name)(s)
		list := s.Domain.Devices.Interfaces
		s.Domain.Devices.Interfaces = append([]v1.Interface{list[len(list)-1]}, list[:len(list)-1]...)
	}
}

func podNIC(s *v1.VirtualMachineInstanceSpec) {
	s.Domain.Devices.Interfaces = append(s.Domain.Devices.Interfaces, bridged("more"))
	s.Networks = append(s.Networks, v1.Network{Name: "more", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}})
}

func TestWhichWayAnInterfaceReachesTheGuest(t *testing.T) {
	const absent, down = v1.InterfaceStateAbsent, v1.InterfaceStateLinkDown
	masquerade := func(i *v1.Interface) {
		i.InterfaceBindingMethod = v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}
	}
	device := func(i *v1.Interface) {
		i.InterfaceBindingMethod = v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}
	}
	eight := []string{"n2", "n3", "n4", "n5", "n6", "n7"}
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		phase    v1.VirtualMachineInstancePhase
		// started is the VMI at its creation, has its present state, if that differs.
		started, has, wants []specEdit
		// want lists "path: way: reason" of interfaces, without their common prefix.
		want string
	}{
		"one more":                               {wants: []specEdit{nic("blue")}, want: "blue live plug"},
		"one more that is a device":              {wants: []specEdit{nic("blue", device)}, want: "blue live plug"},
		"one by bridge and one that is a device": {wants: []specEdit{nic("blue"), nic("green", device)}, want: "blue live plug, green live plug"},
		"a device that is to be absent":          {has: []specEdit{nic("blue", device)}, wants: []specEdit{nic("blue", device), nicState("blue", absent)}, want: "blue.state live plug"},
		"one more, down":                         {wants: []specEdit{nic("blue"), nicState("blue", down)}, want: "blue live plug"},
		"one more, of the model virtio":          {wants: []specEdit{nic("blue", func(i *v1.Interface) { i.Model = "virtio" })}, want: "blue live plug"},
		"one more that is there":                 {has: []specEdit{nic("blue")}, wants: []specEdit{nic("blue")}},
		"one more that is to be down":            {has: []specEdit{nic("blue")}, wants: []specEdit{nic("blue"), nicState("blue", down)}, want: "blue.state live link"},
		"four more":                              {wants: []specEdit{severalNICs("b", "c", "d", "e")}, want: "b live plug, c live plug, d live plug, e live plug"},
		"the change is taken back":               {has: []specEdit{nic("blue")}, want: "blue live plug"},
		"the change of two is taken back":        {has: []specEdit{severalNICs("b", "c")}, want: "b live plug, c live plug"},
		"the first of two is taken back":         {has: []specEdit{severalNICs("b", "c")}, wants: []specEdit{nic("c")}, want: "b restart order"},
		"one more, with Stage":                   {strategy: stage, wants: []specEdit{nic("blue")}, want: "blue restart staged"},
		"one more, before the guest runs":        {phase: v1.Scheduled, wants: []specEdit{nic("blue")}, want: "blue restart early"},
		"one that was plugged, with Stage":       {strategy: stage, has: []specEdit{nic("blue")}, wants: []specEdit{nic("blue")}},
		"it is taken back too late":              {strategy: stage, has: []specEdit{nic("blue")}, want: "blue restart staged"},
		"one becomes absent":                     {wants: []specEdit{red(absent)}, want: "red.state live plug"},
		"one that is absent comes back":          {has: []specEdit{red(absent)}, want: "red.state live plug"},
		"one that is absent comes back down":     {has: []specEdit{red(absent)}, wants: []specEdit{red(down)}, want: "red.state live plug"},
		"one becomes absent, with Stage":         {strategy: stage, wants: []specEdit{red(absent)}, want: "red.state restart staged"},
		"one that is absent":                     {has: []specEdit{red(absent)}, wants: []specEdit{red(absent)}},
		"the pod's becomes absent":               {wants: []specEdit{nicState("default", absent)}, want: "default.state restart pod"},
		"one of a binding becomes absent":        {started: []specEdit{boundRed}, wants: []specEdit{boundRed, red(absent)}, want: "red.state restart network"},
		"the link of one of a binding":           {started: []specEdit{boundRed}, wants: []specEdit{boundRed, red(down)}, want: "red.state live link"},
		"another network of one of a binding":    {started: []specEdit{boundRed}, wants: []specEdit{boundRed, onOtherNetwork("red")}, want: "red.name migration move"},
		"one more by a binding":                  {wants: []specEdit{nic("blue", bound)}, want: "blue restart network"},
		"the last one goes":                      {wants: []specEdit{without("red")}, want: "red live plug"},
		"the pod's goes":                         {wants: []specEdit{without("default")}, want: "default restart pod"},
		"all go but that of the pod":             {wants: []specEdit{bare}, want: "red live plug"},
		"none is named, and none is there":       {started: []specEdit{bare}, has: []specEdit{bareButDefault}, wants: []specEdit{bare}},
		"another one, where none was named":      {started: []specEdit{bare}, has: []specEdit{bareButDefault}, wants: []specEdit{without("red"), nic("blue")}, want: "blue live plug"},
		"it is taken back where none was named":  {started: []specEdit{bare}, has: []specEdit{bareButDefault, nic("blue")}, wants: []specEdit{bare}, want: "blue live plug"},
		"one in the midst goes":                  {started: []specEdit{nic("blue")}, has: []specEdit{nic("blue")}, wants: []specEdit{without("red"), nic("blue")}, want: "red restart order"},
		"another model of the first one":         {wants: []specEdit{func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.Interfaces[0].Model = "e1000" }}, want: "*"},
		"another model, which the VMI has":       {has: []specEdit{func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.Interfaces[0].Model = "e1000" }}},
		"one that was absent goes":               {has: []specEdit{nic("blue"), red(absent)}, wants: []specEdit{nic("blue"), without("red")}, want: "red restart order"},
		"one for another":                        {wants: []specEdit{without("red"), nic("blue")}, want: "blue restart order, red restart order"},
		"one more before the others":             {wants: []specEdit{first("blue")}, want: "blue restart order"},
		"in another order":                       {wants: []specEdit{swapped}, want: "*"},
		"networks in another order":              {wants: []specEdit{swappedNetworks, nic("blue")}, want: "blue live plug"},
		"another network":                        {wants: []specEdit{onOtherNetwork("red")}, want: "red.name migration move"},
		"another network, with Stage":            {strategy: stage, wants: []specEdit{onOtherNetwork("red")}, want: "red.name restart staged"},
		"another network, before it runs":        {phase: v1.Scheduled, wants: []specEdit{onOtherNetwork("red")}, want: "red.name restart early"},
		"another network, which the VMI has":     {has: []specEdit{onOtherNetwork("red")}, wants: []specEdit{onOtherNetwork("red")}},
		"another network is taken back":          {has: []specEdit{onOtherNetwork("red")}, want: "red.name migration move"},
		"another network is kept, with Stage":    {strategy: stage, has: []specEdit{onOtherNetwork("red")}, wants: []specEdit{onOtherNetwork("red")}},
		"another network is left too late":       {strategy: stage, has: []specEdit{onOtherNetwork("red")}, want: "red.name restart staged"},
		"another network of one that was added":  {has: []specEdit{nic("blue")}, wants: []specEdit{nic("blue"), onOtherNetwork("blue")}, want: "blue.name migration move"},
		"another network of one that is absent":  {has: []specEdit{red(absent)}, wants: []specEdit{onOtherNetwork("red"), red(absent)}, want: "red.name live plug"},
		"another network of one that goes":       {wants: []specEdit{onOtherNetwork("red"), red(absent)}, want: "red.state live plug, red.name live plug"},
		"another network of the first one, which goes": {started: []specEdit{first("blue")}, wants: []specEdit{first("blue"), nicState("blue", absent), onOtherNetwork("blue")},
			want: "blue.state live plug, blue.name live plug"},
		"another network of one that comes back": {has: []specEdit{red(absent)}, wants: []specEdit{onOtherNetwork("red")},
			want: "red.state live plug, red.name migration move"},
		"another network, and one more":            {wants: []specEdit{onOtherNetwork("red"), nic("blue")}, want: "blue live plug, red.name migration move"},
		"the pods' network for one of Multus'":     {wants: []specEdit{onPodNetwork("red")}, want: "*"},
		"a network of Multus' for the pods'":       {started: []specEdit{onPodNetwork("red")}, has: []specEdit{onPodNetwork("red")}, wants: []specEdit{onOtherNetwork("red")}, want: "*"},
		"the default network of the launcher pods": {wants: []specEdit{func(s *v1.VirtualMachineInstanceSpec) { networkOf(s.Networks, "red").Multus.Default = true }}, want: "*"},
		"by masquerade":                            {wants: []specEdit{nic("blue", masquerade)}, want: "blue restart network"},
		"on the pods' network":                     {wants: []specEdit{podNIC}, want: "more restart network"},
		"without a network":                        {wants: []specEdit{nic("blue"), func(s *v1.VirtualMachineInstanceSpec) { s.Networks = s.Networks[:2] }}, want: "blue restart network"},
		"of another model":                         {wants: []specEdit{nic("blue", func(i *v1.Interface) { i.Model = "e1000" })}, want: "blue restart model"},
		"with a PCI address":                       {wants: []specEdit{nic("blue", func(i *v1.Interface) { i.PciAddress = "0000:05:00.0" })}, want: "blue restart place"},
		"with an ACPI index":                       {wants: []specEdit{nic("blue", func(i *v1.Interface) { i.ACPIIndex = 7 })}, want: "blue restart place"},
		"to boot from":                             {wants: []specEdit{nic("blue", func(i *v1.Interface) { i.BootOrder = new(uint(1)) })}, want: "blue restart place"},
		"into a machine that takes none":           {started: []specEdit{fixedMachine}, has: []specEdit{fixedMachine}, wants: []specEdit{fixedMachine, nic("blue")}, want: "blue restart fixed"},
		"the eighth":                               {has: []specEdit{severalNICs(eight[:5]...)}, wants: []specEdit{severalNICs(eight...)}, want: "n7 live plug"},
		"the ninth":                                {has: []specEdit{severalNICs(eight...)}, wants: []specEdit{severalNICs(eight...), nic("n8")}, want: "n8 restart ports"},
		"one after one that waits": {wants: []specEdit{nic("blue", func(i *v1.Interface) { i.Model = "e1000" }), nic("green"), nic("grey")},
			want: "blue restart model, green restart order, grey restart order"},
		"one after one that waits, with Stage": {strategy: stage, wants: []specEdit{nic("blue", masquerade), nic("green")}, want: "blue restart staged, green restart staged"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Strategy: test.strategy, VMName: "vm", Started: spec(test.started...), Template: spec(test.wants...)}
			if in.Strategy == "" {
				in.Strategy = liveUpdate
			}
			if test.phase == "" {
				test.phase = v1.Running
			}
			if test.has == nil {
				test.has = test.started
			}
			in.VMI = machineOf(test.phase, spec(test.has...))
			in.Plugged = volumemigration.TemplateForPlugging(in.VMI, in.Template, true, nil)
			carried(t, in)
			got := Compare(in)
			if test.want == "*" {
				if len(got) == 0 || slices.ContainsFunc(got, func(c Change) bool { return c.Way != Restart || c.Reason != ReasonMachine }) {
					t.Errorf("got\n%s\nwant a restart for the machine's sake", text(got))
				}
				return
			}
			if is := summary(got); is != test.want {
				t.Errorf("got\n%s\nwant\n%s", is, test.want)
			}
		})
	}
}

// Each change must also exist for the network.
func summary(changes []Change) string {
	reasons := map[string]string{
		ReasonNIC: "plug", ReasonLink: "link", ReasonStaged: "staged", ReasonNotRunning: "early", ReasonNICOrder: "order", ReasonPodNIC: "pod",
		ReasonNICNetwork: "network", ReasonNICModel: "model", ReasonNICPlace: "place", ReasonNICPorts: "ports", ReasonNICFixed: "fixed",
		ReasonNetwork: "move",
	}
	var ifaces, networks []string
	for _, c := range changes {
		says := " " + string(c.Way) + " " + reasons[c.Reason]
		iface := strings.NewReplacer("spec.template.spec.domain.devices.interfaces[", "", "]", "").Replace(c.Path)
		network := strings.NewReplacer("spec.template.spec.networks[", "", "]", "").Replace(c.Path)
		network = strings.Replace(network, ".multus.networkName", ".name", 1)
		switch {
		case strings.HasSuffix(network, ".name"):
			ifaces, networks = append(ifaces, network+says), append(networks, network+says)
		case strings.HasSuffix(c.Path, ".state"):
			ifaces, networks = append(ifaces, iface+says), append(networks, iface+says)
		case iface != c.Path && !strings.HasPrefix(iface, "spec"):
			ifaces = append(ifaces, iface+says)
		default:
			networks = append(networks, network+says)
		}
	}
	if !slices.Equal(ifaces, networks) {
		return text(changes)
	}
	return strings.Join(ifaces, ", ")
}

// The VMI must have the interfaces in the template's order, and changes of it must not reach the template.
func TestTheVMIHasWhatItsTemplateHas(t *testing.T) {
	vmi, template := machineOf(v1.Running, spec()), spec(nic("blue"), nic("green"), red(v1.InterfaceStateAbsent), onOtherNetwork("red"))
	template.Domain.Memory.Guest = new(resource.MustParse("1Gi"))
	if !Carry(liveUpdate, vmi, template) {
		t.Fatal("nothing is carried")
	}
	for i, want := range template.Domain.Devices.Interfaces {
		if got := vmi.Spec.Domain.Devices.Interfaces[i]; got.Name != want.Name || got.State != want.State || vmi.Spec.Networks[i].Name != want.Name {
			t.Errorf("interface %d is %+v on %+v", i, got, vmi.Spec.Networks[i])
		}
	}
	if vmi.Spec.Networks[1].Multus.NetworkName != "another" {
		t.Errorf("red is on %+v", vmi.Spec.Networks[1])
	}
	template.Domain.Devices.Interfaces[2].Bridge, template.Networks[2].Multus.NetworkName = nil, "other"
	if vmi.Spec.Domain.Devices.Interfaces[2].Bridge == nil || vmi.Spec.Networks[2].Multus.NetworkName != "blue" {
		t.Error("the VMI shares its interface with the template")
	}
	before := vmi.DeepCopy()
	if Carry(liveUpdate, vmi, spec(nic("blue"), nic("green"), red(v1.InterfaceStateAbsent), onOtherNetwork("red"))) || len(vmi.Spec.Networks) != len(before.Spec.Networks) {
		t.Error("it is carried twice")
	}
}
