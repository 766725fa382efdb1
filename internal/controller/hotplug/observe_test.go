package hotplug

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
)

func TestHowFarAVMIIs(t *testing.T) {
	deleted := &metav1.Time{}
	tests := map[string]struct {
		edit func(*v1.VirtualMachineInstance, *corev1.Pod)
		want hotplug.Stage
	}{
		"its guest runs":                    {func(*v1.VirtualMachineInstance, *corev1.Pod) {}, hotplug.Active},
		"it has its node":                   {func(v *v1.VirtualMachineInstance, _ *corev1.Pod) { v.Status.Phase = v1.Scheduled }, hotplug.Active},
		"it waits for a node":               {func(v *v1.VirtualMachineInstance, _ *corev1.Pod) { v.Status.Phase = v1.Scheduling }, hotplug.Frozen},
		"its pod's node is not seen yet":    {func(_ *v1.VirtualMachineInstance, p *corev1.Pod) { p.Spec.NodeName = "" }, hotplug.Frozen},
		"it is being deleted":               {func(v *v1.VirtualMachineInstance, _ *corev1.Pod) { v.DeletionTimestamp = deleted }, hotplug.Ending},
		"its pod is being deleted":          {func(_ *v1.VirtualMachineInstance, p *corev1.Pod) { p.DeletionTimestamp = deleted }, hotplug.Ending},
		"its pod has ended":                 {func(_ *v1.VirtualMachineInstance, p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, hotplug.Ending},
		"its guest has ended":               {func(v *v1.VirtualMachineInstance, _ *corev1.Pod) { v.Status.Phase = v1.Succeeded }, hotplug.Over},
		"it moves to another node":          {migrates(&v1.VirtualMachineInstanceMigrationState{TargetNode: "two"}), hotplug.Moving},
		"it has moved to another node":      {migrates(&v1.VirtualMachineInstanceMigrationState{Completed: true}), hotplug.Active},
		"it has moved, and does not say so": {migrates(&v1.VirtualMachineInstanceMigrationState{Completed: true, TargetNode: "two"}), hotplug.Moving},
		"it could not move and stays here":  {migrates(&v1.VirtualMachineInstanceMigrationState{Failed: true}), hotplug.Active},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "one"}}
			test.edit(vmi, pod)
			if got := stage(vmi, pod); got != test.want {
				t.Errorf("stage %v, want %v", got, test.want)
			}
		})
	}
	if got := stage(&v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}, nil); got != hotplug.Frozen {
		t.Errorf("without a pod in the cache: stage %v", got)
	}
}

// The API server may have a pod's claims before the cache does: the loop must ask it before a deletion.
func TestWhetherAPodGetsItsNodeNext(t *testing.T) {
	now := time.Unix(1000, 0)
	pod := func(edit func(*corev1.Pod)) corev1.Pod {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmi", UID: "u"}}
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hp-volume-1", Labels: hotplugpod.Labels(vmi), CreationTimestamp: metav1.Time{Time: now}}}
		for _, claim := range []string{"first", "second"} {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
		edit(&p)
		return p
	}
	as := func(*corev1.Pod) {}
	for name, test := range map[string]struct {
		edit         func(*corev1.Pod)
		second, seen corev1.PersistentVolumeClaimPhase
		live, want   bool
	}{
		"all its claims are bound":                           {as, corev1.ClaimBound, corev1.ClaimBound, false, true},
		"one of its claims is being bound":                   {as, corev1.ClaimPending, corev1.ClaimPending, false, false},
		"one of its claims is bound, as the API server says": {as, corev1.ClaimBound, corev1.ClaimPending, true, true},
		"one of its claims is bound, which the cache lacks":  {as, corev1.ClaimBound, corev1.ClaimPending, false, false},
		"one of its claims is gone":                          {as, "", "", true, false},
		"it has its node":                                    {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, corev1.ClaimBound, corev1.ClaimBound, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := func(second corev1.PersistentVolumeClaimPhase) client.Client {
				objects := fake.NewClientBuilder()
				for claim, phase := range map[string]corev1.PersistentVolumeClaimPhase{"first": corev1.ClaimBound, "second": second} {
					if phase != "" {
						objects = objects.WithObjects(&corev1.PersistentVolumeClaim{
							ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: claim}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}})
					}
				}
				return objects.Build()
			}
			r := &Reconciler{Reader: store(test.second), Client: store(test.seen), Now: func() time.Time { return now }}
			s := &observation{vmi: &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmi", UID: "u"}}}
			s.Live = test.live
			if err := r.observePods(t.Context(), s, []corev1.Pod{pod(test.edit)}); err != nil {
				t.Fatal(err)
			}
			if len(s.Pods) != 1 || s.Pods[0].Scheduling != test.want {
				t.Errorf("the pods are %+v", s.Pods)
			}
		})
	}
}

func migrates(state *v1.VirtualMachineInstanceMigrationState) func(*v1.VirtualMachineInstance, *corev1.Pod) {
	return func(vmi *v1.VirtualMachineInstance, _ *corev1.Pod) { vmi.Status.MigrationState = state }
}

