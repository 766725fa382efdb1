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

// TestWhatIsSaidOfDisksThatMove: the source must report disks that stay as they are, and the target those that are in
// their place.
func TestWhatIsSaidOfDisksThatMove(t *testing.T) {
	slot := machine.Slot{Bus: v1.DiskBusSCSI, Number: 7}
	disk := func(edit func(*diskhotplug.Disk)) diskhotplug.Disk {
		d := diskhotplug.Disk{Tag: diskhotplug.Tag{Volume: "a", Claim: "c", Bus: "scsi", Number: 7}, Stage: diskhotplug.Plugged}
		edit(&d)
		return d
	}
	vmi := world{phase: v1.VolumeReady, claim: "c", pod: "x"}.observed().VMI
	for name, test := range map[string]struct {
		disk              diskhotplug.Disk
		edit              func(*Worker)
		settled, received bool
	}{
		"it is plugged":              {disk(func(*diskhotplug.Disk) {}), func(*Worker) {}, true, true},
		"it is elsewhere":            {disk(func(d *diskhotplug.Disk) { d.Number = 8 }), func(*Worker) {}, true, false},
		"it is on another claim":     {disk(func(d *diskhotplug.Disk) { d.Claim = "x" }), func(*Worker) {}, true, false},
		"it is there in part":        {disk(func(d *diskhotplug.Disk) { d.Stage = diskhotplug.Partial }), func(*Worker) {}, true, false},
		"QEMU is to be asked":        {disk(func(*diskhotplug.Disk) {}), func(w *Worker) { w.stale = true }, false, false},
		"others are looked after":    {disk(func(*diskhotplug.Disk) {}), func(w *Worker) { w.still, w.arriving = false, false }, false, false},
		"the guest was asked for it": {disk(func(*diskhotplug.Disk) {}), func(w *Worker) { w.asked["a"] = true }, false, true},
		"the guest has refused": {disk(func(*diskhotplug.Disk) {}), func(w *Worker) {
			w.asked["a"], w.refused[machine.DiskID("a")] = true, true
		}, true, true},
		"nothing was told of": {disk(func(*diskhotplug.Disk) {}), func(w *Worker) { w.places = nil }, true, false},
	} {
		w := NewWorker(Env{})
		w.stale, w.still, w.arriving, w.places = false, true, true, map[string]machine.Slot{"a": slot}
		w.disks = map[string]diskhotplug.Disk{"a": test.disk}
		test.edit(w)
		plugs, settled := w.Still()
		if received := w.Received(vmi); settled != test.settled || received != test.received {
			t.Errorf("%s: settled %v, received %v", name, settled, received)
		}
		if plugged := test.disk.Stage == diskhotplug.Plugged; settled && (len(plugs.Disks) == 1) != plugged {
			t.Errorf("%s: the source tells of %+v", name, plugs)
		}
	}
	w := NewWorker(Env{})
	w.stale, w.still = false, true
	w.disks = map[string]diskhotplug.Disk{"a": disk(func(d *diskhotplug.Disk) { d.Stage = diskhotplug.Detached })}
	if plugs, ok := w.Still(); !ok || len(plugs.Detached) != 1 || len(plugs.Disks) > 0 {
		t.Errorf("of a disk that was taken by force the source tells %+v, %v", plugs, ok)
	}
}
