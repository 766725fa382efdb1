package vmicontroller

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// grows is a VMI whose guest has one socket and wants this many.
func grows(to uint32) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		inPhase(v1.Running, time.Minute)(vmi)
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: to}
		vmi.Status.NodeName = "node"
		vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: 1, Cores: 1, Threads: 1}
	}
}

func announced(vmi *v1.VirtualMachineInstance) {
	condition.Set(&vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue, Reason: "PodResizeAsked"}, now)
}

func TestThePodOfAGuestThatGrowsIsResized(t *testing.T) {
	want := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}}
	pod := newPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	for name, test := range map[string]struct {
		vmi    *v1.VirtualMachineInstance
		known  bool
		needs  Question
		resize bool
		says   string
	}{
		"a guest that stays as it is":      {vmi: newVMI(grows(1))},
		"what the pod is to have is asked": {vmi: newVMI(grows(3)), needs: NeedResources},
		"it is said first":                 {vmi: newVMI(grows(3)), known: true, says: "PodResizeAsked"},
		"then the pod is resized":          {vmi: newVMI(grows(3), announced), known: true, resize: true, says: "PodResizeAsked"},
		"a VMI that is to go":              {vmi: newVMI(grows(3), announced, deleted(time.Second)), known: true, says: "PodResizeAsked"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{VMI: test.vmi, Pod: pod, Now: now}
			if test.known {
				o.Resources = &want
			}
			plan := Decide(o)
			says := ""
			if c := condition.Find(plan.VMI.Status.Conditions, v1.VirtualMachineInstanceVCPUChange); c != nil {
				says = c.Reason
			}
			if plan.Needs != test.needs || plan.Resize != test.resize || says != test.says {
				t.Errorf("it needs %q, resizes: %v, says %q", plan.Needs, plan.Resize, says)
			}
		})
	}
}

func TestARefusedResizeIsTold(t *testing.T) {
	vmi := newVMI(grows(3), announced)
	want := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("1Gi")}}
	out := ResizeRefused(vmi, want, errors.New("exceeded quota: small"), now)
	c := condition.Find(out.Status.Conditions, v1.VirtualMachineInstanceVCPUChange)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != "PodResizeRefused" ||
		c.Message != "The launcher pod can't have 300m CPU and 1Gi of memory, which is tried again and again: exceeded quota: small" {
		t.Errorf("it says %+v", c)
	}
	if before := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceVCPUChange); before.Reason != "PodResizeAsked" {
		t.Error("the VMI that was given has been changed")
	}
}

// TestANodeWithoutRoomNeedsAMigration: a resize that the kubelet has deferred must be a reason for MigrationRequired.
func TestANodeWithoutRoomNeedsAMigration(t *testing.T) {
	want := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}}
	for reason, status := range map[string]corev1.ConditionStatus{corev1.PodReasonDeferred: corev1.ConditionFalse, corev1.PodReasonInfeasible: corev1.ConditionTrue} {
		pod := newPod(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Spec.Containers[0].Resources = want
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
		})
		plan := Decide(Observed{VMI: newVMI(grows(3), announced), Pod: pod, Resources: &want, Now: now})
		c := condition.Find(plan.VMI.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		if c == nil || c.Status != status || !strings.Contains(c.Message, "for which its node has no room") {
			t.Errorf("%s: MigrationRequired is %+v, want %s", reason, c, status)
		}
	}
}

// TestAPodIsNotResizedWhileItsGuestMoves: the pod counts in which the guest has arrived.
func TestAPodIsNotResizedWhileItsGuestMoves(t *testing.T) {
	grow := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 3}
		vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: 1, Cores: 1, Threads: 1}
		announced(vmi)
	}
	want := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}}
	for name, test := range map[string]struct {
		o      Observed
		resize bool
	}{
		"while it moves":       {Observed{VMI: moving(grow), Pod: sourcePod(), Other: targetPod()}, false},
		"when it has arrived":  {Observed{VMI: moving(grow, hasCompleted(time.Minute), hasSwitched, without("one")), Pod: targetPod()}, true},
		"when it has not gone": {Observed{VMI: moving(grow, hasFailed, without("two")), Pod: sourcePod()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Resources, test.o.Now = &want, now
			if plan := Decide(test.o); plan.Resize != test.resize || plan.Needs != "" {
				t.Errorf("it resizes: %v, needs %q", plan.Resize, plan.Needs)
			}
		})
	}
}
