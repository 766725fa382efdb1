package podstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTerminal(t *testing.T) {
	for name, c := range map[string]struct {
		phase   corev1.PodPhase
		deleted bool
		want    bool
	}{
		"a pod that was just made":             {"", false, false},
		"one that waits":                       {corev1.PodPending, false, false},
		"one that runs":                        {corev1.PodRunning, false, false},
		"one that is being deleted still runs": {corev1.PodRunning, true, false},
		"one whose node nobody hears of":       {corev1.PodUnknown, false, false},
		"one that has done its work":           {corev1.PodSucceeded, false, true},
		"one that has failed":                  {corev1.PodFailed, false, true},
		"one that was deleted and has ended":   {corev1.PodFailed, true, true},
		"a phase of a later Kubernetes":        {"Frozen", false, false},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: c.phase}}
		if c.deleted {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		if got := Terminal(pod); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := TerminalPhase(c.phase); got != c.want {
			t.Errorf("%s: the phase alone: %v, want %v", name, got, c.want)
		}
	}
}

func TestBeingScheduled(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want bool
	}{
		"a pod that was just made": {func(*corev1.Pod) {}, true},
		"one that has its node":    {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, false},
		"one that there is no node for": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		}, false},
		"one that is being deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false},
		"one that has ended":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
		if c.edit(pod); BeingScheduled(pod) != c.want {
			t.Errorf("%s: %v, want %v", name, !c.want, c.want)
		}
	}
}

func TestCondition(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "NotYet"},
	}}}
	if c := Condition(pod, corev1.PodReady); c == nil || c.Reason != "NotYet" {
		t.Errorf("Ready is %+v", c)
	}
	if c := Condition(pod, corev1.ContainersReady); c != nil {
		t.Errorf("a condition that the pod does not have is %+v", c)
	}
	if c := Condition(&corev1.Pod{}, corev1.PodReady); c != nil {
		t.Errorf("a pod without conditions has %+v", c)
	}
}

func TestContainer(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", RestartCount: 1}, {Name: "compute", RestartCount: 2}}}}
	for name, want := range map[string]int32{"proxy": 1, "compute": 2} {
		if s := Container(pod, name); s == nil || s.RestartCount != want {
			t.Errorf("the status of %s is %+v, want the one that has restarted %d times", name, s, want)
		}
	}
	if s := Container(pod, "init"); s != nil {
		t.Errorf("a container of which the kubelet has said nothing has %+v", s)
	}
}

func TestWaiting(t *testing.T) {
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, c := range map[string]struct {
		containers, init []corev1.ContainerState
		want             string
		prepared         bool
	}{
		"the kubelet has said nothing":                     {nil, nil, "", true},
		"it is being made":                                 {[]corev1.ContainerState{waits("ContainerCreating")}, nil, "ContainerCreating", true},
		"it has no image":                                  {[]corev1.ContainerState{waits("ErrImagePull")}, nil, "ErrImagePull", false},
		"it runs":                                          {[]corev1.ContainerState{runs}, nil, "", false},
		"a sidecar is being made":                          {[]corev1.ContainerState{waits("PodInitializing")}, []corev1.ContainerState{waits("PodInitializing")}, "PodInitializing", true},
		"a sidecar runs":                                   {[]corev1.ContainerState{waits("PodInitializing")}, []corev1.ContainerState{runs}, "PodInitializing", true},
		"a sidecar has no image":                           {[]corev1.ContainerState{waits("PodInitializing")}, []corev1.ContainerState{waits("ErrImagePull")}, "ErrImagePull", false},
		"the second init container has none":               {[]corev1.ContainerState{waits("PodInitializing")}, []corev1.ContainerState{runs, waits("InvalidImageName"), waits("PodInitializing")}, "InvalidImageName", false},
		"it runs, and a sidecar is restarted":              {[]corev1.ContainerState{runs}, []corev1.ContainerState{waits("CrashLoopBackOff")}, "", false},
		"it has no image, and a sidecar is restarted, too": {[]corev1.ContainerState{waits("ErrImagePull")}, []corev1.ContainerState{waits("CrashLoopBackOff")}, "ErrImagePull", false},
	} {
		pod := &corev1.Pod{}
		for _, state := range c.containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "compute", State: state})
		}
		for _, state := range c.init {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "beside", State: state})
		}
		got := ""
		if w := Waiting(pod, "compute"); w != nil {
			got = w.Reason
		}
		if got != c.want {
			t.Errorf("%s: it waits for %q, want %q", name, got, c.want)
		}
		if got := BeingPrepared(pod, "compute"); got != c.prepared {
			t.Errorf("%s: it is being prepared: %v, want %v", name, got, c.prepared)
		}
	}
}
