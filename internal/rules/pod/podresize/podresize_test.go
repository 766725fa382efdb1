package podresize

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// resources has a CPU and a memory request, and limits of both if given.
func resources(values ...string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	r := corev1.ResourceRequirements{Requests: list(values[0], values[1])}
	if len(values) > 2 {
		r.Limits = list(values[2], values[3])
	}
	return r
}

func vmi(wants, has uint32, conditions ...v1.VirtualMachineInstanceCondition) *v1.VirtualMachineInstance {
	out := &v1.VirtualMachineInstance{}
	out.Spec.Domain.CPU = &v1.CPU{Sockets: wants}
	out.Status.Phase, out.Status.Conditions = v1.Running, conditions
	if has > 0 {
		out.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: has, Cores: 1, Threads: 1}
	}
	return out
}

func change(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

// pod has a spec's request, and its container's present resources.
func pod(asks corev1.ResourceRequirements, has *corev1.ResourceRequirements, conditions ...corev1.PodCondition) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID = "launcher", "uid"
	p.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: "compute", Resources: asks}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", Resources: new(resources("9", "9Gi"))}, {Name: "compute", Resources: has}}
	p.Status.Conditions = conditions
	return p
}

func says(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestWhetherAChangeIsUnderWay(t *testing.T) {
	starting := vmi(3, 1)
	starting.Status.Phase = v1.Scheduled
	off := change("", "")
	off.Status = corev1.ConditionFalse
	for name, test := range map[string]struct {
		vmi                 *v1.VirtualMachineInstance
		underWay, announced bool
	}{
		"it has what it is to have":   {vmi(2, 2), false, false},
		"it has fewer":                {vmi(3, 1), true, false},
		"it has more":                 {vmi(1, 3), true, false},
		"what it has is not known":    {vmi(3, 0), false, false},
		"it does not run":             {starting, false, false},
		"the pod is still to follow":  {vmi(2, 2, change("", "")), true, true},
		"it is said that it does not": {vmi(2, 2, off), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if underWay, announced := UnderWay(test.vmi), CPUsAnnounced(test.vmi); underWay != test.underWay || announced != test.announced {
				t.Errorf("under way: %v, announced: %v", underWay, announced)
			}
		})
	}
}

