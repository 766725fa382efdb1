package nichotplug

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/migrationrequired"
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
	return func(vmi *v1.VirtualMachineInstance) { interfaceOf(vmi, name).State = state }
}

func device(name string) edit {
	return func(vmi *v1.VirtualMachineInstance) { interfaceOf(vmi, name).SRIOV = &v1.InterfaceSRIOV{} }
}

func inGuest(name, source string) edit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Interfaces = append(vmi.Status.Interfaces, v1.VirtualMachineInstanceNetworkInterface{Name: name, InfoSource: source})
	}
}

func withoutInterface(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Interfaces = vmi.Spec.Domain.Devices.Interfaces[:1]
}

// status is the text of a network-status with an interface for each network "lab/name".
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

// podWith is the pod of a VMI that was made with networks, whose network-status is the text.
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
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		made *v1.VirtualMachineInstance
		text string
		want []migrationrequired.Need
	}{
		"the pods' network alone":      {vmi: instance(nil), made: instance(nil)},
		"all that it was made with":    {vmi: one, made: one, text: status("lab/red")},
		"another interface":            {vmi: instance(two), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"which was attached in place":  {vmi: instance(two), made: one, text: status("lab/red", "lab/blue")},
		"which is on another network":  {vmi: instance(two), made: one, text: status("lab/red", "other/blue"), want: []migrationrequired.Need{plug("blue")}},
		"which the guest has":          {vmi: instance(two, inGuest("blue", "domain, guest-agent")), made: one, text: status("lab/red")},
		"which the pod alone has":      {vmi: instance(two, inGuest("blue", "multus-status")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"which is of another name":     {vmi: instance(two, inGuest("green", "domain")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"whose link is to be down":     {vmi: instance(two, state("blue", "down")), made: one, text: status("lab/red"), want: []migrationrequired.Need{plug("blue")}},
		"which is absent":              {vmi: instance(two, state("blue", "absent")), made: one, text: status("lab/red")},
		"one that is absent now":       {vmi: instance(two, state("blue", "absent")), made: instance(two), text: status("lab/red", "lab/blue"), want: []migrationrequired.Need{unplug}},
		"one that has gone in place":   {vmi: instance(two, state("blue", "absent")), made: instance(two), text: status("lab/red")},
		"both at once":                 {vmi: instance([]string{"blue", "green"}, state("blue", "absent")), made: instance([]string{"blue"}), text: status("lab/blue"), want: []migrationrequired.Need{unplug, plug("green")}},
		"a device":                     {vmi: instance(two, device("blue")), made: one, text: status("lab/red"), want: []migrationrequired.Need{{What: "interface blue is to be plugged", AtOnce: true}}},
		"it was made with it in vain":  {vmi: instance(two), made: instance(two), text: status("lab/red"), want: []migrationrequired.Need{{What: "interface blue is to be plugged", Futile: futile}}},
		"it was made without Multus":   {vmi: one, made: instance(nil), want: []migrationrequired.Need{plug("red")}},
		"one that the VMI has no more": {vmi: instance(nil), made: instance(nil), text: status("lab/red", "lab/blue"), want: []migrationrequired.Need{surplus(blue + ", " + red)}},
		"a network without interface":  {vmi: instance([]string{"red"}, withoutInterface), made: one, text: status(), want: nil},
		"others' interfaces":           {vmi: one, made: one, text: `[{"name":"lab/x","interface":"net1"},{"name":"lab/red","interface":"` + red + `"}]`},
		"nonsense":                     {vmi: instance(two), made: one, text: `{"name":"lab/red"}`, want: []migrationrequired.Need{{What: "interface red is to be plugged", Futile: futile}, plug("blue")}},
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
		"what the VMI's owner asks for":                  {asking(instance(nil), theirs), theirs, theirs, false},
		"what the VMI's owner asked for":                 {asking(instance(nil), theirs), launcherpod.Networks(one), theirs, true},
	} {
		pod := podWith(one, "")
		pod.Annotations[launcherpod.NetworksAnnotation] = c.is
		if got, changes := Networks(c.vmi, pod); got != c.want || changes != c.changes {
			t.Errorf("%s: %s, %v; want %s, %v", name, got, changes, c.want, c.changes)
		}
	}
}
