// Package hotplugwatch watches a VMI's hotplugged volumes and their attachment pods during a test,
// and checks the observations against their invariants at its end. Package invariant owns the
// invariants. Only tests may import it.
package hotplugwatch

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/invariant"
)

// AttachmentPods watches the VMI until the test ends.
func AttachmentPods(t *testing.T, c client.WithWatch, namespace, vmi string) *invariant.History {
	t.Helper()
	h := &invariant.History{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var watches sync.WaitGroup
	begin := func(list client.ObjectList, options ...client.ListOption) {
		options = append(options, client.InNamespace(namespace))
		if err := c.List(ctx, list, options...); err != nil {
			t.Fatalf("listing what is to be watched: %v", err)
		}
		from := &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
		events, err := c.Watch(ctx, list, append(options, &client.ListOptions{Raw: from})...)
		if err != nil {
			t.Fatalf("watching: %v", err)
		}
		watches.Go(func() {
			for e := range events.ResultChan() {
				record(h, vmi, e)
			}
		})
	}
	begin(&v1.VirtualMachineInstanceList{})
	begin(&corev1.PodList{}, client.MatchingLabels{v1.AppLabel: layout.AttachmentApp})
	t.Cleanup(func() {
		cancel()
		watches.Wait()
		if err := h.Check(); err != nil {
			t.Errorf("what the watches saw breaks invariants:\n%v", err)
		}
	})
	return h
}

func record(h *invariant.History, vmi string, e watch.Event) {
	switch object := e.Object.(type) {
	case *v1.VirtualMachineInstance:
		if object.Name == vmi {
			h.VMI(object)
		}
	case *corev1.Pod:
		if object.Annotations[v1.DomainAnnotation] == vmi {
			h.Pod(object, e.Type == watch.Deleted)
		}
	}
}
