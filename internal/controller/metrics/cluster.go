package metrics

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

var (
	nodesAll         = metrictable.Of("drydock_nodes")
	nodesSchedulable = metrictable.Of("drydock_nodes_schedulable")
	nodesWithKVM     = metrictable.Of("drydock_nodes_with_kvm")
	silentGuests     = metrictable.Of("drydock_node_silent_guests")
	stoppedGuest     = metrictable.Of("drydock_vmi_stopped")
	podsOfPhase      = metrictable.Of("drydock_launcher_pods")
	podsDesired      = metrictable.Of("drydock_component_pods_desired")
	podsReady        = metrictable.Of("drydock_component_pods_ready")
)

func (c *Collector) collectNodes(ctx context.Context, out chan<- prometheus.Metric) {
	var all corev1.NodeList
	if !list(ctx, c, out, &all, nodesAll) {
		return
	}
	schedulable, kvm := 0, 0
	for i := range all.Items {
		node := &all.Items[i]
		if node.Labels[v1.NodeSchedulable] == "true" && !node.Spec.Unschedulable {
			schedulable++
		}
		if devices := node.Status.Allocatable[layout.ResourceKVM]; devices.Sign() > 0 {
			kvm++
		}
	}
	out <- nodesAll.At(float64(len(all.Items)))
	out <- nodesSchedulable.At(float64(schedulable))
	out <- nodesWithKVM.At(float64(kvm))
}

// podPhases are all that a pod can have.
var podPhases = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}

func collectPodPhases(out chan<- prometheus.Metric, pods []corev1.Pod) {
	counts := map[corev1.PodPhase]int{}
	for i := range pods {
		counts[pods[i].Status.Phase]++
	}
	for _, phase := range podPhases {
		out <- podsOfPhase.At(float64(counts[phase]), strings.ToLower(string(phase)))
	}
}

// collectComponents leaves out a component whose workload does not exist.
func (c *Collector) collectComponents(ctx context.Context, out chan<- prometheus.Metric) {
	send := func(component string, desired, ready int32) {
		out <- podsDesired.At(float64(desired), component)
		out <- podsReady.At(float64(ready), component)
	}
	for _, name := range []string{components.API, components.Controller} {
		var d appsv1.Deployment
		if !c.get(ctx, out, name, &d) {
			continue
		}
		desired := int32(1)
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		send(name, desired, d.Status.ReadyReplicas)
	}
	var d appsv1.DaemonSet
	if c.get(ctx, out, components.Handler, &d) {
		send(components.Handler, d.Status.DesiredNumberScheduled, d.Status.NumberReady)
	}
}

func (c *Collector) get(ctx context.Context, out chan<- prometheus.Metric, name string, into client.Object) bool {
	err := c.Cache.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, into, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		out <- prometheus.NewInvalidMetric(podsDesired.Desc, err)
	}
	return err == nil
}
