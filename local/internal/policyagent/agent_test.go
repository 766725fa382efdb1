package policyagent

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/local/internal/podnetwork"
	"drydock.dev/local/internal/podpolicy"
)

type model struct {
	pods     []*corev1.Pod
	policies []*networkingv1.NetworkPolicy
	// behind are pods of the API server that the watch does not know.
	behind []*corev1.Pod
	kernel string
	loads  int
	broken error
}

func (m *model) Pods() []*corev1.Pod                     { return m.pods }
func (m *model) Namespaces() []*corev1.Namespace         { return nil }
func (m *model) Policies() []*networkingv1.NetworkPolicy { return m.policies }

func (m *model) Pod(_ context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	for _, pods := range [][]*corev1.Pod{m.pods, m.behind} {
		for _, pod := range pods {
			if pod.Namespace == namespace && pod.Name == name && isOf(pod, uid) {
				return pod, nil
			}
		}
	}
	return nil, nil
}

func (m *model) load(script string) error {
	if m.broken == nil {
		m.kernel = script
		m.loads++
	}
	return m.broken
}

func pod(name, uid, ip string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": name}}}
	p.Spec.NodeName = "node1"
	if ip != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	return p
}

func denyAll(labels map[string]string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: labels}},
	}
}

func start(t *testing.T, m *model, folder string) *agent {
	t.Helper()
	a, err := newAgent(Config{Node: "node1", Bridge: "cni0", Host: netip.MustParseAddr("10.77.0.1"), Folder: folder}, m, m.load)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func announced(container, name, uid, ip string) sandbox {
	return sandbox{Sandbox: podnetwork.Sandbox{Container: container, Namespace: "shop", Name: name, UID: uid, Addresses: []netip.Addr{netip.MustParseAddr(ip)}}}
}

func (m *model) isolates() bool { return strings.Contains(m.kernel, "10.77.64.2 : jump ingress") }

// No status has the pod's address yet, and the watch may not know it.
func TestAPodIsJudgedBeforeItsContainersStart(t *testing.T) {
	for name, m := range map[string]*model{
		"the watch knows the pod": {pods: []*corev1.Pod{pod("web", "u1", "")}},
		"the watch is behind":     {behind: []*corev1.Pod{pod("web", "u1", "")}},
	} {
		m.policies = []*networkingv1.NetworkPolicy{denyAll(nil)}
		a := start(t, m, t.TempDir())
		if err := a.admit(t.Context(), announced("c1", "web", "u1", "10.77.64.2")); err != nil || !m.isolates() {
			t.Errorf("%s: %v, and the rules are\n%s", name, err, m.kernel)
		}
	}
}

func TestAPodThatCanNotBeJudgedGetsNoNetwork(t *testing.T) {
	ended := pod("ended", "u3", "")
	ended.Status.Phase = corev1.PodFailed
	m := &model{pods: []*corev1.Pod{pod("web", "u1", ""), ended}, policies: []*networkingv1.NetworkPolicy{denyAll(nil)}}
	a := start(t, m, t.TempDir())
	for want, s := range map[string]sandbox{
		"is gone":   announced("c1", "web", "another", "10.77.64.2"),
		"has ended": announced("c3", "ended", "u3", "10.77.64.3"),
	} {
		if err := a.admit(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it is admitted: %v, want %s", err, want)
		}
	}
	m.broken = errors.New("no memory")
	if err := a.admit(t.Context(), announced("c1", "web", "u1", "10.77.64.2")); err == nil || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("the kernel refuses, and it is admitted: %v", err)
	}
}

// TestTheNextAgentKnowsTheSandboxes of pods without an address in their status, and of pods that were deleted by force
// and run on.
func TestTheNextAgentKnowsTheSandboxes(t *testing.T) {
	m, folder := &model{pods: []*corev1.Pod{pod("web", "u1", "")}, policies: []*networkingv1.NetworkPolicy{denyAll(map[string]string{"app": "web"})}}, t.TempDir()
	if err := start(t, m, folder).admit(t.Context(), announced("c1", "web", "u1", "10.77.64.2")); err != nil {
		t.Fatal(err)
	}
	m.kernel, m.pods = "", nil
	next := start(t, m, folder)
	if err := next.apply(); err != nil || !m.isolates() {
		t.Fatalf("%v, and the rules are\n%s", err, m.kernel)
	}
	// The network plugin deletes the note with the sandbox.
	if err := os.Remove(podnetwork.SandboxFile(folder, "c1")); err != nil {
		t.Fatal(err)
	}
	if err := next.apply(); err != nil || m.kernel != podpolicy.Without() {
		t.Errorf("%v, and the rules are\n%s", err, m.kernel)
	}
}

