package pagedlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// server is an API server with pods that answers page by page.
type server struct {
	client.Reader
	pods []corev1.Pod
	// answer may refuse a request for the page of a token.
	answer func(token string) error

	mu    sync.Mutex
	asked []metav1.ListOptions
}

func (s *server) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	asked := *o.AsListOptions()
	s.mu.Lock()
	s.asked = append(s.asked, asked)
	s.mu.Unlock()
	if s.answer != nil {
		if err := s.answer(asked.Continue); err != nil {
			return err
		}
	}
	from, _ := strconv.Atoi(asked.Continue)
	to := min(from+int(asked.Limit), len(s.pods))
	list := into.(*corev1.PodList)
	if len(list.Items) > 0 || list.Continue != "" {
		return errors.New("the list has another page's content")
	}
	list.Items = s.pods[from:to]
	if to < len(s.pods) {
		list.Continue = strconv.Itoa(to)
	}
	return nil
}

func pods(count int) []corev1.Pod {
	out := make([]corev1.Pod, count)
	for i := range out {
		out[i].Name = fmt.Sprintf("pod-%02d", i)
	}
	return out
}

func name(pod *corev1.Pod) (string, bool) { return pod.Name, !strings.HasSuffix(pod.Name, "7") }

func names(count int) (out []string) {
	for _, pod := range pods(count) {
		if what, is := name(&pod); is {
			out = append(out, what)
		}
	}
	return out
}

func TestAListIsAskedForInPages(t *testing.T) {
	const page, count = largestPage, 2*largestPage + 3
	s := &server{pods: pods(count)}
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}}
	got, err := Collect(t.Context(), s, &corev1.PodList{}, name, client.InNamespace("ns"), client.MatchingLabels{"a": "b"}, since)
	if diff := cmp.Diff(names(count), got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	want := []metav1.ListOptions{
		{LabelSelector: "a=b", Limit: page, ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{LabelSelector: "a=b", Limit: page, Continue: "100"}, {LabelSelector: "a=b", Limit: page, Continue: "200"},
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("the API server was asked for something else: %s", diff)
	}
}

func TestAListWhoseStateIsGoneBeginsAgain(t *testing.T) {
	expired, broken := apierrors.NewResourceExpired("too old"), errors.New("no answer")
	for title, test := range map[string]struct {
		refuse   func(request int, token string) error
		requests int
		err      error
	}{
		"once": {func(request int, _ string) error {
			if request == 2 {
				return expired
			}
			return nil
		}, 4, nil},
		"every time": {func(_ int, token string) error {
			if token != "" {
				return expired
			}
			return nil
		}, 2 * attempts, expired},
		"another error": {func(int, string) error { return broken }, 1, broken},
	} {
		s := &server{pods: pods(largestPage + 1)}
		s.answer = func(token string) error { return test.refuse(len(s.asked), token) }
		got, err := Collect(t.Context(), s, &corev1.PodList{}, name)
		var want []string
		if test.err == nil {
			want = names(largestPage + 1)
		}
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, test.err) || len(s.asked) != test.requests {
			t.Errorf("%s: %v after %d requests: %s", title, err, len(s.asked), diff)
		}
	}
}

// gated is an API server that answers when it is told to.
type gated struct {
	client.Reader
	mu      sync.Mutex
	waiting map[string]int
	answers chan struct{}
}

func (g *gated) List(ctx context.Context, _ client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	g.count(o.Namespace, 1)
	defer g.count(o.Namespace, -1)
	select {
	case <-g.answers:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) count(namespace string, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[namespace] += change; g.waiting[namespace] == 0 {
		delete(g.waiting, namespace)
	}
}

func TestOnlySoManyListsRunAtOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{waiting: map[string]int{}, answers: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 20)
		list := func(ctx context.Context, namespace string) {
			go func() {
				_, err := Collect(ctx, g, &corev1.PodList{}, name, client.InNamespace(namespace))
				ended <- err
			}()
			synctest.Wait()
		}
		expect := func(want map[string]int) {
			t.Helper()
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			if diff := cmp.Diff(want, g.waiting); diff != "" {
				t.Errorf("lists that run: %s", diff)
			}
		}
		each := int(ofPods.oneEach)
		for range each + 1 {
			list(t.Context(), "greedy")
		}
		list(ctx, "greedy")
		expect(map[string]int{"greedy": each})
		rest := int(ofPods.atOnce) - each
		for range rest {
			list(t.Context(), "other")
		}
		list(ctx, "third")
		running := map[string]int{"greedy": each, "other": rest}
		expect(running)
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a list that waits ends with %v", err)
			}
		}
		expect(running)
		for range each + 1 + rest {
			g.answers <- struct{}{}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		taken := turnsOf(&corev1.PodList{})
		if len(taken.queues) > 0 || !taken.all.TryAcquire(ofPods.atOnce) {
			t.Fatalf("no list runs, and turns are taken: %v", taken.queues)
		}
		taken.all.Release(ofPods.atOnce)
	})
}

