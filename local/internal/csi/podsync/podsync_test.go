package podsync

import (
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

const namespace = "ns"

func newClaim(name, size string, waits bool) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	if waits {
		claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
		}
	}
	return claim
}

func newPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-of-pod"},
		Spec: corev1.PodSpec{NodeName: "node1", Volumes: []corev1.Volume{{
			Name:         "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func TestAClaimWaitsForItsNodeUntilTheNodeHasFollowed(t *testing.T) {
	byCondition := newClaim("data", "2Gi", false)
	byCondition.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
		Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue,
	}}
	inController := newClaim("data", "2Gi", false)
	inController.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInProgress,
	}
	for name, test := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		"the volume has grown, by its status":    {newClaim("data", "2Gi", true), true},
		"the volume has grown, by its condition": {byCondition, true},
		"the volume is being grown":              {inController, false},
		"nothing happens":                        {newClaim("data", "2Gi", false), false},
	} {
		if got := waitsForNode(test.claim); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestOnlyThePodsThatUseTheClaimOnANodeAreMarked(t *testing.T) {
	claim := newClaim("data", "2Gi", true)
	inline := newClaim("owner-scratch", "2Gi", true)
	inline.OwnerReferences = []metav1.OwnerReference{{UID: "uid-of-pod", Controller: ptr.To(true)}}
	scratch := func(pod *corev1.Pod) {
		pod.Spec.Volumes[0] = corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		"a running pod with the claim": {newPod("a"), claim, true},
		"one that has the mark of an earlier size": {newPod("a", func(p *corev1.Pod) {
			p.Annotations = map[string]string{Annotation: "data=1Gi"}
		}), claim, true},
		"one that has this mark": {newPod("a", func(p *corev1.Pod) {
			p.Annotations = map[string]string{Annotation: "data=2Gi"}
		}), claim, false},
		"one with another claim":        {newPod("a"), newClaim("other", "2Gi", true), false},
		"one that has no node":          {newPod("a", func(p *corev1.Pod) { p.Spec.NodeName = "" }), claim, false},
		"one that has come to its end":  {newPod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), claim, false},
		"one that has failed":           {newPod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), claim, false},
		"the owner of an inline claim":  {newPod("owner", scratch), inline, true},
		"a namesake of an inline claim": {newPod("owner", scratch), newClaim("owner-scratch", "2Gi", true), false},
	} {
		if got := toMark(test.pod, test.claim); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAClaimThatGrowsMarksItsPodOnceForEachSize(t *testing.T) {
	ctx := t.Context()
	core := fake.NewClientset(newClaim("data", "1Gi", false), newPod("user"), newPod("other", func(p *corev1.Pod) { p.Spec.Volumes = nil }))
	patched := make(chan string, 10)
	core.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		patched <- patch.GetName() + " " + string(patch.GetPatch())
		return false, nil, nil
	})
	// An in-memory cluster has no versions: changes between list and watch are lost.
	watched := make(chan struct{})
	begun := sync.OnceFunc(func() { close(watched) })
	core.PrependWatchReactor("persistentvolumeclaims", func(action clienttesting.Action) (bool, watch.Interface, error) {
		events, err := core.Tracker().Watch(action.GetResource(), action.GetNamespace())
		begun()
		return true, events, err
	})
	factory := informers.NewSharedInformerFactory(core, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	c, err := New(core, claims, workqueue.NewTypedItemExponentialFailureRateLimiter[string](1, 1))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), claims.Informer().HasSynced) {
		t.Fatal("the claims were not read")
	}
	<-watched
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	t.Cleanup(func() { <-ended })

	var got []string
	for _, size := range []string{"2Gi", "3Gi"} {
		// The second update changes nothing relevant.
		for range 2 {
			if _, err := core.CoreV1().PersistentVolumeClaims(namespace).Update(ctx, newClaim("data", size, true), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, <-patched)
	}
	want := []string{
		`user {"metadata":{"annotations":{"local.csi.drydock.dev/grown-claim":"data=2Gi"},"uid":"uid-of-pod"}}`,
		`user {"metadata":{"annotations":{"local.csi.drydock.dev/grown-claim":"data=3Gi"},"uid":"uid-of-pod"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the patches %q, want %q", got, want)
	}
	if len(patched) != 0 {
		t.Errorf("there is one patch too many: %s", <-patched)
	}
}