// TestLabelsThatChangeCountForASandbox, and after its object is gone the last ones.
func TestLabelsThatChangeCountForASandbox(t *testing.T) {
	m := &model{pods: []*corev1.Pod{pod("web", "u1", "")}, policies: []*networkingv1.NetworkPolicy{denyAll(map[string]string{"app": "closed"})}}
	a := start(t, m, t.TempDir())
	if err := a.admit(t.Context(), announced("c1", "web", "u1", "10.77.64.2")); err != nil || m.isolates() {
		t.Fatalf("%v, and the rules are\n%s", err, m.kernel)
	}
	m.pods[0].Labels = map[string]string{"app": "closed"}
	for range 2 {
		if err := a.apply(); err != nil || !m.isolates() {
			t.Errorf("%v, and the rules are\n%s", err, m.kernel)
		}
		m.pods = nil
	}
}

// TestAnAddressIsOnePods: a sandbox's wins over a status's, and a younger pod's over an older's.
func TestAnAddressIsOnePods(t *testing.T) {
	old, young := pod("old", "u1", "10.77.64.2"), pod("young", "u2", "10.77.64.2")
	young.CreationTimestamp = metav1.NewTime(time.Unix(100, 0))
	m := &model{pods: []*corev1.Pod{old, young}, policies: []*networkingv1.NetworkPolicy{denyAll(map[string]string{"app": "young"})}}
	a := start(t, m, t.TempDir())
	if err := a.apply(); err != nil || !m.isolates() {
		t.Errorf("the older pod's: %v\n%s", err, m.kernel)
	}
	if err := a.admit(t.Context(), announced("c1", "old", "u1", "10.77.64.2")); err != nil || m.isolates() {
		t.Errorf("not the sandbox's: %v\n%s", err, m.kernel)
	}
}

// TestWhatChangesNoRuleIsNotLoaded counts the loaded scripts.
func TestWhatChangesNoRuleIsNotLoaded(t *testing.T) {
	m := &model{pods: []*corev1.Pod{pod("web", "u1", "10.77.64.2")}, policies: []*networkingv1.NetworkPolicy{denyAll(nil)}}
	a := start(t, m, t.TempDir())
	for range 3 {
		if err := a.apply(); err != nil {
			t.Fatal(err)
		}
	}
	if m.loads != 1 {
		t.Errorf("the kernel was given %d scripts, want 1", m.loads)
	}
}

// TestTheLoopFollowsChangesAndTriesAgain, and ends with its context.
func TestTheLoopFollowsChangesAndTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{pods: []*corev1.Pod{pod("web", "u1", "10.77.64.2")}}
		loads := make(chan string, 10)
		a := start(t, m, t.TempDir())
		failures := 1
		a.load = func(script string) error {
			if failures > 0 {
				failures--
				return errors.New("busy")
			}
			loads <- script
			return nil
		}
		ctx, end := context.WithCancel(t.Context())
		var ending sync.WaitGroup
		ending.Go(func() { a.run(ctx) })
		if got := <-loads; got != podpolicy.Without() {
			t.Errorf("the first script is\n%s", got)
		}
		synctest.Wait()
		m.policies = []*networkingv1.NetworkPolicy{denyAll(nil)}
		a.changed()
		if got := <-loads; !strings.Contains(got, "10.77.64.2 : jump") {
			t.Errorf("the next script is\n%s", got)
		}
		end()
		ending.Wait()
	})
}

// TestOnlyWhatRulesDependOnIsHeldAndCounts: a kubelet writes the status of its pods all the time.
func TestOnlyWhatRulesDependOnIsHeldAndCounts(t *testing.T) {
	before := pod("web", "u1", "10.77.64.2")
	before.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}, {Name: "d"}}
	before.Annotations = map[string]string{"large": "text"}
	after := before.DeepCopy()
	after.ResourceVersion = "2"
	after.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	if differ(trimPod(before), trimPod(after)) {
		t.Error("a condition counts")
	}
	if trimmed := trimPod(before); len(trimmed.Spec.Containers) != 1 || trimmed.Spec.Containers[0].Image != "" || len(trimmed.Annotations) > 0 {
		t.Errorf("%+v is held", trimmed)
	}
	after.Labels = map[string]string{"app": "other"}
	if !differ(trimPod(before), trimPod(after)) {
		t.Error("a label does not count")
	}
}
