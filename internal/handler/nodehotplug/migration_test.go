package nodehotplug

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

func TestADiskComesWithItsGuest(t *testing.T) {
	ready := world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x"}
	with := func(edit func(*world)) world {
		w := ready
		w.pods, w.recorded = []hotplug.Pod{pod("y", true)}, []string{"hp-y"}
		edit(&w)
		return w
	}
	none := func(*world) {}
	for name, test := range map[string]struct {
		world world
		comes bool
		want  Action
	}{
		"its pod runs":                            {with(none), true, Open},
		"the spec does not have it any more":      {with(func(w *world) { w.spec = "" }), true, Open},
		"it is open":                              {with(func(w *world) { w.opened = "y" }), true, Plug},
		"it is open in a pod that is gone":        {with(func(w *world) { w.opened = "z" }), true, Drop},
		"QEMU has its file only":                  {with(func(w *world) { w.qemu, w.bare = diskhotplug.Partial, true }), true, Open},
		"QEMU has a part of it":                   {with(func(w *world) { w.qemu = diskhotplug.Partial }), true, Clear},
		"QEMU has it":                             {with(func(w *world) { w.qemu = diskhotplug.Plugged }), true, Rest},
		"QEMU has it, and it was opened again":    {with(func(w *world) { w.qemu, w.opened = diskhotplug.Plugged, "y" }), true, Drop},
		"its pod is not recorded":                 {with(func(w *world) { w.recorded = nil }), true, Rest},
		"its pod does not run":                    {with(func(w *world) { w.pods = []hotplug.Pod{pod("y", false)} }), true, Rest},
		"the VMI's status does not have it":       {with(func(w *world) { w.phase = "" }), true, Rest},
		"the VMI's status has it elsewhere":       {with(func(w *world) { w.phase = v1.VolumeBound }), true, Rest},
		"the source has not told of it":           {with(none), false, Rest},
		"the source has not told of it, it is in": {with(func(w *world) { w.qemu = diskhotplug.Plugged }), false, Rest},
	} {
		o := test.world.observed()
		place := machine.Slot{Bus: v1.DiskBusSCSI, Number: 7}
		if o.Arriving, o.Halted = true, true; test.comes {
			o.Places, o.Copied = map[string]machine.Slot{"a": place}, map[string]int64{"a": 5, "b": 6}
		}
		for _, d := range Decide(o) {
			if d.Action != test.want || d.Phase != "" {
				t.Errorf("%s: %s, and phase %q is said; want %s", name, d.Action, d.Phase, test.want)
			}
			if (d.Action == Open || d.Action == Plug) && (d.Place == nil || *d.Place != place || d.Source.UID != "y" || d.Size != 5) {
				t.Errorf("%s: it is opened in %s for %v, with %d bytes", name, d.Source.UID, d.Place, d.Size)
			}
		}
	}
}
