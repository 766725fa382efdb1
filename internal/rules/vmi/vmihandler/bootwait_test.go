package vmihandler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// halting is a VMI with a root disk from its start, unless root is false, and hotpluggable disks; its QEMU has run for
// this long.
func halting(root bool, ago time.Duration, hot ...string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	add := func(name string, source v1.VolumeSource) {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
			Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
		})
	}
	if root {
		add("root", v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}})
	}
	for _, name := range hot {
		add(name, v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true}})
	}
	vmi.Status.Phase = v1.Running
	vmi.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{
		{Phase: v1.Scheduled, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		{Phase: v1.Running, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-ago))},
	}
	return vmi
}

func TestDecideHalt(t *testing.T) {
	early := halting(true, 0, "data")
	early.Status.Phase, early.Status.PhaseTransitionTimestamps = v1.Scheduled, nil
	ordered := halting(false, time.Hour, "root", "data")
	ordered.Spec.Domain.Devices.Disks[0].BootOrder = new(uint(1))
	boots, data := machine.Awaited{Volume: "root", Boots: true}, machine.Awaited{Volume: "data"}
	plugged := func(names ...string) map[string]bool {
		all := map[string]bool{}
		for _, name := range names {
			all[name] = true
		}
		return all
	}
	for name, test := range map[string]struct {
		vmi     *v1.VirtualMachineInstance
		plugged map[string]bool
		want    Halt
	}{
		"a disk that it boots from is missing":                    {halting(false, time.Second, "root"), nil, Halt{Missing: []machine.Awaited{boots}}},
		"it is missing for a day":                                 {halting(false, 24*time.Hour, "root"), nil, Halt{Missing: []machine.Awaited{boots}}},
		"it has come":                                             {halting(false, time.Second, "root"), plugged("root"), Halt{Begin: true}},
		"it is of another claim":                                  {halting(false, time.Second, "root"), map[string]bool{"root": false}, Halt{Missing: []machine.Awaited{boots}}},
		"it has been removed":                                     {halting(false, time.Second), nil, Halt{Begin: true}},
		"data are missing":                                        {halting(true, 10*time.Second, "data"), nil, Halt{Missing: []machine.Awaited{data}, After: 20 * time.Second}},
		"data have come":                                          {halting(true, 10*time.Second, "data"), plugged("data"), Halt{Begin: true}},
		"data are missing for too long":                           {halting(true, 30*time.Second, "data"), nil, Halt{Missing: []machine.Awaited{data}, Begin: true}},
		"the status does not say Running yet":                     {early, nil, Halt{Missing: []machine.Awaited{data}, After: 30 * time.Second}},
		"the root has come, data are missing for too long":        {ordered, plugged("root"), Halt{Missing: []machine.Awaited{data}, Begin: true}},
		"data have come, the root is missing for too long":        {ordered, plugged("data"), Halt{Missing: []machine.Awaited{boots}}},
		"neither has come, and data are missing for too long too": {ordered, nil, Halt{Missing: []machine.Awaited{boots, data}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, DecideHalt(test.vmi, test.plugged, now)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusOfAGuestThatWaitsForVolumes(t *testing.T) {
	for name, test := range map[string]struct {
		halt          Halt
		paused        bool
		says, pausing string
	}{
		"for one that it boots from": {
			halt: Halt{Missing: []machine.Awaited{{Volume: "root", Boots: true}, {Volume: "data"}}},
			says: "The guest has not been started: it may boot from a hotpluggable volume that is not attached yet: root (PVC root is in phase Pending). " +
				"It starts when the volume is attached, or removed (virtctl removevolume).",
		},
		"for data": {
			halt: Halt{Missing: []machine.Awaited{{Volume: "data"}}},
			says: "The guest has not been started: it waits, for 30s at most, for hotpluggable volumes that are not attached yet: data.",
		},
		"and is paused": {
			halt: Halt{Missing: []machine.Awaited{{Volume: "data"}}}, paused: true, pausing: "PausedByUser",
			says: "The guest has not been started: it waits, for 30s at most, for hotpluggable volumes that are not attached yet: data.",
		},
		"no more": {halt: Halt{Begin: true}, says: "The guest is being started with all that it has waited for."},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := halting(false, 0, "root", "data")
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{
				Name: "root", Phase: v1.VolumePending, Message: "PVC root is in phase Pending", HotplugVolume: &v1.HotplugVolumeStatus{},
			}}
			status := Status(vmi, Facts{Now: now, Guest: &Guest{RunState: "prelaunch", Halt: &test.halt, PausedByUser: test.paused}})
			ready := condition.Find(status.Conditions, v1.VirtualMachineInstanceReady)
			if ready == nil || ready.Status != corev1.ConditionFalse || ready.Reason != "WaitingForVolumes" || ready.Message != test.says {
				t.Errorf("Ready: %+v", ready)
			}
			paused := condition.Find(status.Conditions, v1.VirtualMachineInstancePaused)
			if test.pausing == "" && paused != nil || test.pausing != "" && (paused == nil || paused.Reason != test.pausing) {
				t.Errorf("Paused: %+v", paused)
			}
		})
	}
}

func TestWhatIsSaidOfVolumesThatAreLate(t *testing.T) {
	boots, data := machine.Awaited{Volume: "root", Boots: true}, machine.Awaited{Volume: "data"}
	list := []v1.VolumeStatus{{Name: "root", Message: "no node has it"}, {Name: "data"}, {Name: "other", Message: "x"}}
	for name, test := range map[string]struct {
		missing       []machine.Awaited
		message, late string
	}{
		"none": {nil, "The guest is being started with all that it has waited for.", ""},
		"one that it boots from, and others": {[]machine.Awaited{boots, data},
			"The guest has not been started: it may boot from a hotpluggable volume that is not attached yet: root (no node has it). " +
				"It starts when the volume is attached, or removed (virtctl removevolume).",
			"The guest starts without volumes that were not attached within 30s: root, data. Each is plugged in when it comes."},
		"one of data": {[]machine.Awaited{data},
			"The guest has not been started: it waits, for 30s at most, for hotpluggable volumes that are not attached yet: data.",
			"The guest starts without volumes that were not attached within 30s: data. Each is plugged in when it comes."},
	} {
		h := Halt{Missing: test.missing}
		if got := h.message(list); got != test.message {
			t.Errorf("%s: %q, want %q", name, got, test.message)
		}
		if got := h.LateMessage(); got != test.late {
			t.Errorf("%s, when the guest starts: %q, want %q", name, got, test.late)
		}
	}
}
