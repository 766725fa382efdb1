package evacuation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// scene is an eviction of the pod that a guest runs in, on node "a".
type scene struct {
	pod     *corev1.Pod
	vmi     *v1.VirtualMachineInstance
	cluster v1.EvictionStrategy
}

func newScene(strategy v1.EvictionStrategy) *scene {
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vmi-uid"},
		Spec:       v1.VirtualMachineInstanceSpec{EvictionStrategy: &strategy},
		Status: v1.VirtualMachineInstanceStatus{
			Phase: v1.Running, NodeName: "a", ActivePods: map[types.UID]string{"pod-uid": "a"},
		},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: launcherpod.Name(vmi), UID: "pod-uid"}}
	return &scene{pod: pod, vmi: vmi, cluster: v1.EvictionStrategyNone}
}

func (s *scene) immovable() {
	s.vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Message: "cannot migrate VMI: PVC data is not shared",
	}}
}

// migrating moves the guest to pod "target", on node "b".
func (s *scene) migrating() *v1.VirtualMachineInstanceMigrationState {
	s.vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: "m", SourceNode: "a", SourcePod: s.pod.Name, TargetNode: "b", TargetPod: "target",
	}
	s.vmi.Status.ActivePods["target-uid"] = "b"
	return s.vmi.Status.MigrationState
}

func (s *scene) evictTarget() { s.pod.Name, s.pod.UID = "target", "target-uid" }

const (
	none       = v1.EvictionStrategyNone
	always     = v1.EvictionStrategyLiveMigrate
	ifPossible = v1.EvictionStrategyLiveMigrateIfPossible
	external   = v1.EvictionStrategyExternal
)

func TestWhatAnEvictionIsAnswered(t *testing.T) {
	const triggered = `Eviction triggered evacuation of VMI "ns/vm": `
	for name, c := range map[string]struct {
		strategy v1.EvictionStrategy
		edit     func(*scene)
		allowed  bool
		mark     bool
		message  string
	}{
		"LiveMigrate, and the guest can be migrated":           {strategy: always, mark: true, message: triggered + "it is being migrated to another node"},
		"LiveMigrateIfPossible, and the guest can be migrated": {strategy: ifPossible, mark: true, message: triggered + "it is being migrated to another node"},
		"LiveMigrate, and the guest can't be migrated": {strategy: always, edit: (*scene).immovable,
			message: `VMI "ns/vm" has the evictionStrategy LiveMigrate and can't be migrated: PVC data is not shared; stop it, or do what is needed for its migration`},
		"LiveMigrateIfPossible, and the guest can't be migrated": {strategy: ifPossible, edit: (*scene).immovable, mark: true, message: triggered + "it is being stopped, because it can't be migrated: PVC data is not shared"},
		"None": {strategy: none, allowed: true},
		"External, and the guest can't be migrated": {strategy: external, edit: (*scene).immovable, mark: true,
			message: triggered + "its evictionStrategy is External, and whoever looks after it has to move or stop it"},
		"the VMI says nothing and the cluster LiveMigrate": {strategy: none, mark: true, message: triggered + "it is being migrated to another node",
			edit: func(s *scene) { s.vmi.Spec.EvictionStrategy, s.cluster = nil, always }},
		"the VMI says nothing and the cluster None":       {strategy: always, edit: func(s *scene) { s.vmi.Spec.EvictionStrategy = nil }, allowed: true},
		"the VMI says None and the cluster LiveMigrate":   {strategy: none, edit: func(s *scene) { s.cluster = always }, allowed: true},
		"a strategy that another release knows protects":  {strategy: "Suspend", edit: (*scene).immovable, message: `VMI "ns/vm" has the evictionStrategy LiveMigrate and can't be migrated: PVC data is not shared; stop it, or do what is needed for its migration`},
		"the guest is marked for its node already":        {strategy: always, edit: func(s *scene) { s.vmi.Status.EvacuationNodeName = "a" }, message: "Evacuation in progress: " + triggered + "it is being migrated to another node"},
		"the guest is marked for a node that it has left": {strategy: always, edit: func(s *scene) { s.vmi.Status.EvacuationNodeName = "z" }, mark: true, message: triggered + "it is being migrated to another node"},
		"the guest is being started":                      {strategy: always, edit: func(s *scene) { s.vmi.Status.Phase = v1.Scheduled }, mark: true, message: triggered + "it is migrated away as soon as it runs"},
		"the guest is on its way already":                 {strategy: always, edit: func(s *scene) { s.migrating() }, mark: true, message: triggered + "it is being migrated to another node"},
		"the pod is gone":                                 {strategy: always, edit: func(s *scene) { s.pod = nil }, allowed: true},
		"the pod has ended":                               {strategy: always, edit: func(s *scene) { s.pod.Status.Phase = corev1.PodSucceeded }, allowed: true},
		"the pod is being deleted":                        {strategy: always, edit: func(s *scene) { s.pod.DeletionTimestamp = &metav1.Time{} }, allowed: true},
		"the VMI is gone":                                 {strategy: always, edit: func(s *scene) { s.vmi = nil }, allowed: true},
		"the VMI has ended":                               {strategy: always, edit: func(s *scene) { s.vmi.Status.Phase = v1.Failed }, allowed: true},
		"the VMI is being deleted":                        {strategy: always, edit: func(s *scene) { s.vmi.DeletionTimestamp = &metav1.Time{} }, allowed: true},
		"a user's pod that names the VMI":                 {strategy: always, edit: func(s *scene) { s.pod.UID = "another" }, allowed: true},
		"the target pod of a migration that is under way": {strategy: always, edit: func(s *scene) { s.migrating(); s.evictTarget() }, message: `the guest of VMI "ns/vm" is being migrated to this pod; it is moved on when it has arrived`},
		"such a pod of a VMI whose strategy is None":      {strategy: none, edit: func(s *scene) { s.migrating(); s.evictTarget() }, allowed: true},
		"the target pod of a migration that has failed":   {strategy: always, edit: func(s *scene) { s.migrating().Failed = true; s.evictTarget() }, allowed: true},
		"the target pod, before the VMI was handed over":  {strategy: always, edit: func(s *scene) { s.pod.Name, s.pod.UID = "target", "target-uid" }, allowed: true},
		"the target pod whose guest has arrived": {strategy: always, mark: true, message: triggered + "it is being migrated to another node",
			edit: func(s *scene) { s.migrating().Completed = true; s.vmi.Status.NodeName = "b"; s.evictTarget() }},
		"the pod that the guest has left": {strategy: always, allowed: true,
			edit: func(s *scene) { s.migrating().Completed = true; s.vmi.Status.NodeName = "b" }},
		"the pod that the guest has left, before the VMI says so": {strategy: always, mark: true, message: triggered + "it is being migrated to another node",
			edit: func(s *scene) { s.migrating().Completed = true }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(c.strategy)
			if c.edit != nil {
				c.edit(s)
			}
			got := Judge(Eviction{Pod: s.pod, VMI: s.vmi, Cluster: s.cluster})
			if want := (Answer{Allowed: c.allowed, Mark: c.mark, Message: c.message}); got != want {
				t.Errorf("answered %+v\nwant     %+v", got, want)
			}
		})
	}
}

