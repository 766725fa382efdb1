package vmihandler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// dataPatience bounds the wait for volumes from which the guest does not boot. Most take a few seconds; a slower one may
// never come. It counts from the status's phase Running, which outlives a restart of virt-handler.
const dataPatience = 30 * time.Second

// Halt is a guest whose CPUs have never been started, because its hotpluggable volumes must be plugged before the
// firmware looks for disks, or links of its interfaces switched off.
//
//	QEMU's run state and objects                 action of virt-handler
//	prelaunch, WaitMarker                        plugs; when no volume is missing: boot
//	                                             order, reset, cont, then removes the marker
//	prelaunch, WaitMarker and PauseMarker        the same without cont: the guest is paused
//	any other run state, WaitMarker              removes the marker: the guest has run
//	without WaitMarker                           none
//
// The markers are objects in QEMU. WaitMarker exists from QEMU's start and is never added later, so a guest that has run
// is never taken for one that has not. If virt-handler ends before cont, the next one repeats order and reset: no CPU has
// run. If it ends after cont, the next one removes the marker before any verb can bring the guest back to prelaunch.
type Halt struct {
	Missing []machine.Awaited
	// Begin starts the CPUs with the volumes that are plugged.
	Begin bool
	After time.Duration
}

// DecideHalt decides whether to start a halted guest's CPUs. QEMU has the plugged volumes.
func DecideHalt(vmi *v1.VirtualMachineInstance, plugged map[string]bool, now time.Time) Halt {
	var h Halt
	boots := false
	for _, a := range machine.AwaitedVolumes(&vmi.Spec) {
		if !plugged[a.Volume] {
			h.Missing = append(h.Missing, a)
			boots = boots || a.Boots
		}
	}
	since := now
	if at := slices.IndexFunc(vmi.Status.PhaseTransitionTimestamps, func(t v1.VirtualMachineInstancePhaseTransitionTimestamp) bool {
		return t.Phase == v1.Running
	}); at >= 0 {
		since = vmi.Status.PhaseTransitionTimestamps[at].PhaseTransitionTimestamp.Time
	}
	switch left := since.Add(dataPatience).Sub(now); {
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

// The state is not Paused: no user has to act.
func (h Halt) state(list []v1.VolumeStatus, paused bool) runstate.State {
	state := runstate.Of(runstate.Prelaunch)
	state.Reason, state.Paused, state.Message = runstate.ReasonWaitingForVolumes, paused, h.message(list)
	return state
}

func (h Halt) message(list []v1.VolumeStatus) string {
	var boots, others []string
	for _, a := range h.Missing {
		name := a.Volume
		if at := slices.IndexFunc(list, func(s v1.VolumeStatus) bool { return s.Name == a.Volume && s.Message != "" }); at >= 0 {
			name += " (" + list[at].Message + ")"
		}
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

// LateMessage names the volumes that a starting guest lacks.
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
