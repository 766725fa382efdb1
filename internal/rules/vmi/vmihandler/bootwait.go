package vmihandler

import (
	"fmt"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// dataPatience limits the wait for hotpluggable volumes from which the guest does not boot. Most
// take a few seconds; one that takes longer may never come.
const dataPatience = 30 * time.Second

// Halt is a guest whose CPUs have never been started, because its hotpluggable volumes have to be
// plugged before the firmware looks for disks, or links of its interfaces have to be switched off.
//
//	QEMU's run state and objects                 action of virt-handler
//	prelaunch, WaitMarker                        plugs; when no volume is missing: boot
//	                                             order, reset, cont, then removes the marker
//	prelaunch, WaitMarker and PauseMarker        the same without cont: the guest is paused
//	any other run state, WaitMarker              removes the marker: the guest has run
//	without WaitMarker                           none
//
// The markers are objects in QEMU. WaitMarker exists from QEMU's start and is never added later, so
// a guest that has run is never taken for one that has not.
//
//   - virt-handler stops during the wait: the next one reads the marker and continues; dataPatience
//     counts from the phase Running in the status.
//   - It stops before cont: order and reset are repeated; no CPU has run.
//   - It stops after cont: the guest runs; the next one only removes the marker, before it serves any
//     verb that could bring the guest back to prelaunch.
//   - The attachment pod ends: it is replaced as for any hotplugged volume, and the guest waits.
//   - QEMU ends: the VMI has ended.
type Halt struct {
	// Missing are the wanted volumes that are not plugged.
	Missing []machine.Awaited
	// Begin means that the CPUs are to start now, with the volumes that are plugged.
	Begin bool
	// After is when to look again, 0 for never.
	After time.Duration
}

// DecideHalt decides whether a halted guest begins. plugged are the volumes that QEMU has.
func DecideHalt(vmi *v1.VirtualMachineInstance, plugged map[string]bool, now time.Time) Halt {
	var h Halt
	boots := false
	for _, a := range machine.AwaitedVolumes(&vmi.Spec) {
		if !plugged[a.Volume] {
			h.Missing = append(h.Missing, a)
			boots = boots || a.Boots
		}
	}
	switch left := runningSince(vmi, now).Add(dataPatience).Sub(now); {
	case len(h.Missing) == 0:
		h.Begin = true
	case boots:
	case left <= 0:
		h.Begin = true
	default:
		h.After = left
	}
	return h
}

// runningSince returns when QEMU was found to run.
func runningSince(vmi *v1.VirtualMachineInstance, now time.Time) time.Time {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == v1.Running {
			return t.PhaseTransitionTimestamp.Time
		}
	}
	return now
}

// The state is not Paused: no user has to act.
func (h Halt) state(list []v1.VolumeStatus, paused bool) runstate.State {
	state := runstate.Of(runstate.Prelaunch)
	state.Reason, state.Paused, state.Message = runstate.ReasonWaitingForVolumes, paused, h.message(list)
	return state
}

func (h Halt) message(list []v1.VolumeStatus) string {
	var boots, others []string
	for _, a := range h.Missing {
		name := a.Volume + why(list, a.Volume)
		if a.Boots {
			boots = append(boots, name)
		} else {
			others = append(others, name)
		}
	}
	switch {
	case len(boots) > 0:
		return fmt.Sprintf("The guest has not been started: it may boot from a hotpluggable volume that is not attached yet: %s. "+
			"It starts when the volume is attached, or removed (virtctl removevolume).", strings.Join(boots, "; "))
	case len(others) > 0:
		return fmt.Sprintf("The guest has not been started: it waits, for %v at most, for hotpluggable volumes that are not attached yet: %s.",
			dataPatience, strings.Join(others, "; "))
	}
	return "The guest is being started with all that it has waited for."
}

func why(list []v1.VolumeStatus, volume string) string {
	for i := range list {
		if list[i].Name == volume && list[i].Message != "" {
			return " (" + list[i].Message + ")"
		}
	}
	return ""
}

// LateMessage names the volumes that a starting guest lacks, "" for none.
func (h Halt) LateMessage() string {
	if len(h.Missing) == 0 {
		return ""
	}
	var names []string
	for _, a := range h.Missing {
		names = append(names, a.Volume)
	}
	return fmt.Sprintf("The guest starts without volumes that were not attached within %v: %s. Each is plugged in when it comes.",
		dataPatience, strings.Join(names, ", "))
}