func TestAnEvictionsAnswerIsBounded(t *testing.T) {
	for _, strategy := range []v1.EvictionStrategy{always, ifPossible} {
		s := newScene(strategy)
		s.immovable()
		s.vmi.Status.Conditions[0].Message = strings.Repeat("x", 1<<20)
		if got := len(Judge(Eviction{Pod: s.pod, VMI: s.vmi}).Message); got > 2048 {
			t.Errorf("%s: the answer has %d bytes", strategy, got)
		}
	}
}

func TestTheMarkNamesTheNodeAndWhetherItWasCordoned(t *testing.T) {
	vmi := newScene(always).vmi
	vmi.Status.EvacuationNodeName = "z"
	vmi.Annotations = map[string]string{CordonAnnotation: "z", "other": "stays"}
	for name, c := range map[string]struct {
		cordoned bool
		want     string
	}{"cordoned": {true, "a"}, "schedulable": {false, ""}} {
		got := Mark(vmi, c.cordoned)
		if got.Status.EvacuationNodeName != "a" || got.Annotations[CordonAnnotation] != c.want || got.Annotations["other"] != "stays" {
			t.Errorf("%s: marked as %q, annotations %v", name, got.Status.EvacuationNodeName, got.Annotations)
		}
		if cleared := Clear(got); cleared.Status.EvacuationNodeName != "" || len(cleared.Annotations) != 1 {
			t.Errorf("%s: cleared it is %q, annotations %v", name, cleared.Status.EvacuationNodeName, cleared.Annotations)
		}
	}
	if vmi.Status.EvacuationNodeName != "z" || vmi.Annotations[CordonAnnotation] != "z" {
		t.Error("the VMI itself was changed")
	}
}
