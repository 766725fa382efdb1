package podresize

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// withMemory has a VMI's guest, started with 256Mi and with room for 1Gi, with its wanted, present and given memory.
func withMemory(to *v1.VirtualMachineInstance, wants, has, given string) *v1.VirtualMachineInstance {
	quantity := func(text string) *resource.Quantity {
		if text == "" {
			return nil
		}
		return new(resource.MustParse(text))
	}
	to.Spec.Domain.Memory = &v1.Memory{Guest: quantity(wants), MaxGuest: new(resource.MustParse("1Gi"))}
	to.Status.Memory = &v1.MemoryStatus{GuestAtBoot: new(resource.MustParse("256Mi")), GuestCurrent: quantity(has), GuestRequested: quantity(given)}
	return to
}

func memoryChange(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceMemoryChange, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

func TestWhetherAChangeOfMemoryIsUnderWay(t *testing.T) {
	starting := withMemory(vmi(1, 1), "512Mi", "256Mi", "256Mi")
	starting.Status.Phase = v1.Scheduled
	full := withMemory(vmi(1, 1), "512Mi", "256Mi", "256Mi")
	full.Spec.Domain.Memory.MaxGuest = nil
	unsaid := withMemory(vmi(1, 1), "512Mi", "256Mi", "256Mi")
	unsaid.Status.Memory.GuestAtBoot = nil
	silent := withMemory(vmi(1, 1), "512Mi", "256Mi", "256Mi")
	silent.Status.Memory = nil
	for name, test := range map[string]struct {
		vmi                 *v1.VirtualMachineInstance
		underWay, announced bool
	}{
		"it has what it is to have":              {withMemory(vmi(1, 1), "512Mi", "512Mi", "512Mi"), false, false},
		"it has less":                            {withMemory(vmi(1, 1), "512Mi", "256Mi", "512Mi"), true, false},
		"it has more":                            {withMemory(vmi(1, 1), "256Mi", "512Mi", "256Mi"), true, false},
		"it may take more":                       {withMemory(vmi(1, 1), "256Mi", "256Mi", "512Mi"), true, false},
		"what it has is not known":               {withMemory(vmi(1, 1), "512Mi", "", "256Mi"), false, false},
		"what it was given is not known":         {withMemory(vmi(1, 1), "512Mi", "256Mi", ""), false, false},
		"what it was started with is not known":  {unsaid, false, false},
		"nothing is known":                       {silent, false, false},
		"it has no room":                         {full, false, false},
		"it does not run":                        {starting, false, false},
		"the pod is still to follow":             {withMemory(vmi(1, 1, memoryChange("", "")), "512Mi", "512Mi", "512Mi"), true, true},
		"its CPUs change, and its memory is not": {withMemory(vmi(3, 1, change("", "")), "512Mi", "512Mi", "512Mi"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if underWay, announced := UnderWay(test.vmi), MemoryAnnounced(test.vmi); underWay != test.underWay || announced != test.announced {
				t.Errorf("under way: %v, announced: %v", underWay, announced)
			}
		})
	}
}

func TestAPodFollowsItsGuestsMemory(t *testing.T) {
	want, less, more := resources("100m", "600Mi"), resources("100m", "350Mi"), resources("100m", "900Mi")
	const amount = "100m CPU and 600Mi of memory"
	asked := &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + amount + "."}
	full := &vmistatus.Obstacle{Reason: "PodResizePendingDeferred", Message: "The launcher pod can't have " + amount + " on its node now (Deferred): no room"}
	need := migrationrequired.Need{What: "the launcher pod is to have " + amount + ", for which its node has no room"}
	grows := func(sockets uint32, conditions ...v1.VirtualMachineInstanceCondition) *v1.VirtualMachineInstance {
		return withMemory(vmi(sockets, 1, conditions...), "512Mi", "256Mi", "256Mi")
	}
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		pod  *corev1.Pod
		want Plan
	}{
		"it is said before the pod is asked":         {grows(1), pod(less, &less), Plan{Memory: asked}},
		"the pod is asked":                           {grows(1, memoryChange(ReasonAsked, "x")), pod(less, &less), Plan{Resize: true, Memory: asked}},
		"the pod is asked for both":                  {grows(3, memoryChange(ReasonAsked, "x")), pod(less, &less), Plan{Resize: true, CPUs: asked, Memory: asked}},
		"the pod is asked for both, as the CPUs say": {grows(3, change(ReasonAsked, "x")), pod(less, &less), Plan{Resize: true, CPUs: asked, Memory: asked}},
		"what was refused stays said": {grows(1, memoryChange(ReasonRefused, amount+": a quota")), pod(less, &less),
			Plan{Resize: true, Memory: &vmistatus.Obstacle{Reason: ReasonRefused, Message: amount + ": a quota"}}},
		"each says what was said of it": {grows(3, memoryChange(ReasonRefused, amount+": a quota")), pod(less, &less),
			Plan{Resize: true, CPUs: asked, Memory: &vmistatus.Obstacle{Reason: ReasonRefused, Message: amount + ": a quota"}}},
		"the whole node has no room": {grows(1, memoryChange(ReasonTooSmall, amount+": a node")), pod(less, &less),
			Plan{Resize: true, Memory: &vmistatus.Obstacle{Reason: ReasonTooSmall, Message: amount + ": a node"},
				Needs: []migrationrequired.Need{{What: need.What, AtOnce: true}}}},
		"the node is full": {grows(1, memoryChange(ReasonAsked, "x")), pod(want, &less, says(corev1.PodResizePending, corev1.ConditionTrue, "Deferred", "no room")),
			Plan{Memory: full, Needs: []migrationrequired.Need{need}}},
		"the node is full, for both": {grows(3, memoryChange(ReasonAsked, "x")), pod(want, &less, says(corev1.PodResizePending, corev1.ConditionTrue, "Deferred", "no room")),
			Plan{CPUs: full, Memory: full, Needs: []migrationrequired.Need{need}}},
		"the guest takes it": {grows(1, memoryChange(ReasonAsked, "x")), pod(want, &want),
			Plan{Memory: &vmistatus.Obstacle{Reason: ReasonGuest, Message: "The guest has 256Mi of memory, and is to have 512Mi."}}},
		"the guest gives it back": {withMemory(vmi(1, 1, memoryChange(ReasonGuest, "x")), "384Mi", "512Mi", "384Mi"), pod(want, &want),
			Plan{Memory: &vmistatus.Obstacle{Reason: ReasonGuest, Message: "The guest has 512Mi of memory, and is to have 384Mi."}}},
		"the guest has the memory, and not the CPUs": {withMemory(vmi(3, 1, memoryChange(ReasonGuest, "x"), change(ReasonGuest, "x")), "512Mi", "512Mi", "512Mi"), pod(want, &want),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonGuest, Message: "The guest has CPUs in 1 sockets, and is to have them in 3."}}},
		"the guest has it, and the pod has more": {withMemory(vmi(1, 1, memoryChange(ReasonGuest, "x")), "512Mi", "512Mi", "512Mi"), pod(more, &more), Plan{Resize: true, Memory: asked}},
		"the guest has it, and the pod does":     {withMemory(vmi(1, 1, memoryChange(ReasonGuest, "x")), "512Mi", "512Mi", "512Mi"), pod(want, &want), Plan{}},
		"a pod without the container": {grows(1, memoryChange(ReasonAsked, "x")), &corev1.Pod{},
			Plan{Memory: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Decide(test.vmi, test.pod, want)); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARefusalIsToldOfWhatChanges(t *testing.T) {
	says := &vmistatus.Obstacle{Reason: ReasonRefused, Message: "The launcher pod can't have 300m CPU and 200Mi of memory, which is tried again and again: exceeded quota"}
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want Plan
	}{
		"memory": {withMemory(vmi(1, 1), "512Mi", "256Mi", "256Mi"), Plan{Memory: says}},
		"both":   {withMemory(vmi(3, 1), "512Mi", "256Mi", "256Mi"), Plan{CPUs: says, Memory: says}},
		"none":   {vmi(1, 1), Plan{}},
	} {
		if diff := cmp.Diff(test.want, Refused(test.vmi, resources("300m", "200Mi"), errors.New("exceeded quota"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