// hostile returns a pod with as much of everything as fits.
func hostile() *corev1.Pod {
	large, yes := strings.Repeat("x", 100<<10), true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid",
		Labels: map[string]string{}, Annotations: map[string]string{v1.DomainAnnotation: large, "a": large},
		OwnerReferences: []metav1.OwnerReference{{Kind: large, Name: large, UID: "owner", Controller: &yes}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: large}},
	}}
	var c corev1.Container
	for i := range 2000 {
		pod.Labels[layout.ClaimLabel(fmt.Sprint(i))] = ""
		pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("a.example/%d", i))
		volume := corev1.Volume{Name: fmt.Sprint(i)}
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume, corev1.Volume{Name: fmt.Sprint("e", i), VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume.Name})
	}
	c.Env = []corev1.EnvVar{{Name: "a", Value: large}}
	pod.Spec.Containers, pod.Spec.InitContainers = []corev1.Container{c}, []corev1.Container{c}
	return pod
}

func TestLittleIsKeptOfAPod(t *testing.T) {
	kept, err := Pods(t.Context(), &server{pods: []corev1.Pod{*hostile(), {}}}, []string{"data", "pod-e1"}, func(pod *corev1.Pod) bool { return pod.Name != "" })
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d pods are kept: %v", len(kept), err)
	}
	text, err := json.Marshal(kept)
	if err != nil || len(text) > 4<<10 {
		t.Errorf("%d bytes of a pod are kept: %v", len(text), err)
	}
}

// The rules must answer for what is kept as they do for the pod.
func TestTheRulesKnowAPodByWhatIsKept(t *testing.T) {
	on := func(source corev1.VolumeSource, mounted bool, edits ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid", Labels: map[string]string{}, Annotations: map[string]string{}}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "other"}, {Name: "v", VolumeSource: source}}
		if mounted {
			pod.Spec.InitContainers = []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{{Name: "v"}}}}
		}
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	claim := func(name string, readOnly bool) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}
	}
	launcher := func(pod *corev1.Pod) {
		pod.Labels[v1.AppLabel], pod.Labels[v1.CreatedByLabel], pod.Annotations[v1.DomainAnnotation] = layout.LauncherApp, "vmi", "vm"
		pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
	}
	yes := true
	type facts struct {
		Uses, Writes, Gated, MayWrite, Ended, Launcher bool
		For, Guest, VMI                                string
		Claims                                         []string
	}
	of := func(pod *corev1.Pod) facts {
		return facts{datavolume.Uses(pod, "pod-v"), datavolume.Writes(pod, "pod-v"), lock.Gated(pod), lock.MayWrite(pod), lock.Ended(pod),
			launcherpod.IsLauncher(pod), lock.For(pod), hotplug.GuestOf(pod), launcherpod.VMIOf(pod), lock.Claims(pod)}
	}
	for title, pod := range map[string]*corev1.Pod{
		"one that mounts the claim": on(claim("pod-v", false), true),
		"one that reads it":         on(claim("pod-v", true), true),
		"one that only has it":      on(claim("pod-v", false), false),
		"one that reads it and has it": on(claim("pod-v", true), true, func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "w", VolumeSource: claim("pod-v", false)})
		}),
		"the claim of a volume": on(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, true, func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodRunning
		}),
		"one that has ended":        on(claim("pod-v", false), true, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }),
		"one that never got a node": on(claim("pod-v", false), true, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }),
		"a launcher pod":            on(claim("pod-v", false), true, launcher),
		"one of an owner": on(claim("pod-v", false), true, func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachineInstance", Name: "web", Controller: &yes}}
		}),
		"a maintenance pod": on(claim("pod-v", false), true, lock.Keep, func(pod *corev1.Pod) { pod.Labels[layout.MaintenanceForLabel] = "vm" }),
		"one that waits": on(claim("pod-v", false), true, lock.Keep, func(pod *corev1.Pod) {
			pod.Labels[layout.MaintenanceForLabel] = "vm"
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}
		}),
	} {
		kept := part(pod, []string{"pod-v"})
		if diff := cmp.Diff(of(pod), of(&kept)); diff != "" {
			t.Errorf("%s: %s", title, diff)
		}
	}
}
