package presence

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func newPod(namespace, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid, UID: types.UID(uid)}}
}

func running() *v1.VirtualMachineInstance {
	instance := &v1.VirtualMachineInstance{}
	instance.Namespace, instance.Name, instance.UID, instance.ResourceVersion = "shop", "web", "u", "5"
	instance.Status.Phase = v1.Running
	instance.Status.ActivePods = map[types.UID]string{"p": "node1"}
	return instance
}

func TestOnlyTheChosenPodIsTheLauncher(t *testing.T) {
	instance := running()
	chosen := newPod("shop", "p")
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want *corev1.Pod
	}{
		"the chosen pod":                         {[]*corev1.Pod{chosen}, chosen},
		"another pod bears the label, too":       {[]*corev1.Pod{newPod("shop", "other"), chosen}, chosen},
		"only a pod that bears the label":        {[]*corev1.Pod{newPod("shop", "other")}, nil},
		"a pod of that UID in another namespace": {[]*corev1.Pod{newPod("bank", "p")}, nil},
	} {
		if got := launcherPod(instance, c.pods); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestOnlyTheLaunchersNetworksCount(t *testing.T) {
	attached := func(pod *corev1.Pod, network string) *corev1.Pod {
		pod.Annotations = map[string]string{
			nichotplug.StatusAnnotation:    `[{"name":"shop/` + network + `","interface":"pod0123456789a"}]`,
			launcherpod.NetworksAnnotation: `[{"namespace":"shop","name":"` + network + `","interface":"pod0123456789a"}]`,
		}
		pod.ResourceVersion = "7"
		return pod
	}
	p := New(Env{Wake: func() {}}, running())
	if got := p.Networks(); len(got.Attached) != 0 || got.Version != "" {
		t.Errorf("without a pod there are %v", got)
	}
	p.SetPods([]*corev1.Pod{attached(newPod("shop", "other"), "red"), attached(newPod("shop", "p"), "blue")})
	if got := p.Networks(); len(got.Attached) != 1 || got.Attached["pod0123456789a"] != "shop/blue" || !strings.HasSuffix(got.Version, " 7") {
		t.Errorf("there are %v", got)
	}
}

func TestDecideWhatToAsk(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	final := running()
	final.Status.Phase = v1.Succeeded
	elsewhere := running()
	elsewhere.Status.ActivePods = map[types.UID]string{"p": "node2"}
	connected := Launcher{Connected: true}
	waiting := absent{missing: "p", next: now.Add(time.Second)}
	due := absent{missing: "p", next: now}
	for name, c := range map[string]struct {
		known  *v1.VirtualMachineInstance
		absent absent
		shown  bool
		l      Launcher
		want   decision
	}{
		"a VMI that was let go":                        {nil, absent{vmi: true}, false, Launcher{}, decision{absent: absent{vmi: true}}},
		"all is shown":                                 {running(), waiting, true, connected, decision{absent: absent{next: waiting.next}}},
		"the VMI is not shown, its guest may run":      {running(), absent{vmi: true}, true, Launcher{}, decision{question: theVMI, absent: absent{vmi: true}}},
		"a final VMI is not shown, its launcher is":    {final, absent{vmi: true}, true, connected, decision{question: theVMI, absent: absent{vmi: true}}},
		"a final VMI is not shown":                     {final, absent{vmi: true}, true, Launcher{}, decision{question: dropVMI, absent: absent{vmi: true}}},
		"the VMI is not shown, its guest has ended":    {running(), absent{vmi: true}, true, Launcher{Connected: true, Exited: true}, decision{question: dropVMI, absent: absent{vmi: true}}},
		"the VMI is gone, its pod is not":              {running(), absent{vmi: true, deserted: true}, true, connected, decision{absent: absent{vmi: true, deserted: true}}},
		"the pod is not shown yet":                     {running(), absent{}, false, connected, decision{after: podPatience, absent: absent{missing: "p", next: now.Add(podPatience)}}},
		"the pod has not been shown for a bit":         {running(), waiting, false, connected, decision{after: time.Second, absent: waiting}},
		"the pod has not been shown for a while":       {running(), due, false, connected, decision{question: thePod, pod: "p", absent: due}},
		"the pod is known to be gone":                  {running(), absent{pod: "p"}, false, connected, decision{absent: absent{pod: "p"}}},
		"the pod of a final VMI is not shown":          {final, due, false, connected, decision{absent: absent{next: now}}},
		"the pod is on another node":                   {elsewhere, due, false, connected, decision{absent: absent{next: now}}},
		"another pod than before is not shown":         {running(), absent{missing: "q", next: now}, false, connected, decision{after: podPatience, absent: absent{missing: "p", next: now.Add(podPatience)}}},
		"the VMI is gone, and its pod is not shown":    {running(), absent{vmi: true, deserted: true, missing: "p", next: now}, false, connected, decision{question: thePod, pod: "p", absent: absent{vmi: true, deserted: true, missing: "p", next: now}}},
		"the VMI is not shown, nor is its pod, by far": {running(), absent{vmi: true, missing: "p", next: now}, false, connected, decision{question: theVMI, absent: absent{vmi: true, missing: "p", next: now}}},
	} {
		if got := decide(c.known, c.absent, "node1", c.shown, c.l, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// api is an API server.
type api struct {
	away    bool
	vmi     *v1.VirtualMachineInstance
	podGone bool
	lost    bool // the pod is marked
	asked   int
}

func (a *api) VMI(_ context.Context, _, name string) (*v1.VirtualMachineInstance, error) {
	a.asked++
	switch {
	case a.away:
		return nil, errors.New("connection refused")
	case a.vmi == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return a.vmi, nil
}

func (a *api) Pod(_ context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	a.asked++
	if a.away {
		return nil, errors.New("connection refused")
	}
	if namespace != "shop" || name == "" || uid != "p" {
		return nil, errors.New("another pod was asked for")
	}
	if a.podGone {
		return nil, nil
	}
	return podOnANode(a.lost), nil
}

func podOnANode(lost bool) *corev1.Pod {
	pod := newPod("shop", "p")
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
	if lost {
		pod.Status.Conditions[1].Status = corev1.ConditionFalse
	}
	return pod
}

// The cache of pods may lag behind that of VMIs: virt-handler must not take back a mark that it has not seen yet.
func TestANodeIsLostUntilTheAPIServerSaysOtherwise(t *testing.T) {
	s := see(t)
	lost := running()
	lost.ResourceVersion = "6"
	lost.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: vmistatus.ReasonNodeLost,
	}}
	s.SetPods([]*corev1.Pod{podOnANode(false)})
	expect := func(when string, interrupted, again bool, asked int) {
		t.Helper()
		after, _ := s.QueryMissing(t.Context(), Launcher{Connected: true})
		if got := s.Observe().Pod.Interrupted; got != interrupted || (after > 0) != again || s.api.asked != asked {
			t.Errorf("%s: interrupted %v, again after %v, the API server was asked %d times; want %v, %v, %d",
				when, got, after, s.api.asked, interrupted, again, asked)
		}
	}
	expect("the node answers", false, false, 0)
	s.SetVMI(lost)
	s.api.lost = true
	expect("the mark has not been seen yet", true, true, 1)
	s.SetPods([]*corev1.Pod{podOnANode(true)})
	expect("the mark has been seen", true, false, 1)
	s.SetPods([]*corev1.Pod{podOnANode(false)})
	s.api.away = true
	expect("it is gone, and the API server is away", true, true, 2)
	s.api.away, s.api.lost = false, false
	expect("it is gone", false, false, 3)
	expect("it is still gone", false, false, 3)
	s.SetPods([]*corev1.Pod{podOnANode(true)})
	expect("it is lost again", true, false, 3)
	s.SetPods([]*corev1.Pod{podOnANode(false)})
	expect("it is back again", false, false, 4)
}

type seen struct {
	*Presence
	api   *api
	now   time.Time
	woken int
	pods  string
}

func see(t *testing.T) *seen {
	s := &seen{api: &api{vmi: running()}, now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), pods: t.TempDir()}
	s.Presence = New(Env{
		Node: "node1", Pods: s.pods, Cluster: s.api, Wake: func() { s.woken++ },
		Now: func() time.Time { return s.now }, Log: logr.Discard(),
	}, running())
	return s
}

func TestAVMIThatIsNotShownAnyMore(t *testing.T) {
	connected := Launcher{Connected: true}
	for name, c := range map[string]struct {
		change         func(*seen)
		hold, deserted bool
		known          bool
	}{
		"it has lost its label":           {func(*seen) {}, false, false, false},
		"it is gone":                      {func(s *seen) { s.api.vmi = nil }, false, true, true},
		"another one has its name":        {func(s *seen) { s.api.vmi = running(); s.api.vmi.UID = "later" }, false, true, true},
		"the API server is away":          {func(s *seen) { s.api.away = true }, true, false, true},
		"it was shown again in good time": {func(s *seen) { s.SetVMI(running()) }, false, false, true},
	} {
		s := see(t)
		s.SetPods([]*corev1.Pod{newPod("shop", "p")})
		s.SetVMI(nil)
		if s.Shows("shop", "web") {
			t.Errorf("%s: it counts as shown", name)
		}
		c.change(s)
		after, hold := s.QueryMissing(t.Context(), connected)
		if f := s.Observe(); hold != c.hold || (after > 0) != hold || f.Deserted != c.deserted || (f.VMI != nil) != c.known {
			t.Errorf("%s: hold %v, %v; known is %+v", name, hold, after, f)
		}
	}
}

func TestAPodThatIsNotShown(t *testing.T) {
	s := see(t)
	ask := func() time.Duration {
		t.Helper()
		after, hold := s.QueryMissing(t.Context(), Launcher{})
		if hold {
			t.Fatal("the want of a pod holds everything up")
		}
		return after
	}
	if after := ask(); after != podPatience || s.api.asked > 0 {
		t.Errorf("at once: again after %v; the API server was asked %d times", after, s.api.asked)
	}
	s.now = s.now.Add(podPatience)
	s.api.away = true
	if after := ask(); after != askPause || s.Observe().Pod != nil {
		t.Errorf("from an API server that is away: again after %v, pod %+v", after, s.Observe().Pod)
	}
	s.now, s.api.away = s.now.Add(askPause), false
	if after := ask(); after != askPause || s.Observe().Pod != nil {
		t.Errorf("of a pod that exists: again after %v, pod %+v", after, s.Observe().Pod)
	}
	s.now, s.api.podGone = s.now.Add(askPause), true
	if after := ask(); after != 0 {
		t.Errorf("of a pod that is gone: again after %v", after)
	}
}

var ended = vmistatus.Disruption{Reason: vmistatus.ReasonPodEnded}

func TestAPodThatIsGone(t *testing.T) {
	s := see(t)
	s.api.podGone = true
	for range 2 {
		s.QueryMissing(t.Context(), Launcher{})
		s.now = s.now.Add(podPatience)
	}
	folder := filepath.Join(s.pods, "p")
	for _, left := range []bool{false, true} {
		if left {
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := s.Observe().Pod, (vmihandler.Pod{UID: "p", Gone: true, Remains: left, Disruption: ended}); got == nil || *got != want {
			t.Errorf("the pod is %+v, want %+v", got, want)
		}
	}
	// A pod that appears after all must count.
	s.SetPods([]*corev1.Pod{newPod("shop", "p")})
	if got := s.Observe().Pod; got == nil || got.Gone {
		t.Errorf("the pod is %+v", got)
	}
}

func TestTheNewestVMIIsKnown(t *testing.T) {
	version := func(v string) *v1.VirtualMachineInstance {
		instance := running()
		instance.ResourceVersion = v
		return instance
	}
	s := see(t)
	if s.SetVMI(version("4")); s.VMI().ResourceVersion != "5" {
		t.Error("a cache that lags behind counts more than what is known")
	}
	if s.SetStored(version("10")); s.VMI().ResourceVersion != "10" {
		t.Error("what was written is not known")
	}
	if s.SetVMI(version("9")); s.VMI().ResourceVersion != "10" {
		t.Error("a cache that lags behind counts more than what was written")
	}
	if !s.Shows("shop", "web") || s.Shows("shop", "other") || s.Shows("bank", "web") {
		t.Error("it is shown under another name")
	}
	other := version("11")
	other.UID = "later"
	if s.SetStored(other); s.Shows("shop", "web") || s.VMI().UID != "u" {
		t.Error("another VMI of the name is taken for it")
	}
	s.SetVMI(version("12"))
	if s.SetStored(nil); s.Shows("shop", "web") {
		t.Error("a VMI that the API server does not have counts as shown")
	}
	if s.woken != 6 {
		t.Errorf("the owner was woken %d times", s.woken)
	}
}

func TestWhatMattersOfAPod(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   vmihandler.Pod
	}{
		"nothing is known": {func(*corev1.Pod) {}, vmihandler.Pod{UID: "p"}},
		"it is ready": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, vmihandler.Pod{UID: "p", Ready: true}},
		"it is not ready": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		}, vmihandler.Pod{UID: "p"}},
		"it is being deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, vmihandler.Pod{UID: "p", Interrupted: true, Terminating: true, Disruption: ended}},
		"it is evicted": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
		}, vmihandler.Pod{UID: "p", Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonEvicted}}},
		"it has ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, vmihandler.Pod{UID: "p", Finished: true, Ended: true}},
		"its launcher has ended, and another container runs": {func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "proxy"}, {Name: "compute", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}, vmihandler.Pod{UID: "p", Ended: true}},
	} {
		p := newPod("shop", "p")
		c.change(p)
		if got := podOf(p); *got != c.want {
			t.Errorf("%s: %+v, want %+v", name, *got, c.want)
		}
	}
	if podOf(nil) != nil {
		t.Error("no pod is a pod")
	}
}

