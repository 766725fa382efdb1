package handler

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// The node's probe runs beside virt-handler, which serves running guests meanwhile, and writes to the file that
// virt-handler reads. Its result must not outlive a restart of the node.
func TestTheProbeRunsBesideVirtHandler(t *testing.T) {
	text, err := os.ReadFile("../../config/deploy/handler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(text, set); err != nil {
		t.Fatal(err)
	}
	pod := &set.Spec.Template.Spec
	for _, c := range pod.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways || c.StartupProbe != nil {
			t.Errorf("virt-handler waits for the container %s", c.Name)
		}
		if c.Name == "probe-node" && (!slices.Contains(c.Command, "--hold") || !slices.Contains(c.Command, nodeprobe.File)) {
			t.Errorf("the probe is %v", c.Command)
		}
	}
	for _, v := range pod.Volumes {
		if v.Name == "node" && (v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory) {
			t.Errorf("the result is in %+v", v.VolumeSource)
		}
	}
}

// Anybody may have written the network status of a pod.
func TestWhatAPodSaysOfItsNetworksIsKeptWithinBounds(t *testing.T) {
	for length, kept := range map[int]bool{0: false, 1: true, nichotplug.MaxAnnotation: true, nichotplug.MaxAnnotation + 1: false} {
		text := strings.Repeat("x", length)
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{nichotplug.StatusAnnotation: text, launcherpod.NetworksAnnotation: text, "other": "y"}
		object, err := stripPod(pod, false)
		if err != nil {
			t.Fatal(err)
		}
		got := object.(*corev1.Pod).Annotations
		for _, name := range []string{nichotplug.StatusAnnotation, launcherpod.NetworksAnnotation} {
			if _, there := got[name]; there != kept || got["other"] != "" {
				t.Errorf("of %d bytes of %s there is left: %v, %d annotations", length, name, there, len(got))
			}
		}
	}
}

// The kubelet warns of each failed probe: virt-handler must answer when it is ready, or when the kubelet's time
// is over.
func TestVirtHandlerIsReadyWhenGuestsCanCome(t *testing.T) {
	missing := errors.New("the kubelet does not offer the devices yet")
	for name, c := range map[string]struct {
		synced bool
		offers error
		want   string
	}{
		"it knows its node, which offers the devices": {true, nil, ""},
		"its node does not offer the devices":         {true, missing, missing.Error()},
		"it does not know its node":                   {false, nil, "the VMIs and pods of this node are not known yet"},
	} {
		check := ready(func(context.Context) bool { return c.synced }, func(context.Context) error { return c.offers })
		got := ""
		if err := check(httptest.NewRequest(http.MethodGet, "/readyz", nil)); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: it says %q, want %q", name, got, c.want)
		}
	}
}

// The reason of a pod's end must be kept until the VMI's end, which reports it.
func TestWhyAPodIsEndedIsKept(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Reason: "Terminated", Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: "x"},
	}}}
	object, err := stripPod(pod, false)
	if err != nil {
		t.Fatal(err)
	}
	want := vmistatus.Disruption{Reason: vmistatus.ReasonNodeShutdown, Message: "x"}
	if got := vmistatus.DisruptionOf(object.(*corev1.Pod)); got != want {
		t.Errorf("the pod says %+v, want %+v", got, want)
	}
	if vmistatus.LauncherEnded(object.(*corev1.Pod)) {
		t.Error("a pod whose container nobody knows has ended")
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "x"}}}}
	if object, err = stripPod(pod, false); err != nil {
		t.Fatal(err)
	}
	if !vmistatus.LauncherEnded(object.(*corev1.Pod)) {
		t.Error("the end of the pod's container is not kept")
	}
}

// Only traces need the time of a pod's binding.
func TestWhenAPodWasBoundIsKeptForTraces(t *testing.T) {
	bound := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1796126400, 0)}
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{bound}}}
	for traced, want := range map[bool][]corev1.PodCondition{true: {bound}, false: nil} {
		object, err := stripPod(pod, traced)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, object.(*corev1.Pod).Status.Conditions); diff != "" {
			t.Errorf("traced: %v (-want +got):\n%s", traced, diff)
		}
	}
}
