package vmicontroller

import (
	"errors"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestNews(t *testing.T) {
	refused := CreateFailed(newVMI(), "the provisioning pod", errors.New("exceeded quota: pods"), now)
	waits := Decide(Observed{VMI: newVMI(), Claims: missingClaims("data"), Now: now}).VMI
	runs := newVMI(inPhase(v1.Running, 0))
	lost := Decide(Observed{VMI: runs, PodAsked: true, NodeAsked: true, Node: fenced, Now: now}).VMI
	unexplained := newVMI(inPhase(v1.Failed, 0))
	unexplained.Status.Reason = "Crashed"
	speechless := unexplained.DeepCopy()
	speechless.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceReady, Status: "False"}}
	crashed := []Event{{"Warning", "Stopped", "Watch", "The virtual machine instance has failed: Crashed"}}
	tests := map[string]struct {
		from, to *v1.VirtualMachineInstance
		want     []Event
	}{
		"a start is no news": {newVMI(), Decide(Observed{VMI: newVMI(), RivalsAsked: true, Now: now}).VMI, nil},
		"a pod that is refused": {newVMI(), refused,
			[]Event{{"Warning", "FailedCreate", "CreatePod", "failed to create the provisioning pod: exceeded quota: pods"}}},
		"the same refusal again is no news": {refused, CreateFailed(refused, "the provisioning pod", errors.New("exceeded quota: pods"), now), nil},
		"a claim that is missing": {newVMI(), waits,
			[]Event{{"Warning", "FailedPvcNotFound", "CreatePod", "PVC ns/data does not exist, waiting for it to appear"}}},
		"a pod that is lost": {runs, lost,
			[]Event{{"Warning", "Stopped", "Watch", "The virtual machine instance has failed: The launcher pod is gone, and the guest has ended with it."}}},
		"a failure of which the conditions say nothing: its reason": {runs, unexplained, crashed},
		"a failure that Ready has no words for: its reason":         {runs, speechless, crashed},
		"a failure before there was a guest": {newVMI(), unexplained,
			[]Event{{"Warning", "Crashed", "Watch", "The virtual machine instance has failed: Crashed"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := EventsOf(test.from, test.to)
			if len(got) != len(test.want) {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("got  %+v\nwant %+v", got[i], test.want[i])
				}
			}
		})
	}
}
