package vmistatus

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
)

func TestAGuestThatStandsStill(t *testing.T) {
	paused, ready := v1.VirtualMachineInstancePaused, v1.VirtualMachineInstanceReady
	for name, test := range map[string]struct {
		kind   v1.VirtualMachineInstanceConditionType
		status corev1.ConditionStatus
		reason string
		phase  v1.VirtualMachineInstancePhase
		want   string
	}{
		"a disk failed":                       {paused, corev1.ConditionTrue, runstate.ReasonPausedIOError, v1.Running, runstate.ReasonPausedIOError},
		"a user paused it":                    {paused, corev1.ConditionTrue, runstate.ReasonPausedByUser, v1.Running, runstate.ReasonPausedByUser},
		"it suspended itself":                 {ready, corev1.ConditionFalse, runstate.ReasonSuspended, v1.Running, runstate.ReasonSuspended},
		"QEMU reports something new":          {ready, corev1.ConditionFalse, runstate.ReasonUnknown, v1.Running, runstate.ReasonUnknown},
		"it migrates":                         {ready, corev1.ConditionFalse, runstate.ReasonMigrating, v1.Running, ""},
		"it was paused":                       {paused, corev1.ConditionFalse, runstate.ReasonPausedIOError, v1.Running, ""},
		"it was suspended":                    {ready, corev1.ConditionTrue, runstate.ReasonSuspended, v1.Running, ""},
		"it has ended":                        {paused, corev1.ConditionTrue, runstate.ReasonPausedIOError, v1.Failed, ""},
		"a node's virt-handler invents words": {paused, corev1.ConditionTrue, "PausedByMe", v1.Running, ""},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Status.Phase = test.phase
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: test.kind, Status: test.status, Reason: test.reason}}
			if got := Standstill(vmi); got != test.want {
				t.Errorf("it stands still for %q, want %q", got, test.want)
			}
		})
	}
	for _, s := range runstate.All() {
		if s.Paused && !slices.Contains(standstills, s.Reason) {
			t.Errorf("the run state %s is Paused, and its reason %s is not among those of a standstill", s.Name, s.Reason)
		}
	}
}