// The API server must be asked for the pod of this node: during and after a migration there are two.
func TestThePodOfThisNodeIsAskedFor(t *testing.T) {
	migrating := func(node, at string, completed bool) (*Presence, *v1.VirtualMachineInstance) {
		vmi := running()
		vmi.Status.NodeName = at
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			SourceNode: "a", SourcePod: "one", TargetNode: "b", TargetPod: "two", Completed: completed}
		return New(Env{Node: node}, vmi), vmi
	}
	for name, c := range map[string]struct {
		node, at  string
		completed bool
		want      string
	}{
		"at the source": {"a", "a", false, "one"},
		"at the target": {"b", "a", false, "two"},
		"at the target, where the guest runs already": {"b", "a", true, "two"},
		"at the target, when the VMI says so":         {"b", "b", true, "two"},
		"at the source, when the VMI says so":         {"a", "b", true, "one"},
	} {
		p, vmi := migrating(c.node, c.at, c.completed)
		if got := p.podName(vmi); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	p := New(Env{Node: "a"}, running())
	if got := p.podName(running()); got != launcherpod.Name(running()) {
		t.Errorf("of a guest that never migrated: %s", got)
	}
}

// A VMI whose guest has left must be kept until its QEMU has ended, and one that a cache will show soon; any
// other must be dropped.
func TestWhatNoCacheShows(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*v1.VirtualMachineInstance)
		kept, asks bool
	}{
		"a VMI of another node": {func(vmi *v1.VirtualMachineInstance) { vmi.Status.NodeName = "b" }, false, false},
		"one whose guest has left": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.NodeName = "b"
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourceNode: "a", TargetNode: "b", Completed: true}
		}, true, false},
		"one that is here": {func(vmi *v1.VirtualMachineInstance) { vmi.Labels = map[string]string{v1.NodeNameLabel: "a"} }, true, true},
		"one that migrates here": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Labels = map[string]string{v1.MigrationTargetNodeNameLabel: "a"}
		}, true, true},
	} {
		p := New(Env{Node: "a"}, running())
		p.absent.vmi = true
		stored := running()
		c.change(stored)
		after := p.storeUncached(stored)
		if (p.vmi != nil) != c.kept || (after > 0) != c.asks {
			t.Errorf("%s: kept %v, asked for again after %v", name, p.vmi != nil, after)
		}
		// A VMI whose guest has left must not be read again and again.
		if p.vmi != nil && !c.asks {
			if d := decide(p.vmi, p.absent, "a", true, Launcher{Connected: true}, time.Now()); d.question != "" {
				t.Errorf("%s: the API server is asked for %s", name, d.question)
			}
			if d := decide(p.vmi, p.absent, "a", true, Launcher{Exited: true}, time.Now()); d.question != dropVMI {
				t.Errorf("%s: it is kept although its QEMU has ended", name)
			}
		}
	}
}
