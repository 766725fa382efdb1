package vmicontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// withNIC gives the VMI an interface on a network other than the pods'.
func withNIC(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: "blue", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "blue"}}})
	vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: "blue"})
}

// requiring adds the condition, with its status for this long.
func requiring(status corev1.ConditionStatus, ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceMigrationRequired, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		})
	}
}

func atHome(vmi *v1.VirtualMachineInstance) { vmi.Status.MigrationState = nil }

func stuck(vmi *v1.VirtualMachineInstance) {
	condition.Set(&vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Message: "cannot migrate VMI: PVC a is not shared",
	}, now)
}

func withBlue(p *corev1.Pod) {
	p.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": `[{"name":"ns/blue","interface":"pod16477688c0e"}]`}
}

func TestWhatThePodOfAGuestThatRunsLacks(t *testing.T) {
	type edits = []func(*v1.VirtualMachineInstance)
	const no, yes, none = "False", "True", ""
	const blue = "interface blue is to be plugged"
	for name, c := range map[string]struct {
		vmi   edits
		pod   []func(*corev1.Pod)
		want  string
		says  string
		asks  bool
		after time.Duration
	}{
		"nothing":                           {vmi: edits{atHome, without("two")}},
		"an interface":                      {vmi: edits{atHome, without("two"), withNIC}, want: no, says: blue, asks: true, after: 11 * time.Second},
		"for eleven seconds":                {vmi: edits{atHome, without("two"), withNIC, requiring("False", 11*time.Second)}, want: yes, says: blue, asks: true},
		"which came":                        {vmi: edits{atHome, without("two"), withNIC, requiring("True", time.Second)}, pod: []func(*corev1.Pod){withBlue}, asks: true},
		"in a guest that can't migrate":     {vmi: edits{atHome, without("two"), withNIC, stuck, requiring("False", time.Minute)}, want: yes, says: blue + "; the guest cannot be migrated: PVC a is not shared", asks: true},
		"in a guest that does not run yet":  {vmi: edits{atHome, without("two"), withNIC, inPhase(v1.Scheduled, time.Minute)}},
		"in a pod that is being deleted":    {vmi: edits{atHome, without("two"), withNIC, requiring("False", time.Minute)}, pod: []func(*corev1.Pod){going}, want: no},
		"in a VMI that is being deleted":    {vmi: edits{atHome, without("two"), withNIC, deleted(0), requiring("False", time.Minute)}, want: no},
		"while it is migrated":              {vmi: edits{withNIC, requiring("False", time.Minute)}, want: no},
		"when its migration has failed":     {vmi: edits{withNIC, hasFailed, without("two"), requiring("False", time.Minute)}, want: yes, says: blue, asks: true},
		"when it has just arrived":          {vmi: edits{withNIC, hasCompleted(0), requiring("True", time.Minute)}, want: none},
		"when it has arrived and needs one": {vmi: edits{withNIC, hasCompleted(time.Minute), hasSwitched, without("one")}, pod: []func(*corev1.Pod){onItsNode("two", "b")}, want: no, says: blue, asks: true, after: 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{VMI: moving(c.vmi...), Pod: sourcePod(c.pod...), Other: targetPod(), Now: now}
			plan := Decide(o)
			got := condition.Find(plan.VMI.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
			switch {
			case got == nil && c.want != none, got != nil && (string(got.Status) != c.want || got.Message != c.says):
				t.Errorf("it says %+v, want %s: %s", got, c.want, c.says)
			}
			if asks := plan.Networks != nil && *plan.Networks == launcherpod.Networks(o.VMI); asks != c.asks {
				t.Errorf("the pod is asked for it: %v", asks)
			}
			if c.after != 0 && plan.After != c.after {
				t.Errorf("it looks again after %s, want %s", plan.After, c.after)
			}
		})
	}
}
