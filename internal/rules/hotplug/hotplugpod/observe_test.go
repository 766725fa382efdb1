package hotplugpod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
)

func TestWhatIsSeenOfAnAttachmentPod(t *testing.T) {
	created := time.Unix(100, 0)
	base := hotplug.Pod{
		Name: "hp-volume-x-1", UID: "u1", Created: created, Running: true,
		Volumes: []hotplug.Volume{{Name: "data", Claim: "data-claim"}},
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, test := range map[string]struct {
		edit func(*corev1.Pod)
		want func(*hotplug.Pod)
	}{
		"it runs": {func(*corev1.Pod) {}, func(*hotplug.Pod) {}},
		"its container waits": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		}, func(p *hotplug.Pod) { p.Running = false }},
		"nothing is known of its container": {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, func(p *hotplug.Pod) { p.Running = false }},
		"it is pending":                     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, func(p *hotplug.Pod) { p.Running = false }},
		"a container that somebody has added does not run": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "added"}}, p.Status.ContainerStatuses...)
		}, func(*hotplug.Pod) {}},
		"only a container that somebody has added runs": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "added", State: running}}
		}, func(p *hotplug.Pod) { p.Running = false }},
		"it is being deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, func(p *hotplug.Pod) { p.Terminating = true }},
		"it has failed": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			func(p *hotplug.Pod) { p.Running, p.Finished = false, true }},
		"it has ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
			func(p *hotplug.Pod) { p.Running, p.Finished = false, true }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hp-volume-x-1", UID: "u1", CreationTimestamp: metav1.NewTime(created)}}
			pod.Spec.Volumes = []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-claim"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.AttachmentContainer, State: running}}
			test.edit(pod)
			want := base
			test.want(&want)
			if diff := cmp.Diff(want, Observe(pod)); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatKeepsAPodFromRunning(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: layout.AttachmentContainer,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	tests := map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"nothing known": {corev1.PodStatus{}, ""},
		"the scheduler": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "no node"}}}, "the attachment pod hp can't be scheduled: no node"},
		"the image":      {waiting("ErrImagePull", "not found"), "the attachment pod hp does not start: ErrImagePull: not found"},
		"it is starting": {waiting("ContainerCreating", ""), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hp"}, Status: test.status}
			if got := Obstacle(pod); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if scheduled := name != "the scheduler"; Unschedulable(pod) == scheduled {
				t.Errorf("it is said to be unschedulable: %v", !scheduled)
			}
		})
	}
}

func TestWhichNodeAnAttachmentPodIsFor(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"one that waits for the scheduler":         {func(*corev1.Pod) {}, "node-1"},
		"one that the scheduler has put somewhere": {func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }, "node-2"},
		"without any affinity":                     {func(p *corev1.Pod) { p.Spec.Affinity = nil }, ""},
		"with another affinity only":               {func(p *corev1.Pod) { p.Spec.Affinity.NodeAffinity = nil }, ""},
		"with a preference only": {func(p *corev1.Pod) {
			p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
		}, ""},
		"for one of several kinds of nodes": {func(p *corev1.Pod) {
			r := required(p)
			r.NodeSelectorTerms = append(r.NodeSelectorTerms, r.NodeSelectorTerms[0])
		}, ""},
		"for one of several nodes": {func(p *corev1.Pod) {
			fields := required(p).NodeSelectorTerms[0].MatchFields
			fields[0].Values = append(fields[0].Values, "node-2")
		}, ""},
		"for nodes with labels": {func(p *corev1.Pod) {
			required(p).NodeSelectorTerms[0] = corev1.NodeSelectorTerm{MatchExpressions: required(p).NodeSelectorTerms[0].MatchFields}
		}, ""},
		"by a field that is not a node's name": {func(p *corev1.Pod) {
			required(p).NodeSelectorTerms[0].MatchFields[0].Key = "metadata.namespace"
		}, ""},
		"for every node but one": {func(p *corev1.Pod) {
			required(p).NodeSelectorTerms[0].MatchFields[0].Operator = corev1.NodeSelectorOpNotIn
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := Render(input())
			if test.edit(pod); Node(pod) != test.want {
				t.Errorf("it is for node %q, want %q", Node(pod), test.want)
			}
		})
	}
}

// required returns an attachment pod's required node affinity.
func required(pod *corev1.Pod) *corev1.NodeSelector {
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func TestWhichPodsAreAttachmentPodsOfAVMI(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	for name, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"both labels":               {map[string]string{"kubevirt.io": "hotplug-disk", "kubevirt.io/created-by": "u", "more": "x"}, true},
		"no labels":                 {nil, false},
		"another VMI's":             {map[string]string{"kubevirt.io": "hotplug-disk", "kubevirt.io/created-by": "v"}, false},
		"a launcher pod of the VMI": {map[string]string{"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "u"}, false},
	} {
		if got := IsOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}}, vmi); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
