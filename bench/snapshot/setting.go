package snapshot

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
)

const (
	vmName      = "vm"
	restored    = "back"
	restoreName = "to-back"
	toolsImage  = "drydock.dev/test-tools:devel"
)

var disks = []string{"one", "two"}

type setting struct {
	cluster   *cluster.Cluster
	namespace string
}

func (s *setting) pod(name string, claims ...string) *corev1.Pod {
	pod := cluster.BarePod(s.namespace, name)
	container := &pod.Spec.Containers[0]
	container.Image, container.Command = toolsImage, []string{"sleep", "infinity"}
	for i, claim := range claims {
		cluster.AddDevice(pod, disks[i], claim)
	}
	return pod
}

func (s *setting) run(ctx context.Context, pod *corev1.Pod) error {
	_, _, err := s.cluster.CreateAndAwait(ctx, pod, &corev1.PodList{}, cluster.PodRunning)
	if err != nil {
		return fmt.Errorf("starting the pod %s: %w", pod.Name, err)
	}
	return nil
}

func (s *setting) exec(ctx context.Context, pod, command string) (string, error) {
	return s.cluster.Run(ctx, "drydock", "kubectl", "-n", s.namespace, "exec", pod, "--", "sh", "-c", command)
}

// timeBare creates a VolumeSnapshot of each disk. It returns the times until all are taken and until all are ready
// to use, and deletes them.
func (s *setting) timeBare(ctx context.Context, number int) (taken, ready time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	var cuts []*unstructured.Unstructured
	waits, untaken := map[string]bool{}, map[string]bool{}
	var last time.Time
	for _, disk := range disks {
		cut := volumeSnapshot()
		cut.SetNamespace(s.namespace)
		cut.SetName("bare-" + strconv.Itoa(number) + "-" + disk)
		cut.Object["spec"] = map[string]any{
			"volumeSnapshotClassName": "local", "source": map[string]any{"persistentVolumeClaimName": disk},
		}
		cuts, waits[cut.GetName()], untaken[cut.GetName()] = append(cuts, cut), true, true
	}
	done, err := s.cluster.Watch(ctx, volumeSnapshots(), s.namespace, nil, func(_ watch.EventType, o client.Object) bool {
		cut, ok := o.(*unstructured.Unstructured)
		if !ok {
			return false
		}
		if at, _, _ := unstructured.NestedString(cut.Object, "status", "creationTime"); at != "" && untaken[cut.GetName()] {
			delete(untaken, cut.GetName())
			last = time.Now()
		}
		if ready, _, _ := unstructured.NestedBool(cut.Object, "status", "readyToUse"); ready {
			delete(waits, cut.GetName())
		}
		return len(waits) == 0
	})
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for _, cut := range cuts {
		if err := s.cluster.Client.Create(ctx, cut); err != nil {
			return 0, 0, fmt.Errorf("creating %s: %w", cut.GetName(), err)
		}
	}
	if err := <-done; err != nil {
		return 0, 0, err
	}
	taken, ready = last.Sub(began), time.Since(began)
	for _, cut := range cuts {
		if err := s.cluster.DeleteAndAwait(ctx, cut); err != nil {
			return 0, 0, err
		}
	}
	return taken, ready, nil
}

func volumeSnapshot() *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion("snapshot.storage.k8s.io/v1")
	object.SetKind("VolumeSnapshot")
	return object
}

func volumeSnapshots() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(volumeSnapshot().GroupVersionKind())
	return list
}
