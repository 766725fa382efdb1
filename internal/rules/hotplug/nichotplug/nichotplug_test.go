package nichotplug

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

type edit func(*v1.VirtualMachineInstance)

// instance is a VMI in namespace lab with an interface on the pods' network, and others on networks of the same name.
func instance(networks []string, edits ...edit) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace = "lab"
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default"}}
	for _, name := range networks {
		vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}})
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: name})
	}
	for _, e := range edits {
		e(vmi)
	}
	return vmi
}

func state(name string, state v1.InterfaceState) edit {
	return func(vmi *v1.VirtualMachineInstance) { launcherpod.InterfaceOf(vmi, name).State = state }
}

// onto moves the interface to the network "lab/another".
func onto(name, network string) edit {
	return func(vmi *v1.VirtualMachineInstance) { networkOf(vmi, name).Multus.NetworkName = network }
}

// device makes the interface blue a device of the node.
func device(vmi *v1.VirtualMachineInstance) {
	launcherpod.InterfaceOf(vmi, "blue").SRIOV = &v1.InterfaceSRIOV{}
}

func inGuest(name, source string) edit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Interfaces = append(vmi.Status.Interfaces, v1.VirtualMachineInstanceNetworkInterface{Name: name, InfoSource: source})
	}
}

func withoutInterface(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Interfaces = vmi.Spec.Domain.Devices.Interfaces[:1]
}

// onNetwork returns a network-status in which the interface blue is on a network.
func onNetwork(network string) string {
	return fmt.Sprintf(`[{"name":%q,"interface":%q}]`, network, layout.SecondaryInterface("blue"))
}

