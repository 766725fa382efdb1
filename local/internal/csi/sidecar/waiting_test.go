package sidecar

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	snapv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	snapscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	snapinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	common "github.com/kubernetes-csi/external-snapshotter/v8/pkg/common-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/metrics"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/utils"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// TestADeletedSnapshotGoesWithTheClaimThatIsMadeOfIt checks snapshot-controller itself: the snapshot must go at once,
// not with the resync a quarter of an hour later.
func TestADeletedSnapshotGoesWithTheClaimThatIsMadeOfIt(t *testing.T) {
	// A fake API server does not support lists by watch.
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, false)
	if err := snapscheme.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	for name, ends := range map[string]func(*testing.T, *fake.Clientset, *corev1.PersistentVolumeClaim) error{
		"the claim is deleted": func(t *testing.T, core *fake.Clientset, claim *corev1.PersistentVolumeClaim) error {
			return core.CoreV1().PersistentVolumeClaims("ns").Delete(t.Context(), claim.Name, metav1.DeleteOptions{})
		},
		"the claim is bound": func(t *testing.T, core *fake.Clientset, claim *corev1.PersistentVolumeClaim) error {
			claim = claim.DeepCopy()
			claim.Status.Phase = corev1.ClaimBound
			_, err := core.CoreV1().PersistentVolumeClaims("ns").UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := &snapv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "u", ResourceVersion: "1", DeletionTimestamp: new(metav1.Now()),
					Finalizers: []string{utils.VolumeSnapshotAsSourceFinalizer}},
				Spec:   snapv1.VolumeSnapshotSpec{Source: snapv1.VolumeSnapshotSource{VolumeSnapshotContentName: new("c")}},
				Status: &snapv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: new("c")},
			}
			content := &snapv1.VolumeSnapshotContent{
				ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"},
				Spec: snapv1.VolumeSnapshotContentSpec{DeletionPolicy: snapv1.VolumeSnapshotContentRetain, Driver: "d",
					Source:            snapv1.VolumeSnapshotContentSource{SnapshotHandle: new("h")},
					VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: "s", UID: "u"}},
			}
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "made"},
				Spec: corev1.PersistentVolumeClaimSpec{
					DataSource: &corev1.TypedLocalObjectReference{APIGroup: new(snapv1.GroupName), Kind: "VolumeSnapshot", Name: "s"}},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			}
			core, snapshots := fake.NewClientset(claim), snapfake.NewSimpleClientset(snapshot, content)
			watched := watchedClaims(core)
			runBinding(t, core, snapshots)
			select {
			case <-watched:
			case <-time.After(4 * time.Minute):
				t.Fatal("nobody watches the claims")
			}
			eventually(t, "snapshot-controller to leave the snapshot alone", func() bool {
				events, err := core.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
				return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "SnapshotDeletePending" })
			})
			if err := ends(t, core, claim); err != nil {
				t.Fatal(err)
			}
			eventually(t, "snapshot-controller to let the snapshot go", func() bool {
				now, err := snapshots.SnapshotV1().VolumeSnapshots("ns").Get(t.Context(), "s", metav1.GetOptions{})
				return err == nil && len(now.Finalizers) == 0
			})
		})
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// watchedClaims returns a channel that closes when claims are watched. An in-memory cluster has no versions: changes
// between list and watch are lost.
func watchedClaims(core *fake.Clientset) <-chan struct{} {
	watched := make(chan struct{})
	begun := sync.OnceFunc(func() { close(watched) })
	core.PrependWatchReactor("persistentvolumeclaims", func(action clienttesting.Action) (bool, watch.Interface, error) {
		events, err := core.Tracker().Watch(action.GetResource(), action.GetNamespace())
		begun()
		return true, events, err
	})
	return watched
}

// runBinding runs snapshot-controller as the process does.
func runBinding(t *testing.T, core *fake.Clientset, snapshots *snapfake.Clientset) {
	t.Helper()
	inCore, inSnapshots := informers.NewSharedInformerFactory(core, resync), snapinformers.NewSharedInformerFactory(snapshots, resync)
	claims, served := inCore.Core().V1().PersistentVolumeClaims(), inSnapshots.Snapshot().V1()
	bound, err := waiting(served.VolumeSnapshots(), claims)
	if err != nil {
		t.Fatal(err)
	}
	controller := common.NewCSISnapshotCommonController(snapshots, core,
		bound, served.VolumeSnapshotContents(), served.VolumeSnapshotClasses(), nil, nil, nil,
		claims, inCore.Core().V1().PersistentVolumes(), nil, metrics.NewMetricsManager(), resync,
		retries(), retries(), retries(), retries(), false, true, false)
	inCore.Start(t.Context().Done())
	inSnapshots.Start(t.Context().Done())
	go controller.Run(1, t.Context().Done())
}