func TestAPodFollowsItsGuest(t *testing.T) {
	want, less, more := resources("300m", "200Mi"), resources("100m", "190Mi"), resources("400m", "200Mi")
	const three = "300m CPU and 200Mi of memory"
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		pod  *corev1.Pod
		want Plan
	}{
		"it is said before the pod is asked": {vmi(3, 1), pod(less, &less),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + three + "."}}},
		"the pod is asked": {vmi(3, 1, change(ReasonAsked, "x")), pod(less, &less),
			Plan{Resize: true, CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + three + "."}}},
		"a pod that was refused something else": {vmi(3, 1, change(ReasonRefused, "a quota")), pod(less, &less),
			Plan{Resize: true, CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + three + "."}}},
		"what was refused stays said": {vmi(3, 1, change(ReasonRefused, three+": a quota")), pod(less, &less),
			Plan{Resize: true, CPUs: &vmistatus.Obstacle{Reason: ReasonRefused, Message: three + ": a quota"}}},
		"the whole node has no room": {vmi(3, 1, change(ReasonTooSmall, three+": a node")), pod(less, &less),
			Plan{Resize: true, CPUs: &vmistatus.Obstacle{Reason: ReasonTooSmall, Message: three + ": a node"},
				Needs: []migrationrequired.Need{{What: "the launcher pod is to have " + three + ", for which its node has no room", AtOnce: true}}}},
		"the whole node had no room for more": {vmi(3, 1, change(ReasonTooSmall, "500m: a node")), pod(less, &less),
			Plan{Resize: true, CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + three + "."}}},
		"a pod that has more memory is asked for less": {vmi(3, 3, change(ReasonGuest, "x")), pod(more, &more),
			Plan{Resize: true, CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The launcher pod is being asked to have " + three + "."}}},
		"the node has said nothing": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, &less),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The node is giving the launcher pod " + three + "."}}},
		"the node has not said what the container has": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, nil),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The node is giving the launcher pod " + three + "."}}},
		"the node is full": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, &less, says(corev1.PodReady, corev1.ConditionTrue, "R", "r"),
			says(corev1.PodResizePending, corev1.ConditionTrue, "Deferred", "no room")),
			Plan{CPUs: &vmistatus.Obstacle{Reason: "PodResizePendingDeferred", Message: "The launcher pod can't have " + three + " on its node now (Deferred): no room"},
				Needs: []migrationrequired.Need{{What: "the launcher pod is to have " + three + ", for which its node has no room"}}}},
		"the node is too small": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, &less, says(corev1.PodResizePending, corev1.ConditionTrue, "Infeasible", "too small")),
			Plan{CPUs: &vmistatus.Obstacle{Reason: "PodResizePendingInfeasible", Message: "The launcher pod can't have " + three + " on its node now (Infeasible): too small"},
				Needs: []migrationrequired.Need{{What: "the launcher pod is to have " + three + ", for which its node has no room", AtOnce: true}}}},
		"the node fails to": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, &less, says(corev1.PodResizePending, corev1.ConditionFalse, "Infeasible", "old"),
			says(corev1.PodResizeInProgress, corev1.ConditionTrue, "Error", "cgroup")),
			Plan{CPUs: &vmistatus.Obstacle{Reason: "PodResizeInProgressError", Message: "The launcher pod can't have " + three + " on its node now (Error): cgroup"}}},
		"the node is at it": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, &less, says(corev1.PodResizeInProgress, corev1.ConditionTrue, "", "")),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonAsked, Message: "The node is giving the launcher pod " + three + "."}}},
		"the guest takes it": {vmi(3, 1, change(ReasonAsked, "x")), pod(want, &want),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonGuest, Message: "The guest has CPUs in 1 sockets, and is to have them in 3."}}},
		"the guest gives it back": {vmi(1, 3, change(ReasonAsked, "x")), pod(want, &want),
			Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonGuest, Message: "The guest has CPUs in 3 sockets, and is to have them in 1."}}},
		"the guest has it":                              {vmi(3, 3, change(ReasonGuest, "x")), pod(want, &want), Plan{}},
		"the container still has more":                  {vmi(3, 3, change(ReasonAsked, "x")), pod(want, &more), Plan{}},
		"a limit that nobody has asked for may stay":    {vmi(3, 3, change(ReasonGuest, "x")), pod(resources("300m", "200Mi", "1", "1Gi"), &want), Plan{}},
		"a pod without its container":                   {vmi(3, 1, change(ReasonGuest, "x")), &corev1.Pod{}, Plan{CPUs: &vmistatus.Obstacle{Reason: ReasonGuest, Message: "x"}}},
		"a pod without its container, and nothing said": {vmi(3, 1), &corev1.Pod{}, Plan{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Decide(test.vmi, test.pod, want)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestWhatIsGranted(t *testing.T) {
	for name, test := range map[string]struct {
		has, want corev1.ResourceRequirements
		granted   bool
	}{
		"as much":            {resources("1", "1Gi"), resources("1", "1Gi"), true},
		"more":               {resources("2", "2Gi"), resources("1", "1Gi"), true},
		"less CPU":           {resources("999m", "1Gi"), resources("1", "1Gi"), false},
		"less memory":        {resources("1", "1023Mi"), resources("1", "1Gi"), false},
		"as high a limit":    {resources("1", "1Gi", "2", "2Gi"), resources("1", "1Gi", "2", "2Gi"), true},
		"a lower limit":      {resources("1", "1Gi", "2", "2Gi"), resources("1", "1Gi", "3", "2Gi"), false},
		"no limit yet":       {resources("1", "1Gi"), resources("1", "1Gi", "2", "2Gi"), false},
		"nothing":            {corev1.ResourceRequirements{}, resources("1", "1Gi"), false},
		"a limit of its own": {resources("1", "1Gi", "2", "2Gi"), resources("1", "1Gi"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Granted(&test.has, test.want); got != test.granted {
				t.Errorf("granted: %v", got)
			}
		})
	}
	if has := Actual(&corev1.Pod{}); has != nil || Granted(has, corev1.ResourceRequirements{}) {
		t.Errorf("a pod that runs nowhere has %+v", has)
	}
}

func TestARefusalIsToldInTheAPIServersWords(t *testing.T) {
	capacity := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "launcher", errors.New("too small"))
	capacity.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NodeCapacity"}}
	for reason, cause := range map[string]error{"PodResizeRefused": errors.New("exceeded quota"), "PodResizeExceedsNode": capacity} {
		want := vmistatus.Obstacle{Reason: reason, Message: "The launcher pod can't have 300m CPU and 200Mi of memory, which is tried again and again: " + cause.Error()}
		got := Refused(vmi(3, 1, change(ReasonAsked, "x")), resources("300m", "200Mi"), cause)
		if diff := cmp.Diff(Plan{CPUs: &want}, got); diff != "" {
			t.Errorf("it says (-want +got):\n%s", diff)
		}
	}
}

func TestThePatchIsOfTheVeryPod(t *testing.T) {
	const want = `{"metadata":{"uid":"uid"},"spec":{"containers":[{"name":"compute","resources":{"requests":{"cpu":"300m","memory":"200Mi"}}}]}}`
	if got, err := Patch(pod(resources("1", "1Gi"), nil), resources("300m", "200Mi")); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}
