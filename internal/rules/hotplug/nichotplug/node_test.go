package nichotplug

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func set(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// ago returns the time this long before noon for the interface blue.
func ago(since time.Duration) map[string]time.Time {
	return map[string]time.Time{"blue": noon.Add(-since)}
}

func has(networks ...string) Attached {
	out := Attached{}
	for _, n := range networks {
		out[layout.SecondaryInterface(n)] = "lab/" + n
	}
	return out
}

// said formats a step.
func said(s Step) string {
	var words []string
	for verb, names := range map[string][]string{"plugs": s.Plug, "connects": s.Reconnect, "unplugs": s.Unplug, "clears": s.Clear, "misses": s.Kept} {
		if len(names) > 0 {
			words = append(words, verb+" "+strings.Join(names, ","))
		}
	}
	slices.Sort(words)
	if s.RemoveLeftovers {
		words = append(words, "keeps "+strings.Join(s.Keep, ","))
	}
	if s.After > 0 {
		words = append(words, fmt.Sprintf("waits %s", s.After))
	}
	return strings.Join(words, "; ")
}

func TestWhatVirtHandlerDoesAboutInterfaces(t *testing.T) {
	one, two := instance([]string{"red"}), instance([]string{"red", "blue"})
	gone := instance([]string{"red", "blue"}, state("blue", "absent"))
	all, devices := set("default", "red", "blue"), Devices{layout.SecondaryInterface("blue"): anAddress}
	for name, c := range map[string]struct {
		node Node
		want string
		// settled means that no later look is needed.
		settled bool
	}{
		"nothing":                          {node: Node{VMI: two, NICs: all, InPod: has("red", "blue")}, settled: true},
		"the pod lost one that stays":      {node: Node{VMI: two, NICs: all}, settled: true},
		"one that the pod has":             {node: Node{VMI: two, NICs: set("default", "red"), InPod: has("red", "blue")}, want: "plugs blue"},
		"a device that the pod has":        {node: Node{VMI: instance([]string{"red", "blue"}, device), NICs: set("default", "red"), InPod: has("red", "blue"), Devices: devices}, want: "plugs blue"},
		"a device that the pod has not":    {node: Node{VMI: instance([]string{"red", "blue"}, device), NICs: set("default"), InPod: has("red", "blue")}, want: "plugs red"},
		"a device of no network":           {node: Node{VMI: instance([]string{"red", "blue"}, device), NICs: set("default", "red"), InPod: has("red"), Devices: devices}},
		"a device that it has kept":        {node: Node{VMI: instance([]string{"red", "blue"}, device), NICs: all, InPod: has("red", "blue"), Unconnected: set("blue")}, want: "connects blue"},
		"two that the pod has":             {node: Node{VMI: two, NICs: set("default"), InPod: has("red", "blue")}, want: "plugs red,blue"},
		"one that the pod lacks":           {node: Node{VMI: two, NICs: set("default", "red"), InPod: has("red")}},
		"one on another network":           {node: Node{VMI: two, NICs: set("default", "red"), InPod: Attached{layout.SecondaryInterface("blue"): "other/blue"}}},
		"one that was given back just now": {node: Node{VMI: two, NICs: set("default", "red"), InPod: has("red", "blue"), Plugged: ago(4 * time.Second)}, want: "waits 6s"},
		"one that was given back long ago": {node: Node{VMI: two, NICs: set("default", "red"), InPod: has("red", "blue"), Plugged: ago(10 * time.Second)}, want: "plugs blue"},
		"one that it has kept":             {node: Node{VMI: two, NICs: all, InPod: has("red", "blue"), Unconnected: set("blue")}, want: "connects blue"},
		"one that it has kept alone":       {node: Node{VMI: two, NICs: all, InPod: has("red"), Unconnected: set("blue")}},
		"one that it has kept, just now":   {node: Node{VMI: two, NICs: all, InPod: has("red", "blue"), Unconnected: set("blue"), Plugged: ago(time.Second)}, want: "waits 9s"},
		"one that it has kept and another": {node: Node{VMI: instance([]string{"red", "blue", "green"}), NICs: all, InPod: has("red", "blue", "green"), Unconnected: set("blue"), Unsure: true},
			want: "connects blue; plugs green; keeps blue,default,red,green"},
		"one that it is to lose still":     {node: Node{VMI: gone, NICs: all, InPod: has("red", "blue"), Unconnected: set("blue")}, want: "unplugs blue"},
		"the pods' own":                    {node: Node{VMI: two, NICs: all, Unconnected: set("default")}, settled: true},
		"one that is absent":               {node: Node{VMI: gone, NICs: all, InPod: has("red", "blue")}, want: "unplugs blue"},
		"one that is absent behind others": {node: Node{VMI: instance([]string{"red"}, state("red", "absent")), NICs: set("default", "red")}, want: "unplugs red"},
		"one beside one that was asked for": {node: Node{VMI: instance([]string{"red", "blue"}, state("blue", "absent"), state("red", "absent")), NICs: all, Asked: ago(time.Second)},
			want: "unplugs red; waits 9s"},
		"one that was asked for":         {node: Node{VMI: gone, NICs: all, Asked: ago(time.Second)}, want: "waits 9s"},
		"one that was asked for in vain": {node: Node{VMI: gone, NICs: all, Asked: ago(10 * time.Second)}, want: "unplugs blue"},
		"one that is kept":               {node: Node{VMI: gone, NICs: all, Since: ago(10 * time.Second), Asked: ago(time.Second)}, want: "misses blue; waits 9s"},
		"one that may be kept":           {node: Node{VMI: gone, NICs: all, Since: ago(10*time.Second - 1), Asked: ago(time.Second)}, want: "waits 9s"},
		"one that is gone":               {node: Node{VMI: gone, NICs: set("default", "red"), Gone: set("blue")}, want: "clears blue; keeps default,red"},
		"one that is gone long since":    {node: Node{VMI: gone, NICs: set("default", "red")}, settled: true},
		"one that went with the one before": {node: Node{VMI: gone, NICs: set("default", "red"), Unsure: true, Gone: set("blue")},
			want: "clears blue; keeps default,red"},
		"after another virt-handler":             {node: Node{VMI: two, NICs: all, Unsure: true}, want: "keeps blue,default,red"},
		"after another virt-handler, one absent": {node: Node{VMI: gone, NICs: set("default", "red"), Unsure: true}, want: "clears blue; keeps default,red"},
		"after another virt-handler, one leaves": {node: Node{VMI: gone, NICs: all, Unsure: true}, want: "unplugs blue; keeps blue,default,red"},
		"after another virt-handler, one comes":  {node: Node{VMI: two, NICs: set("default", "red"), InPod: has("blue"), Unsure: true}, want: "plugs blue; keeps default,red,blue"},
		"without other networks":                 {node: Node{VMI: instance(nil), NICs: set("default"), Unsure: true}, settled: true, want: "keeps default"},
		"one that the VMI does not know":         {node: Node{VMI: one, NICs: all}, want: "unplugs blue"},
		"a guest that gave back its only one":    {node: Node{VMI: one, NICs: set("default"), Gone: set("red"), InPod: has("red")}, want: "clears red; plugs red; keeps default,red"},
	} {
		t.Run(name, func(t *testing.T) {
			c.node.Now = noon
			step := c.node.Next()
			if got := said(step); got != c.want {
				t.Errorf("it %s, want %s", got, c.want)
			}
			if step.Any() != (c.want != "" && !strings.HasPrefix(c.want, "waits") && !strings.HasPrefix(c.want, "misses blue; waits")) {
				t.Errorf("there is something to be done: %v", step.Any())
			}
			if c.node.Settled() != c.settled {
				t.Errorf("it is settled: %v", !c.settled)
			}
		})
	}
}

func TestWhetherThereIsSomethingToBeDone(t *testing.T) {
	list := []string{"a"}
	for _, s := range []Step{{Plug: list}, {Unplug: list}, {Clear: list}, {RemoveLeftovers: true}, {Plug: list, Clear: list}, {Plug: list, Unplug: list}, {Unplug: list, Clear: list}} {
		if !s.Any() {
			t.Errorf("nothing is to be done for %+v", s)
		}
	}
	if s := (Step{Kept: list, Keep: list, After: 1}); s.Any() {
		t.Errorf("something is to be done for %+v", s)
	}
}

func TestWhatIsSaidOfAGuestThatKeepsInterfaces(t *testing.T) {
	if err := (&Step{Plug: []string{"a"}}).Problem(); err != nil {
		t.Errorf("without one it says %v", err)
	}
	const want = "the guest has not released interfaces that are to be unplugged (a, b): its system may lack PCI hotplug, or use them"
	if err := (&Step{Kept: []string{"a", "b"}}).Problem(); err == nil || err.Error() != want {
		t.Errorf("it says %v", err)
	}
}

func TestWhatATargetGoesBy(t *testing.T) {
	vmi := instance([]string{"red", "blue"}, inGuest("red", "domain"), inGuest("blue", "guest-agent"), inGuest("default", "domain"))
	for _, c := range []struct {
		nics map[string]bool
		want bool
	}{{set("red"), true}, {set("red", "default"), true}, {set("red", "blue"), false}, {set(), false}} {
		if got := Reported(vmi, c.nics); got != c.want {
			t.Errorf("with %v its NICs are reported: %v", c.nics, got)
		}
	}
	with := WithNICs(vmi, func(name string) bool { return InGuest(vmi, name) })
	var states []string
	for _, iface := range with.Spec.Domain.Devices.Interfaces {
		states = append(states, iface.Name+string(iface.State))
	}
	if !slices.Equal(states, []string{"default", "red", "blueabsent"}) || launcherpod.InterfaceOf(vmi, "blue").State != "" {
		t.Errorf("it starts with %v, and the VMI has %q", states, launcherpod.InterfaceOf(vmi, "blue").State)
	}
	if got := Leaving(instance([]string{"red", "blue"}, state("red", "absent")), set("default", "red", "blue", "green")); !slices.Equal(got, []string{"green", "red"}) {
		t.Errorf("%v leave", got)
	}
	if got := Leaving(instance([]string{"red"}, state("red", v1.InterfaceStateLinkDown)), set("default", "red")); got != nil {
		t.Errorf("%v leave", got)
	}
}

func TestWhatIsOnThePodsNetwork(t *testing.T) {
	vmi := instance([]string{"red"})
	for name, want := range map[string]bool{"default": true, "red": false, "none": false} {
		if got := OnPodNetwork(vmi, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhichLinksStay(t *testing.T) {
	red, blue := layout.SecondaryLink("tap", "red"), layout.SecondaryLink("k6t-", "blue")
	for link, stays := range map[string]bool{
		red: true, layout.SecondaryLink("k6t-", "red"): true, blue: false, layout.SecondaryLink("tap", "blue"): false,
		"eth0": true, "k6t-eth0": true, "tap0": true, "lo": true, layout.SecondaryInterface("blue"): true, "x" + blue[1:]: true, blue + "0": true,
	} {
		if got := IsLinkOf(link, []string{"default", "red"}); got != stays {
			t.Errorf("%s stays: %v", link, got)
		}
	}
}

func TestWhenAGuestCanBeSent(t *testing.T) {
	reported := instance([]string{"red", "blue"}, inGuest("red", "domain"), inGuest("blue", "domain"))
	withDevice := instance([]string{"red", "blue"}, device, inGuest("red", "domain"), inGuest("blue", "domain"))
	absent := instance([]string{"red", "blue"}, state("blue", "absent"), inGuest("red", "domain"), inGuest("blue", "domain"))
	all := set("default", "red", "blue")
	for name, c := range map[string]struct {
		vmi       *v1.VirtualMachineInstance
		nics      map[string]bool
		kept      []string
		unsettled bool
		refusal   string
	}{
		"with the interfaces of its status":   {vmi: reported, nics: all},
		"with one that its status lacks":      {vmi: instance([]string{"red"}), nics: set("default", "red"), unsettled: true},
		"without one that its status has":     {vmi: reported, nics: set("default", "red"), unsettled: true},
		"with a device of the node":           {vmi: withDevice, nics: all, unsettled: true},
		"with a device that it has kept":      {vmi: withDevice, nics: all, kept: []string{"blue"}, unsettled: true, refusal: "the guest has not released devices of its node, which it can't take along (blue): its system may lack PCI hotplug, or use them"},
		"with one that is to be unplugged":    {vmi: absent, nics: all, unsettled: true, refusal: "the guest has not released interfaces that are to be unplugged (blue): it can be migrated when it has, or was restarted"},
		"with one that the VMI does not have": {vmi: instance(nil), nics: set("default", "red"), unsettled: true, refusal: "the guest has not released interfaces that are to be unplugged (red): it can be migrated when it has, or was restarted"},
	} {
		unsettled, refusal := (&Node{VMI: c.vmi, NICs: c.nics}).Departure(c.kept)
		if unsettled != c.unsettled || refusal != c.refusal {
			t.Errorf("%s: unsettled %v, refusal %q", name, unsettled, refusal)
		}
	}
}

// Before a migration a guest must release its node's devices, including those to be unplugged, and nothing else.
func TestAGuestThatLeavesItsNodeReleasesDevices(t *testing.T) {
	vmi, all := instance([]string{"red", "blue"}, device), set("default", "red", "blue")
	for name, c := range map[string]struct {
		node Node
		want string
	}{
		"with a device":                    {Node{VMI: vmi, NICs: all}, "unplugs blue"},
		"without":                          {Node{VMI: vmi, NICs: set("default", "red"), Gone: set("blue"), Unsure: true, InPod: has("red", "blue")}, ""},
		"with others":                      {Node{VMI: instance([]string{"red", "blue"}), NICs: all, Unconnected: all}, ""},
		"with one that nobody knows":       {Node{VMI: instance([]string{"red"}), NICs: all}, ""},
		"with one that is to be absent":    {Node{VMI: instance([]string{"blue"}, device, state("blue", "absent")), NICs: all}, "unplugs blue"},
		"when it was asked":                {Node{VMI: vmi, NICs: all, Since: ago(4 * time.Second), Asked: ago(4 * time.Second)}, "waits 6s"},
		"when it was asked long ago":       {Node{VMI: vmi, NICs: all, Since: ago(20 * time.Second), Asked: ago(10 * time.Second)}, "unplugs blue"},
		"when it has thought about it":     {Node{VMI: vmi, NICs: all, Since: ago(30*time.Second - 1), Asked: ago(time.Second)}, "waits 9s"},
		"when it has not in half a minute": {Node{VMI: vmi, NICs: all, Since: ago(30 * time.Second), Asked: ago(10 * time.Second)}, "misses blue; unplugs blue"},
	} {
		c.node.Now = noon
		step := c.node.Depart()
		if got := said(step); got != c.want {
			t.Errorf("%s it %s, want %s", name, got, c.want)
		}
	}
	arriving := Arriving(instance([]string{"red", "blue", "green"}, device, inGuest("red", "domain"), inGuest("blue", "domain")))
	var states []string
	for _, iface := range arriving.Spec.Domain.Devices.Interfaces {
		states = append(states, iface.Name+string(iface.State))
	}
	if !slices.Equal(states, []string{"default", "red", "blueabsent", "greenabsent"}) {
		t.Errorf("it arrives with %v", states)
	}
}
