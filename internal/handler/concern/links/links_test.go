package links

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/concerntest"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	up     = v1.InterfaceStateLinkUp
	down   = v1.InterfaceStateLinkDown
	absent = v1.InterfaceStateAbsent
)

func iface(name string, state v1.InterfaceState) v1.Interface {
	return v1.Interface{Name: name, Model: v1.VirtIO, State: state}
}

func TestWhichLinksAreSwitched(t *testing.T) {
	for name, test := range map[string]struct {
		told   Seen
		wanted []v1.Interface
		want   string
	}{
		"nobody knows what another virt-handler has told": {Seen{}, []v1.Interface{iface("a", ""), iface("b", up), iface("c", down)}, "a up, b up, c down"},
		"all are as they are to be":                       {Seen{"a": up, "b": up, "c": down}, []v1.Interface{iface("a", ""), iface("b", up), iface("c", down)}, ""},
		"one goes down":                                   {Seen{"a": up, "b": up}, []v1.Interface{iface("a", up), iface("b", down)}, "b down"},
		"one goes up as nothing is said of it":            {Seen{"a": down}, []v1.Interface{iface("a", "")}, "a up"},
		"one that is absent has no link":                  {Seen{"a": up}, []v1.Interface{iface("a", absent), iface("b", absent)}, ""},
		"none is there":                                   {Seen{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, i := range test.told.due(test.wanted) {
				got = append(got, i.Name+" "+string(i.State))
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}

// round returns the facts of a guest with an interface on the pod network and others.
func round(interfaces ...v1.Interface) concern.Round {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Interfaces = interfaces
	for i := range interfaces {
		network := v1.Network{Name: interfaces[i].Name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{}}}
		if network.Name == "default" {
			network.NetworkSource = v1.NetworkSource{Pod: &v1.PodNetwork{}}
		}
		vmi.Spec.Networks = append(vmi.Spec.Networks, network)
	}
	return concern.Round{VMI: vmi, NICs: map[string]bool{}}
}

func TestWhenLinksAreSwitched(t *testing.T) {
	device := iface("default", down)
	device.SRIOV = &v1.InterfaceSRIOV{}
	has := func(name string) func(*concern.Round) { return func(r *concern.Round) { r.NICs[name] = true } }
	set := func(seen Seen, list ...v1.Interface) Plan {
		return Plan{Next: concern.Next{Due: len(list) > 0}, Set: list, Has: seen}
	}
	for name, test := range map[string]struct {
		of     v1.Interface
		seen   Seen
		change func(*concern.Round)
		want   Plan
	}{
		"the pod network's, at first": {iface("default", ""), nil, func(*concern.Round) {}, set(nil, v1.Interface{Name: "default", State: up})},
		"the pod network's, as it is": {iface("default", down), Seen{"default": down}, func(*concern.Round) {}, set(Seen{"default": down})},
		"another's, not plugged yet":  {iface("blue", down), nil, func(*concern.Round) {}, set(nil)},
		"another's, plugged":          {iface("blue", down), nil, has("blue"), set(nil, v1.Interface{Name: "blue", State: down})},
		"another's, to be unplugged":  {iface("blue", absent), Seen{"blue": up}, has("blue"), set(Seen{"blue": up})},
		"of a device of the node":     {device, nil, has("default"), set(nil)},
		"even before it is reported":  {iface("default", down), nil, func(r *concern.Round) { r.VMI.Status.Phase = v1.Scheduled }, set(nil, v1.Interface{Name: "default", State: down})},
	} {
		r := round(test.of)
		test.change(&r)
		if diff := cmp.Diff(test.want, New().Decide(r, test.seen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestALinkIsSwitchedOnce(t *testing.T) {
	qemu := qmptest.New(t)
	d := concerntest.Drive(t, qemu, New(), round(iface("default", up)))
	for _, state := range []v1.InterfaceState{down, up, down} {
		d.Change(func(r *concern.Round) { r.VMI = round(iface("default", state)).VMI })
		before := qemu.Executed("set_link")
		for range 2 {
			if p := d.Look(); p.Due {
				if err := d.Act(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		p := d.Look()
		if qemu.LinkUp() != (state == up) || p.Has["default"] != state || p.Due {
			t.Errorf("%s: the link is up: %v, and is said to be %v", state, qemu.LinkUp(), p.Has)
		}
		if told := qemu.Executed("set_link") - before; told != 1 {
			t.Errorf("%s: QEMU was told %d times", state, told)
		}
	}
}

func TestALinkThatCannotBeSwitchedIsNotSaidToBe(t *testing.T) {
	r := round(iface("default", down), iface("none", down))
	r.NICs["none"] = true
	d := concerntest.Drive(t, qmptest.New(t), New(), r)
	err := d.Act(d.Look())
	if err == nil || !strings.Contains(err.Error(), "switching the link of interface none down") {
		t.Errorf("an interface that QEMU does not have: %v", err)
	}
	p := d.Look()
	if p.Has["default"] != down || p.Has["none"] != "" || !p.Due {
		t.Errorf("it says %+v", p)
	}
	// A change of a returned plan must not change the known state.
	p.Has["none"] = down
	if again := d.Look(); again.Has["none"] != "" || !again.Due {
		t.Error("what is known can be changed from outside")
	}
}

// TestTheLinkOfANewDeviceIsSwitchedAgain: the next device of a name starts with its link up.
func TestTheLinkOfANewDeviceIsSwitchedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		event, data string
		forgotten   bool
	}{
		"its device is gone":     {"DEVICE_DELETED", `{"device": "` + machine.NICID("default") + `"}`, true},
		"another's is":           {"DEVICE_DELETED", `{"device": "` + machine.NICID("blue") + `"}`, false},
		"a device without an ID": {"DEVICE_DELETED", `{"path": "/machine/x"}`, false},
		"it can't be read":       {"DEVICE_DELETED", `[`, false},
		"another event":          {"DEVICE_UNPLUG_GUEST_ERROR", `{"device": "` + machine.NICID("default") + `"}`, false},
	} {
		c := New()
		d := concerntest.Drive(t, qmptest.New(t), c, round(iface("default", down)))
		if err := d.Act(d.Look()); err != nil {
			t.Fatal(err)
		}
		if c.HandleEvent(qmp.Event{Name: test.event, Data: []byte(test.data)}); d.Look().Due != test.forgotten {
			t.Errorf("%s: the link is due: %v", name, !test.forgotten)
		}
	}
}

func TestLinksInTheStatus(t *testing.T) {
	var facts vmihandler.Guest
	has := Seen{"default": up, "green": down}
	New().Report(Plan{Has: has}, &facts)
	if diff := cmp.Diff(map[string]v1.InterfaceState(has), facts.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}
