package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

func TestWhyAPodIsEnded(t *testing.T) {
	deleted := &metav1.Time{Time: now}
	target := func(status corev1.ConditionStatus, reason, message string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: status, Reason: reason, Message: message}}
	}
	for name, c := range map[string]struct {
		deleted    *metav1.Time
		reason     string
		conditions []corev1.PodCondition
		want       Disruption
	}{
		"nobody has":                        {},
		"somebody deletes it":               {deleted: deleted, want: Disruption{Reason: "LauncherPodEnded"}},
		"the eviction API, about to delete": {nil, "", target("True", "EvictionByEvictionAPI", "Eviction API: evicting"), Disruption{"Evicted", "Eviction API: evicting"}},
		"the eviction API":                  {deleted, "", target("True", "EvictionByEvictionAPI", "Eviction API: evicting"), Disruption{"Evicted", "Eviction API: evicting"}},
		"a taint":                           {deleted, "", target("True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), Disruption{"Evicted", "Taint manager: deleting due to NoExecute taint"}},
		"pressure on its node":              {nil, "Evicted", target("True", "TerminationByKubelet", "The node was low on resource: memory."), Disruption{"Evicted", "The node was low on resource: memory."}},
		"its node is shut down":             {nil, "Terminated", target("True", "TerminationByKubelet", "imminent node shutdown"), Disruption{"NodeShutdown", "imminent node shutdown"}},
		"its node is shut down, and its guest has powered off": {nil, "", target("True", "TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."),
			Disruption{"NodeShutdown", "Pod was terminated in response to imminent node shutdown."}},
		"a disruption that did not come": {deleted, "", target("False", "EvictionByEvictionAPI", "x"), Disruption{Reason: "LauncherPodEnded"}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: c.deleted}, Status: corev1.PodStatus{Reason: c.reason, Conditions: c.conditions}}
		if got := DisruptionOf(pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A guest that was ended from outside must make the VMI Failed, unless the VMI was being deleted.
func TestAnEndThatNobodyAskedForIsAFailure(t *testing.T) {
	evicted := Disruption{"Evicted", "Eviction API: evicting"}
	for name, c := range map[string]struct {
		phase  v1.VirtualMachineInstancePhase
		probed bool
		how    launch.Reason
		by     Disruption
		want   End
	}{
		"its pod was deleted": {v1.Running, true, launch.ReasonHostShutdown, Disruption{Reason: ReasonPodEnded},
			End{Failed: true, Reason: "LauncherPodEnded", Message: "The launcher pod was ended, and the guest was shut down."}},
		"and it did not shut down": {v1.Running, false, launch.ReasonKilled, Disruption{Reason: ReasonPodEnded},
			End{Failed: true, Reason: "LauncherPodEnded", Message: "The launcher pod was ended, and the guest, which did not shut down within its grace period, was ended by force."}},
		"it was evicted": {v1.Running, false, launch.ReasonHostShutdown, evicted,
			End{Failed: true, Reason: "Evicted", Message: "The launcher pod was evicted, and the guest was shut down. Kubernetes said: Eviction API: evicting"}},
		"it was evicted before the guest ran": {v1.Scheduled, false, launch.ReasonHostShutdown, evicted,
			End{Failed: true, Reason: "Evicted", Message: "The launcher pod was evicted before the guest ran. Kubernetes said: Eviction API: evicting"}},
		"its node was shut down": {v1.Running, false, launch.ReasonHostShutdown, Disruption{Reason: ReasonNodeShutdown},
			End{Failed: true, Reason: "NodeShutdown", Message: "The node was shut down, and the guest was shut down."}},
		"its probe failed": {v1.Running, true, launch.ReasonHostShutdown, Disruption{},
			End{Failed: true, Reason: "LivenessProbe", Message: "The liveness probe failed, and the guest was shut down."}},
		"nobody knows": {v1.Running, false, launch.ReasonHostShutdown, Disruption{},
			End{Failed: true, Reason: "LauncherPodEnded", Message: "The launcher pod was ended, and the guest was shut down."}},
		"the guest powered itself off meanwhile": {v1.Running, true, launch.ReasonGuestShutdown, evicted,
			End{Reason: "GuestShutdown", Message: "The VirtualMachineInstance was shut down."}},
	} {
		vmi := instance(c.phase)
		if c.probed {
			vmi.Spec.LivenessProbe = &v1.Probe{}
		}
		if got := *EndOfQEMU(vmi, launch.Exit{Reason: c.how}, c.by); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		vmi.DeletionTimestamp = &metav1.Time{Time: now}
		if got := *EndOfQEMU(vmi, launch.Exit{Reason: c.how}, c.by); got.Failed {
			t.Errorf("%s, of a VMI that is to go: %+v", name, got)
		}
	}
}

// The kubelet tells why it has ended a pod only with the pod's end, so that the reason must be awaited unless it is known.
func TestWhichEndsAreUnexplained(t *testing.T) {
	for name, c := range map[string]struct {
		how     launch.Reason
		by      Disruption
		deleted bool
		want    bool
	}{
		"somebody has ended it":                      {how: launch.ReasonHostShutdown, want: true},
		"somebody has ended it by force":             {how: launch.ReasonKilled, want: true},
		"its pod was deleted":                        {how: launch.ReasonHostShutdown, by: Disruption{Reason: ReasonPodEnded}},
		"its VMI was deleted":                        {how: launch.ReasonHostShutdown, deleted: true},
		"it has powered itself off":                  {how: launch.ReasonGuestShutdown},
		"it has crashed":                             {how: launch.ReasonCrashed},
		"it has gone to another node by a migration": {how: launch.ReasonMigrated},
	} {
		vmi := instance(v1.Running)
		if c.deleted {
			vmi.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got := Unexplained(vmi, launch.Exit{Reason: c.how}, c.by); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
