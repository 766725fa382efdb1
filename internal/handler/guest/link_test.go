package guest

import (
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/qmptest"
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
		told   links
		wanted []v1.Interface
		want   string
	}{
		"nobody knows what another virt-handler has told": {links{}, []v1.Interface{iface("a", ""), iface("b", up), iface("c", down)}, "a up, b up, c down"},
		"all are as they are to be":                       {links{"a": up, "b": up, "c": down}, []v1.Interface{iface("a", ""), iface("b", up), iface("c", down)}, ""},
		"one goes down":                                   {links{"a": up, "b": up}, []v1.Interface{iface("a", up), iface("b", down)}, "b down"},
		"one goes up as nothing is said of it":            {links{"a": down}, []v1.Interface{iface("a", "")}, "a up"},
		"one that is absent has no link":                  {links{"a": up}, []v1.Interface{iface("a", absent), iface("b", absent)}, ""},
		"none is there":                                   {links{}, nil, ""},
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

func TestALinkIsSwitchedOnce(t *testing.T) {
	qemu := qmptest.New(t)
	g := open(t, qemu)
	for _, state := range []v1.InterfaceState{down, up, down} {
		wanted := []v1.Interface{iface("default", state)}
		before := qemu.Executed("set_link")
		for range 2 {
			if err := g.SwitchLinks(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
		}
		if qemu.LinkUp() != (state == up) || g.Observe().Links["default"] != state || g.LinksDiffer(wanted) {
			t.Errorf("%s: the link is up: %v, and is said to be %v", state, qemu.LinkUp(), g.Observe().Links)
		}
		if told := qemu.Executed("set_link") - before; told != 1 {
			t.Errorf("%s: QEMU was told %d times", state, told)
		}
	}
}

func TestALinkThatCannotBeSwitchedIsNotSaidToBe(t *testing.T) {
	g := open(t, qmptest.New(t))
	wanted := []v1.Interface{iface("default", down), iface("none", down)}
	err := g.SwitchLinks(t.Context(), wanted)
	if err == nil || !strings.Contains(err.Error(), "switching the link of interface none down") {
		t.Errorf("an interface that QEMU does not have: %v", err)
	}
	links := g.Observe().Links
	if links["default"] != down || links["none"] != "" || !g.LinksDiffer(wanted) {
		t.Errorf("it says %v", links)
	}
	// What was told is not what is known.
	links["none"] = down
	if !g.LinksDiffer(wanted) || slices.Contains([]v1.InterfaceState{up, down}, g.Observe().Links["none"]) {
		t.Error("what is known can be changed from outside")
	}
}
