package condition

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 300, time.UTC)

func ready(status corev1.ConditionStatus, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: status, Message: message}
}

func TestTheTransitionsTimeFollowsTheStatus(t *testing.T) {
	probed := metav1.NewTime(noon.Add(-time.Hour))
	tests := map[string]struct {
		before []v1.VirtualMachineInstanceCondition
		want   v1.VirtualMachineInstanceCondition
		at     time.Time
	}{
		"a new condition": {nil, ready("False", "waiting"), noon},
		"another status":  {[]v1.VirtualMachineInstanceCondition{ready("True", "")}, ready("False", "paused"), noon},
		"only another message keeps the time": {
			[]v1.VirtualMachineInstanceCondition{{
				Type: v1.VirtualMachineInstanceReady, Status: "False", Message: "waiting",
				LastProbeTime: probed, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute).Truncate(time.Second)),
			}},
			ready("False", "still waiting"), noon.Add(-time.Minute),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			list := append([]v1.VirtualMachineInstanceCondition{{Type: "Other", Status: "True"}}, test.before...)
			Set(&list, test.want, noon)
			want := test.want
			want.LastTransitionTime = metav1.NewTime(test.at.Truncate(time.Second))
			if len(test.before) > 0 {
				want.LastProbeTime = test.before[0].LastProbeTime
			}
			if len(list) != 2 || list[1] != want {
				t.Errorf("got %+v, want %+v after another condition", list, want)
			}
			again := append([]v1.VirtualMachineInstanceCondition{}, list...)
			Set(&again, test.want, noon.Add(time.Hour))
			if again[1] != list[1] {
				t.Errorf("saying it again makes %+v of %+v", again[1], list[1])
			}
		})
	}
}

func TestAConditionIsFoundAndDroppedByItsType(t *testing.T) {
	list := []v1.VirtualMachineCondition{
		{Type: v1.VirtualMachineReady, Status: "False"},
		{Type: v1.VirtualMachinePaused, Status: "True"},
	}
	if c := Find(list, v1.VirtualMachinePaused); c != &list[1] {
		t.Errorf("found %+v, not the list's own condition", c)
	}
	if IsTrue(list, v1.VirtualMachineReady) || IsTrue(list, v1.VirtualMachineFailure) || !IsTrue(list, v1.VirtualMachinePaused) {
		t.Error("one that is False or absent counts as True, or one that is True does not")
	}
	list[0].Status = "True"
	if !IsTrue(list, v1.VirtualMachineReady) {
		t.Error("the first of the list does not count as True")
	}
	Drop(&list, v1.VirtualMachinePaused)
	Drop(&list, v1.VirtualMachineFailure)
	if len(list) != 1 || Find(list, v1.VirtualMachinePaused) != nil || Find(list, v1.VirtualMachineReady) == nil {
		t.Errorf("%+v is left", list)
	}
}

func TestTheFirstConditionOfAListIsReplacedInItsPlace(t *testing.T) {
	list := []v1.VirtualMachineInstanceCondition{ready("False", "waiting"), {Type: "Other", Status: "True"}}
	Set(&list, ready("True", ""), noon)
	if len(list) != 2 || list[0].Type != v1.VirtualMachineInstanceReady || list[0].Status != "True" {
		t.Errorf("got %+v, want two conditions, the first of them Ready=True", list)
	}
}

func TestWhatTheAPIServerSaysAgainstAMessage(t *testing.T) {
	said := Refused(Refused("it is made", "no"), "not yet")
	if said != "it is made; the API server refuses it for now: not yet" || Doing(said) != "it is made" || Refusal(said) != "not yet" {
		t.Errorf("it says %q", said)
	}
	if Again(said, "it is made") != said || Again(said, "it is filled") != "it is filled" || Again("it is made", "it is made") != "it is made" {
		t.Error("what was said is not kept for as long as the same is being done")
	}
	if Doing("it is made") != "it is made" || Refusal("it is made") != "" {
		t.Error("a message without a refusal has one")
	}
	if long := Refused("", strings.Repeat("é", 5000)); len(long) > 1100 || !utf8.ValidString(long) {
		t.Errorf("a long refusal is %d bytes", len(long))
	}
}