// status returns a network-status with an interface for each network "lab/name".
func status(networks ...string) string {
	type entry struct{ Name, Interface string }
	list := []entry{{"cbr0", "eth0"}}
	for _, n := range networks {
		list = append(list, entry{n, layout.SecondaryInterface(n[strings.Index(n, "/")+1:])})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func podWith(made *v1.VirtualMachineInstance, text string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Spec.NodeName = "pod", "node1"
	networks := launcherpod.Networks(made)
	pod.Annotations = map[string]string{launcherpod.NetworksAnnotation: networks, launcherpod.MadeWithAnnotation: networks}
	if text != "" {
		pod.Annotations[StatusAnnotation] = text
	}
	return pod
}

func nonsense(made *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	made.Annotations = map[string]string{launcherpod.NetworksAnnotation: "x"}
	made.Spec.Networks = nil
	return made
}

// statusOfDevices returns a network-status with an interface for each "name device", on the network lab/name.
func statusOfDevices(list ...string) string {
	var entries []string
	for _, of := range list {
		name, address, _ := strings.Cut(of, " ")
		entries = append(entries, fmt.Sprintf(`{"name":"lab/%s","interface":%q,"device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}}`, name, layout.SecondaryInterface(name), address))
	}
	return "[" + strings.Join(entries, ",") + "]"
}

const (
	anAddress    = "0000:65:00.2"
	withoutAName = "the launcher pod pod was made with it, and its annotation k8s.v1.cni.cncf.io/network-status names no PCI device of it (device-info)"
)

const futile = "the launcher pod pod was made with it, and Multus has not said that it is there; look at the pod's annotation " +
	"k8s.v1.cni.cncf.io/network-status, and whether Multus runs on node node1"

func TestWhatOnlyAnotherPodBrings(t *testing.T) {
	red, blue := layout.SecondaryInterface("red"), layout.SecondaryInterface("blue")
	two := []string{"red", "blue"}
	plug := func(name string) migrationrequired.Need {
		return migrationrequired.Need{What: "interface " + name + " is to be plugged"}
	}
	unplug := migrationrequired.Need{What: "interface blue is to be unplugged from the launcher pod"}
	surplus := func(names string) migrationrequired.Need {
		return migrationrequired.Need{What: "the launcher pod is to lose interfaces that the VMI does not have any more: " + names}
	}
	one := instance([]string{"red"})
	move := func(from, futile string) []migrationrequired.Need {
		return []migrationrequired.Need{{What: "interface blue is to be on network lab/green, and its launcher pod is on " + from, AtOnce: true, Futile: futile}}
	}
	const kept = "the guest has not released blue yet, and is not migrated before"
	inVain := func(why string, needs ...migrationrequired.Need) []migrationrequired.Need {
		for i := range needs {
			needs[i].Futile = why
		}
		return needs
	}
	blue1, guest := []string{"blue"}, inGuest("blue", "domain, multus-status")
	green := instance(blue1, onto("blue", "green"))
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		made *v1.VirtualMachineInstance
		text string
		want []migrationrequired.Need
	}{
		"the pods' network alone":                   {vmi: instance(nil), made: instance(nil)},
		"all that it was made with":                 {vmi: one, made: one, text: status("lab/red")},
		"another interface":                         {vmi: instance(two), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"which was attached in place":               {vmi: instance(two), made: one, text: status("lab/red", "lab/blue")},
		"which is on another network":               {vmi: instance(two), made: one, text: status("lab/red", "other/blue"), want: []migrationrequired.Need{plug("blue")}},
		"which the guest has":                       {vmi: instance(two, inGuest("blue", "domain, guest-agent")), made: one, text: status("lab/red")},
		"which the pod alone has":                   {vmi: instance(two, inGuest("blue", "multus-status")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"which is of another name":                  {vmi: instance(two, inGuest("red", "domain")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"whose link is to be down":                  {vmi: instance(two, state("blue", "down")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"which is absent":                           {vmi: instance(two, state("blue", "absent")), made: one, text: status("lab/red")},
		"one that is absent now":                    {vmi: instance(two, state("blue", "absent")), made: instance(two), text: status("lab/red", "lab/blue"), want: []migrationrequired.Need{unplug}},
		"one that has gone in place":                {vmi: instance(two, state("blue", "absent")), made: instance(two), text: status("lab/red")},
		"both at once":                              {vmi: instance([]string{"blue", "green"}, state("blue", "absent")), made: instance([]string{"blue"}), text: status("lab/blue"), want: []migrationrequired.Need{unplug, plug("green")}},
		"a device":                                  {vmi: instance(two, device), made: one, text: status("lab/red"), want: []migrationrequired.Need{{What: "interface blue is to be plugged", AtOnce: true}}},
		"a device and another one":                  {vmi: instance([]string{"blue", "green"}, device), made: instance(nil), want: []migrationrequired.Need{{What: "interface blue is to be plugged", AtOnce: true}, plug("green")}},
		"a device that the pod has":                 {vmi: instance(blue1, device), made: instance(blue1, device), text: statusOfDevices("blue " + anAddress)},
		"a device that is none in the pod":          {vmi: instance(blue1, device), made: instance(nil), text: status("lab/blue"), want: []migrationrequired.Need{{What: "interface blue is to be plugged", AtOnce: true}}},
		"a device of no address":                    {vmi: instance(blue1, device), made: instance(blue1), text: statusOfDevices("blue x"), want: []migrationrequired.Need{{What: "interface blue is to be plugged", AtOnce: true, Futile: withoutAName}}},
		"a device that it was made with in vain":    {vmi: instance(blue1, device), made: instance(blue1), text: status(), want: []migrationrequired.Need{{What: "interface blue is to be plugged", AtOnce: true, Futile: futile}}},
		"a device that the guest has":               {vmi: instance(blue1, device, guest), made: instance(blue1), text: status("lab/blue")},
		"a device that is absent":                   {vmi: instance(blue1, device, state("blue", "absent")), made: instance(blue1), text: statusOfDevices("blue " + anAddress), want: []migrationrequired.Need{unplug}},
		"it was made with it in vain":               {vmi: instance(two), made: instance(two), text: status("lab/red"), want: []migrationrequired.Need{{What: "interface blue is to be plugged", Futile: futile}}},
		"it was made without Multus":                {vmi: one, made: instance(nil), want: []migrationrequired.Need{plug("red")}},
		"one that the VMI has no more":              {vmi: instance(nil), made: instance(nil), text: status("lab/red", "lab/blue"), want: []migrationrequired.Need{surplus(blue + ", " + red)}},
		"another network of one that the guest has": {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(blue1), text: status("lab/blue"), want: move("lab/blue", "")},
		"which it was moved to in place":            {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(blue1), text: onNetwork("lab/green")},
		"which it was made with":                    {vmi: instance(blue1, guest, onto("blue", "lab/green")), made: green, text: onNetwork("lab/green")},
		"which it was made with, nobody says":       {vmi: instance(blue1, guest, onto("blue", "green")), made: green},
		"which it was made without, nobody says":    {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(blue1), want: move("lab/blue", "")},
		"which it was made with in vain":            {vmi: instance(blue1, guest, onto("blue", "green")), made: green, text: status("lab/blue"), want: move("lab/blue", futile)},
		"of which nobody knows where it is":         {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(nil)},
		"which is said to be nowhere":               {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(nil), text: onNetwork("")},
		"which is said to be in a strange place":    {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(blue1), text: onNetwork("lab/Blue\n"), want: move("another", "")},
		"which is said to be in a far place": {vmi: instance(blue1, guest, onto("blue", "green")), made: instance(blue1),
			text: onNetwork("lab/" + strings.Repeat("x", 254)), want: move("another", "")},
		"another network of one that is not plugged":               {vmi: instance(blue1, onto("blue", "green")), made: instance(blue1), text: status("lab/blue"), want: []migrationrequired.Need{plug("blue")}},
		"another network of one that is absent":                    {vmi: instance(blue1, guest, onto("blue", "green"), state("blue", "absent")), made: instance(blue1), text: status("lab/blue"), want: inVain(kept, unplug)},
		"one that the guest has not released":                      {vmi: instance(two, guest, state("blue", "absent")), made: instance(two), text: status("lab/red", "lab/blue"), want: inVain(kept, unplug)},
		"one that the guest has not released and the pod has lost": {vmi: instance(two, guest, state("blue", "absent")), made: instance(two), text: status("lab/red")},
		"one that the guest has not released beside one to come": {vmi: instance([]string{"blue", "green"}, guest, state("blue", "absent")), made: instance(blue1), text: status("lab/blue"),
			want: inVain(kept, unplug, plug("green"))},
		"one that the guest has not released and nobody knows": {vmi: instance([]string{"red"}, guest), made: instance(blue1), text: status("lab/blue"),
			want: inVain(kept, plug("red"), surplus(blue))},
		"one of no name":              {vmi: instance(two, inGuest("", "domain")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"a network without interface": {vmi: instance([]string{"red"}, withoutInterface), made: one, text: status(), want: nil},
		"others' interfaces":          {vmi: one, made: one, text: `[{"name":"lab/x","interface":"net1"},{"name":"lab/red","interface":"` + red + `"}]`},
		"nonsense":                    {vmi: instance(two), made: one, text: `{"name":"lab/red"}`, want: []migrationrequired.Need{{What: "interface red is to be plugged", Futile: futile}, plug("blue")}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Needs(c.vmi, podWith(c.made, c.text)); !slices.Equal(got, c.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, c.want)
			}
		})
	}
}

func TestWhatAPodSaysIsBounded(t *testing.T) {
	red := layout.SecondaryInterface("red")
	entry := fmt.Sprintf(`{"name":"lab/red","interface":%q}`, red)
	long := func(length int) string {
		text := "[" + entry + "]"
		return text + strings.Repeat(" ", length-len(text))
	}
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"nothing":            {"", 0},
		"as long as may be":  {long(MaxAnnotation), 1},
		"too long":           {long(MaxAnnotation + 1), 0},
		"as many as may be":  {"[" + strings.Repeat(`{},`, 255) + entry + "]", 1},
		"too many":           {"[" + strings.Repeat(`{},`, 256) + entry + "]", 0},
		"in part nonsense":   {"[" + entry + strings.Repeat(" ", 600) + ", 5]", 0},
		"another one's name": {`[{"name":"lab/red","interface":"pod0123456789g"},{"name":"lab/red","interface":"pod0123456789ab"},{"name":"lab/red","interface":"xpod0123456789a"}]`, 0},
	} {
		pod := podWith(instance(nil), c.text)
		if got := ReadStatus(pod); len(got) != c.want {
			t.Errorf("%s: it has %v, want %d", name, got, c.want)
		}
		made := strings.ReplaceAll(c.text, `"name":"lab/red"`, `"namespace":"lab","name":"red"`)
		if len(c.text) > 500 && len(c.text) < MaxAnnotation {
			pod.Annotations[launcherpod.MadeWithAnnotation] = made
			if got := madeWith(pod); got.lists(launcherpod.Attachment{Namespace: "lab", Name: "red", Interface: red}) != (c.want == 1) {
				t.Errorf("%s: it was made with %d", name, len(got))
			}
		}
	}
}

// crowd returns the request of a pod for this many networks beside red.
func crowd(others int) string {
	return "[" + strings.Repeat(`{"name":"x"},`, others) + strings.TrimPrefix(launcherpod.Networks(instance([]string{"red"})), "[")
}

// An interface that somebody has moved in place must be requested on its new network.
func TestAPodIsAskedForWhatItHas(t *testing.T) {
	vmi := instance([]string{"blue"}, inGuest("blue", "domain"), onto("blue", "green"))
	if got, changes := Networks(vmi, podWith(instance([]string{"blue"}), onNetwork("lab/green"))); got != launcherpod.Networks(vmi) || !changes {
		t.Errorf("it is asked for %s", got)
	}
}

// An interface that the pod has may be in the guest, even if the VMI's status does not show it yet. It must stay.
func TestWhatThePodHasStaysWhereItIs(t *testing.T) {
	on, moved := instance([]string{"blue"}), instance([]string{"blue"}, onto("blue", "green"))
	if got, changes := Networks(moved, podWith(on, onNetwork("lab/blue"))); got != launcherpod.Networks(on) || changes {
		t.Errorf("a pod that has it is asked for %s", got)
	}
	if got, changes := Networks(moved, podWith(on, "")); got != launcherpod.Networks(moved) || !changes {
		t.Errorf("a pod that has not is asked for %s", got)
	}
}

// A hotplugged interface must be in the pod, and requested.
func TestWhatAPodHasToPlug(t *testing.T) {
	on, moved := instance([]string{"blue"}), instance([]string{"blue"}, onto("blue", "green"))
	is := layout.SecondaryInterface("blue")
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want Attached
	}{
		"what it has and is asked for":              {podWith(on, onNetwork("lab/blue")), Attached{is: "lab/blue"}},
		"what it has, and is asked for elsewhere":   {podWith(moved, onNetwork("lab/blue")), Attached{}},
		"what it has, and is not asked for":         {podWith(instance(nil), onNetwork("lab/blue")), Attached{}},
		"what it is asked for, and is not there":    {podWith(on, ""), nil},
		"what it has, and is asked for in nonsense": {podWith(nonsense(on), onNetwork("lab/blue")), Attached{}},
	} {
		if got := InPod(c.pod); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatAPodIsAskedFor(t *testing.T) {
	one, two := instance([]string{"red"}), instance([]string{"red", "blue"})
	theirs := `[{"name":"x"}]`
	asking := func(vmi *v1.VirtualMachineInstance, text string) *v1.VirtualMachineInstance {
		vmi.Annotations = map[string]string{launcherpod.NetworksAnnotation: text}
		return vmi
	}
	for name, c := range map[string]struct {
		vmi     *v1.VirtualMachineInstance
		is      string
		want    string
		changes bool
	}{
		"the pods' network alone":            {instance(nil), "", "", false},
		"what it is asked already":           {one, launcherpod.Networks(one), launcherpod.Networks(one), false},
		"one more":                           {two, launcherpod.Networks(one), launcherpod.Networks(two), true},
		"the first":                          {one, "", launcherpod.Networks(one), true},
		"one less":                           {instance([]string{"red", "blue"}, state("blue", "absent")), launcherpod.Networks(two), launcherpod.Networks(one), true},
		"none any more":                      {instance(nil), launcherpod.Networks(one), "", true},
		"what somebody else has asked of it": {instance(nil), theirs, "", false},
		"what somebody else has asked of it in nonsense": {instance(nil), "x", "", false},
		"what somebody else has asked of one of ours":    {one, theirs, launcherpod.Networks(one), true},
		"another network of one that the guest has":      {instance([]string{"red"}, inGuest("red", "domain"), onto("red", "green")), launcherpod.Networks(one), launcherpod.Networks(one), false},
		"another network of one that the guest has, and one more": {instance([]string{"red", "blue"}, inGuest("red", "domain"), onto("red", "green")),
			launcherpod.Networks(one), launcherpod.Networks(two), true},
		"another network of one that is not plugged": {instance([]string{"red"}, inGuest("red", "multus-status"), onto("red", "green")), launcherpod.Networks(one),
			launcherpod.Networks(instance([]string{"red"}, onto("red", "green"))), true},
		"another network of one that was not asked for": {instance([]string{"red"}, inGuest("red", "domain"), onto("red", "green")), theirs,
			launcherpod.Networks(instance([]string{"red"}, onto("red", "green"))), true},
		"another network of too many": {instance([]string{"red"}, inGuest("red", "domain"), onto("red", "green")), crowd(256),
			launcherpod.Networks(instance([]string{"red"}, onto("red", "green"))), true},
		"another network of as many as may be": {instance([]string{"red"}, inGuest("red", "domain"), onto("red", "green")), crowd(255), launcherpod.Networks(one), true},
		"what the VMI's owner asks for":        {asking(instance(nil), theirs), theirs, theirs, false},
		"what the VMI's owner asked for":       {asking(instance(nil), theirs), launcherpod.Networks(one), theirs, true},
	} {
		pod := podWith(one, "")
		pod.Annotations[launcherpod.NetworksAnnotation] = c.is
		if got, changes := Networks(c.vmi, pod); got != c.want || changes != c.changes {
			t.Errorf("%s: %s, %v; want %s, %v", name, got, changes, c.want, c.changes)
		}
	}
}

// The plugins of network bindings must stay requested as long as the pod exists.
func TestWhatAPodWasMadeWithForBindingsStays(t *testing.T) {
	made := `[{"name":"red","namespace":"lab","interface":"` + layout.SecondaryInterface("red") + `"},{"name":"tapper","namespace":"lab","cni-args":{"logicNetworkName":"default"}}]`
	pod := podWith(instance(nil), "")
	pod.Annotations[launcherpod.NetworksAnnotation], pod.Annotations[launcherpod.MadeWithAnnotation] = made, made
	if got, changes := Networks(instance([]string{"red"}), pod); got != made || changes {
		t.Errorf("it is asked for %s", got)
	}
	if got, changes := Networks(instance(nil), pod); got != made[:1]+made[strings.Index(made, `{"name":"tapper"`):] || !changes {
		t.Errorf("without its interface it is asked for %s", got)
	}
	tapper := made[strings.Index(made, `{"name":"tapper"`):]
	pod.Annotations[launcherpod.MadeWithAnnotation] = "[" + strings.Repeat("{},", 255) + tapper
	if got, _ := Networks(instance(nil), pod); got != "["+tapper {
		t.Errorf("of as many as may be it is asked for %s", got)
	}
	pod.Annotations[launcherpod.MadeWithAnnotation] = `[{"name":"x"},{"name":"x","interface":"net1","cni-args":{}},` + tapper
	if got, _ := Networks(instance(nil), pod); got != "["+tapper {
		t.Errorf("beside others' it is asked for %s", got)
	}
	pod.Annotations[launcherpod.MadeWithAnnotation] = "[" + strings.Repeat("{},", 256) + tapper
	if got, changes := Networks(instance(nil), pod); got != "" || !changes {
		t.Errorf("of too many it is asked for %s", got)
	}
	if needs := Needs(instance([]string{"red"}), podWith(instance([]string{"red"}), status("lab/red")+" ")); len(needs) != 0 {
		t.Errorf("it needs %+v", needs)
	}
}

func TestWhichDevicesInterfacesAre(t *testing.T) {
	red, blue := layout.SecondaryInterface("red"), layout.SecondaryInterface("blue")
	const other = "0000:65:00.3"
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"nothing":                  {"", ""},
		"one":                      {statusOfDevices("red " + anAddress), "red=" + anAddress},
		"two":                      {statusOfDevices("red "+anAddress, "blue "+other), "blue=" + other + " red=" + anAddress},
		"one device of two":        {statusOfDevices("red "+anAddress, "blue "+anAddress), "red=" + anAddress},
		"two devices of one":       {statusOfDevices("red "+anAddress, "red "+other), "red=" + anAddress},
		"none":                     {status("lab/red"), ""},
		"a strange address":        {statusOfDevices("red 0000:65:00.2,x-y=1"), ""},
		"another kind":             {strings.ReplaceAll(statusOfDevices("red "+anAddress), `"pci","version"`, `"vdpa","version"`), ""},
		"somebody else's":          {strings.ReplaceAll(statusOfDevices("red "+anAddress), red, "net1"), ""},
		"nonsense":                 {`[{"interface":"` + red + `","device-info":{"type":"pci","pci":"` + anAddress + `"}}]`, ""},
		"as many as may be listed": {"[" + strings.Repeat("{},", 255) + statusOfDevices("red " + anAddress)[1:], "red=" + anAddress},
		"more than may be listed":  {"[" + strings.Repeat("{},", 256) + statusOfDevices("red " + anAddress)[1:], ""},
	} {
		var got []string
		devices := ReadDevices(podWith(instance(nil), c.text))
		for name, link := range map[string]string{"blue": blue, "red": red} {
			if devices[link] != "" {
				got = append(got, name+"="+devices[link])
			}
		}
		if slices.Sort(got); strings.Join(got, " ") != c.want || len(devices) != len(got) {
			t.Errorf("%s: %v, want %s", name, devices, c.want)
		}
	}
	both := ReadDevices(podWith(instance(nil), statusOfDevices("red "+anAddress, "blue "+other)))
	if got := both.Among(map[string]bool{other: true, "0000:65:00.4": true}); len(got) != 1 || got[blue] != other {
		t.Errorf("of what the pod was given there are %v", got)
	}
	if got := both.Among(nil); len(got) != 0 {
		t.Errorf("of nothing there are %v", got)
	}
}