func TestWhereAPodIs(t *testing.T) {
	runs := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "target", UID: "u"}}
	ended, another := runs, runs
	ended.Status.Phase, another.UID = corev1.PodSucceeded, "another"
	for name, test := range map[string]struct {
		node            string
		edit            func(*observation)
		madeFor         *corev1.Pod
		elsewhere, left bool
		uncached        bool
	}{
		"where the guest is":   {"one", func(*observation) {}, nil, false, false, false},
		"where the guest goes": {"two", func(*observation) {}, &runs, true, false, false},
		"where the guest went, which the VMI does not say any more": {"three", func(*observation) {}, &runs, true, false, false},
		"where its launcher pod has ended":                          {"three", func(*observation) {}, &ended, true, true, false},
		"where its launcher pod is gone":                            {"three", func(*observation) {}, nil, true, true, false},
		"where its launcher pod runs that the cache does not have":  {"three", func(*observation) {}, &runs, true, false, true},
		"where its launcher pod is another now":                     {"three", func(*observation) {}, &another, true, true, false},
		"where another launcher pod may have it":                    {"two", func(*observation) {}, &ended, true, false, false},
		"on a node that is not known":                               {"", func(*observation) {}, nil, false, false, false},
		"nobody knows where the guest is":                           {"two", func(o *observation) { o.launcher = nil }, nil, false, false, false},
		"where the guest is, which the VMI does not say yet":        {"one", func(o *observation) { o.vmi.Status.ActivePods = nil }, nil, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &observation{vmi: &v1.VirtualMachineInstance{}, launcher: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "one"}}}
			s.vmi.Status.ActivePods = map[types.UID]string{"source": "one", "target": "two"}
			test.edit(s)
			objects := fake.NewClientBuilder()
			if test.madeFor != nil {
				objects = objects.WithObjects(test.madeFor)
			}
			r := &Reconciler{Reader: objects.Build(), Client: fake.NewClientBuilder().Build()}
			if !test.uncached {
				r.Client = r.Reader.(client.Client)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: corev1.PodSpec{NodeName: test.node}}
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "target", UID: "u", Controller: new(true)}}
			var seen hotplug.Pod
			if err := r.locate(t.Context(), s, pod, &seen); err != nil || seen.Elsewhere != test.elsewhere || seen.Left != test.left {
				t.Errorf("elsewhere %v, left %v (%v); want %v, %v", seen.Elsewhere, seen.Left, err, test.elsewhere, test.left)
			}
		})
	}
}

func TestStatusesKeepWhatIsOthers(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: new(corev1.PersistentVolumeBlock)}}
	s := &observation{vmi: &v1.VirtualMachineInstance{}, claims: map[string]*corev1.PersistentVolumeClaim{"new": claim}}
	s.vmi.Status.VolumeStatus = []v1.VolumeStatus{
		{Name: "used", Target: "sda", Size: 7, Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp-1", AttachPodUID: "1"},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "used"}},
		{Name: "root", Target: "vda"},
		{Name: "gone", HotplugVolume: &v1.HotplugVolumeStatus{}},
	}
	planned := append(hotplug.EntriesOf(s.vmi)[:1:1], hotplug.Entry{Volume: hotplug.Volume{Name: "a", Claim: "new"}, Phase: v1.VolumePending, Reason: "r", Message: "m"})
	want := []v1.VolumeStatus{
		{Name: "a", Phase: v1.VolumePending, Reason: "r", Message: "m", HotplugVolume: &v1.HotplugVolumeStatus{},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "new", VolumeMode: claim.Spec.VolumeMode}},
		s.vmi.Status.VolumeStatus[1],
		s.vmi.Status.VolumeStatus[0],
	}
	if diff := cmp.Diff(want, statuses(s, planned)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMemoryOnlySparesRequests(t *testing.T) {
	var m memory
	vmi, now := types.NamespacedName{Namespace: "ns", Name: "vm"}, time.Unix(100, 0)
	if m.madeLately(vmi, "hp-1", now) || len(m.failures(vmi)) > 0 {
		t.Error("it remembers what never was")
	}
	if !m.failed(vmi, "hp-1", "quota") || m.failed(vmi, "hp-1", "quota") {
		t.Error("the same failure is news once")
	}
	m.made(vmi, "hp-1", now)
	if !m.madeLately(vmi, "hp-1", now.Add(time.Second)) || m.madeLately(vmi, "hp-1", now.Add(cacheLag)) {
		t.Error("a pod is lately made for as long as a cache may lag")
	}
	if len(m.failures(vmi)) != 0 {
		t.Error("a pod that was made has not failed")
	}
	m.failed(vmi, "hp", "quota")
	m.settled(vmi, "hp")
	if !m.failed(vmi, "hp", "quota") {
		t.Error("what was settled and fails again is news")
	}
	m.forget(vmi)
	if len(m.failures(vmi)) > 0 || m.madeLately(vmi, "hp-1", now) {
		t.Error("it does not forget")
	}
}
