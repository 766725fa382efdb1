package invariant

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

func serving(uid string, edits ...func(*Pod)) Pod {
	p := Pod{UID: uid, Volumes: []string{"data"}, Running: true}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func stopped(p *Pod)           { p.Running = false }
func leaving(p *Pod)           { p.Terminating = true }
func deletedExternally(p *Pod) { p.DeletedExternally = true }
func empty(p *Pod)             { p.Volumes = nil }

func through(phase v1.VolumePhase, pod string) []Volume {
	return []Volume{{Name: "data", Phase: phase, Pod: pod}}
}

func TestWhatHoldsAVolume(t *testing.T) {
	for name, test := range map[string]struct {
		volumes []Volume
		pods    []Pod
		deleted func(string) bool
		held    bool
	}{
		"nothing is in use":                          {through(v1.VolumeBound, ""), nil, nil, true},
		"the pod that serves it":                     {through(v1.VolumeReady, "1"), []Pod{serving("1")}, nil, true},
		"another pod that holds it":                  {through(v1.VolumeReady, "1"), []Pod{serving("2")}, nil, true},
		"a pod that does not run":                    {through(v1.VolumeReady, "1"), []Pod{serving("1", stopped)}, nil, false},
		"a pod that is being deleted":                {through(v1.VolumeReady, "1"), []Pod{serving("1", leaving)}, nil, false},
		"a pod without it":                           {through(v1.VolumeReady, "1"), []Pod{serving("1", empty)}, nil, false},
		"no pod":                                     {through(v1.HotplugVolumeMounted, "1"), nil, nil, false},
		"no pod, while the guest lets go":            {through(v1.HotplugVolumeDetaching, "1"), nil, nil, false},
		"its pod was taken away, and is there":       {through(v1.VolumeReady, "1"), []Pod{serving("1", leaving, deletedExternally)}, nil, true},
		"its pod was taken away, and is gone":        {through(v1.VolumeReady, "1"), nil, func(uid string) bool { return uid == "1" }, true},
		"another pod was taken away":                 {through(v1.VolumeReady, "1"), nil, func(uid string) bool { return uid == "2" }, false},
		"of a pod that is there its own word counts": {through(v1.VolumeReady, "1"), []Pod{serving("1", leaving)}, func(string) bool { return true }, false},
		"the second volume is held by nobody": {append(through(v1.VolumeReady, "1"), Volume{Name: "other", Phase: v1.VolumeReady, Pod: "1"}),
			[]Pod{serving("1")}, nil, false},
		"the second volume is held by nobody, the first is not in use": {append(through(v1.VolumeBound, ""), Volume{Name: "other", Phase: v1.VolumeReady, Pod: "1"}),
			[]Pod{serving("1")}, nil, false},
		"the second volume is held by nobody, the first one's pod was taken away": {
			[]Volume{{Name: "data", Phase: v1.VolumeReady, Pod: "2"}, {Name: "other", Phase: v1.VolumeReady, Pod: "1"}},
			[]Pod{serving("1")}, func(uid string) bool { return uid == "2" }, false},
	} {
		s := Snapshot{Volumes: test.volumes, Pods: test.pods, DeletedExternally: test.deleted}
		if err := Held(s); (err == nil) != test.held {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhichPodsMayBeDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		volumes []Volume
		pods    []Pod
		deleted func(string) bool
		want    string
	}{
		"one that holds nothing":                   {through(v1.VolumeReady, "1"), []Pod{serving("1", empty)}, nil, ""},
		"one that is not there":                    {through(v1.VolumeReady, "1"), []Pod{serving("2")}, nil, ""},
		"one whose volume nobody uses":             {through(v1.VolumeBound, "1"), []Pod{serving("1")}, nil, ""},
		"one that serves":                          {through(v1.VolumeReady, "1"), []Pod{serving("1")}, nil, "H2: pod 1 is deleted, which volume data is Ready through"},
		"one that another has replaced":            {through(v1.VolumeReady, "2"), []Pod{serving("1"), serving("2")}, nil, ""},
		"its successor does not run":               {through(v1.VolumeReady, "2"), []Pod{serving("1"), serving("2", stopped)}, nil, `through pod "2", which does not hold it`},
		"its successor is being deleted":           {through(v1.VolumeReady, "2"), []Pod{serving("1"), serving("2", leaving)}, nil, `through pod "2", which does not hold it`},
		"its successor does not hold the volume":   {through(v1.VolumeReady, "2"), []Pod{serving("1"), serving("2", empty)}, nil, `through pod "2", which does not hold it`},
		"its successor is gone":                    {through(v1.VolumeReady, "2"), []Pod{serving("1")}, nil, `through pod "2", which does not hold it`},
		"its successor was taken away":             {through(v1.VolumeReady, "2"), []Pod{serving("1")}, func(uid string) bool { return uid == "2" }, ""},
		"one that a volume is to come in from":     {through(v1.HotplugVolumeAttachedToNode, "1"), []Pod{serving("1")}, nil, "which volume data is about to be brought in from"},
		"one that a volume is not to come in from": {through(v1.HotplugVolumeAttachedToNode, "2"), []Pod{serving("1"), serving("2")}, nil, ""},
		"it holds the second volume, and not the first": {append(through(v1.VolumeReady, "2"), Volume{Name: "other", Phase: v1.VolumeReady, Pod: "1"}),
			[]Pod{serving("1", func(p *Pod) { p.Volumes = []string{"other"} })}, nil, "H2: pod 1 is deleted, which volume other"},
		"the second of its volumes is in use": {append(through(v1.VolumeBound, ""), Volume{Name: "other", Phase: v1.VolumeReady, Pod: "1"}),
			[]Pod{serving("1", func(p *Pod) { p.Volumes = []string{"data", "other"} })}, nil, "H2: pod 1 is deleted, which volume other"},
	} {
		got := ""
		if err := Deletable(Snapshot{Volumes: test.volumes, Pods: test.pods, DeletedExternally: test.deleted}, "1"); err != nil {
			got = err.Error()
		}
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestPodsAreCountedOnce(t *testing.T) {
	var h History
	if ever, now := h.Pods(); ever != 0 || now != 0 {
		t.Errorf("before any pod: %d, %d", ever, now)
	}
	vmiSays(v1.VolumeReady, "1")(&h, "1")
	for i, what := range []told{podIs("1", nil), podIs("2", nil), podIs("1", gone), podIs("1", terminating), podIs("2", terminating), podIs("3", nil)} {
		what(&h, string(rune('2'+i)))
	}
	if ever, now := h.Pods(); ever != 3 || now != 2 {
		t.Errorf("%d pods, of which %d are there; want 3 and 2", ever, now)
	}
}

// A version of a pod shows whether it serves, and which volumes it holds.
func TestWhatAPodShows(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"it serves":                    {func(*corev1.Pod) {}, ""},
		"its container does not run":   {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running = nil }, "H1"},
		"the kubelet says it is ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, "H1"},
		"it is being deleted":          {terminating, "H1"},
		"it has another volume":        {func(p *corev1.Pod) { p.Spec.Volumes[0].Name = "other" }, "H1"},
		"it has a volume of that name": {func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim = nil }, "H1"},
	} {
		var h History
		podIs("1", test.edit)(&h, "1")
		vmiSays(v1.VolumeReady, "1")(&h, "2")
		err := h.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), "at version 2 (VMI vmi): "+test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestNothingHasToHoldOnceTheVMIIsOver(t *testing.T) {
	var h History
	podIs("1", nil)(&h, "1")
	vmiSays(v1.VolumeReady, "1")(&h, "2")
	over := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vmi", ResourceVersion: "3"}}
	over.Status.Phase = v1.Succeeded
	h.VMI(over)
	podIs("1", gone)(&h, "4")
	if err := h.Check(); err != nil {
		t.Errorf("a pod that goes after its guest: %v", err)
	}
}

func TestOnlyHotpluggedVolumesAreJudged(t *testing.T) {
	var h History
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vmi", ResourceVersion: "1"}}
	vmi.Spec.Volumes = []v1.Volume{{Name: "root"}, {Name: "data"}}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "root", Phase: v1.VolumeReady}, {Name: "data", Phase: v1.VolumeBound, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: types.UID("1")}}}
	h.VMI(vmi)
	if err := h.Check(); err != nil {
		t.Errorf("a disk that the guest began with: %v", err)
	}
	got := h.moments[0].volumes
	if len(got) != 1 || got[0] != (Volume{Name: "data", Phase: v1.VolumeBound, Pod: "1", Wanted: true}) {
		t.Errorf("judged are %+v, want data, which is wanted", got)
	}
}

func TestAVersionThatIsNoNumberIsAMistake(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it is taken for one")
		}
	}()
	version("x")
}
