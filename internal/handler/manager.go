package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/process"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// newManager needs no leader election: a node has one virt-handler. By default only the API server's fairness limits
// the rate: a limit of our own (pace), which the KubeVirt object can set, makes the VMs of a starting node wait for
// each other.
func newManager(server *rest.Config, o options, pace *process.Pace) (ctrl.Manager, error) {
	server = rest.CopyConfig(server)
	server.RateLimiter = pace
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	mgr, err := ctrl.NewManager(server, ctrl.Options{
		Scheme:           scheme,
		Cache:            cacheOptions(o),
		Metrics:          ctrlserver.Options{BindAddress: metricsserver.None},
		PprofBindAddress: o.pprofAddr,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

// ready succeeds when guests can come to the node. It waits, because the kubelet reports each failed probe in an
// event.
func ready(synced func(context.Context) bool, offers func(context.Context) error) healthz.Checker {
	return func(req *http.Request) error {
		if !synced(req.Context()) {
			return errors.New("the VMIs and pods of this node are not known yet")
		}
		return offers(req.Context())
	}
}

// virt-handler's memory must not grow with the cluster.
func cacheOptions(o options) cache.Options {
	// Launcher pods, and the attachment pods of hotplugged volumes.
	ours, err := labels.NewRequirement(v1.AppLabel, selection.In, []string{layout.LauncherApp, layout.AttachmentApp})
	utilruntime.Must(err)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1.VirtualMachineInstance{}: {Label: labels.SelectorFromSet(labels.Set{v1.NodeNameLabel: o.node})},
			&corev1.Pod{}: {
				Label:     labels.NewSelector().Add(*ours),
				Field:     fields.OneTermEqualSelector("spec.nodeName", o.node),
				Transform: func(obj any) (any, error) { return stripPod(obj, o.traces != nil) },
			},
		},
	}
}

// traced means that the time of the pod's binding is kept.
func stripPod(obj any, traced bool) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Pod{TypeMeta: pod.TypeMeta}
	kept.Name, kept.Namespace, kept.UID = pod.Name, pod.Namespace, pod.UID
	kept.ResourceVersion, kept.CreationTimestamp = pod.ResourceVersion, pod.CreationTimestamp
	kept.DeletionTimestamp = pod.DeletionTimestamp
	kept.Labels = map[string]string{v1.CreatedByLabel: pod.Labels[v1.CreatedByLabel], v1.AppLabel: pod.Labels[v1.AppLabel]}
	kept.Annotations = nichotplug.KeptAnnotations(pod)
	kept.Spec.NodeName = pod.Spec.NodeName
	if pod.Labels[v1.AppLabel] == layout.AttachmentApp {
		kept.Spec.Volumes = pod.Spec.Volumes
		kept.Status.ContainerStatuses = pod.Status.ContainerStatuses
	} else {
		// The resources of virt-launcher's container, and whether it has ended.
		for i := range pod.Status.ContainerStatuses {
			container := &pod.Status.ContainerStatuses[i]
			if container.Name != layout.ComputeContainer {
				continue
			}
			status := corev1.ContainerStatus{Name: container.Name, Resources: container.Resources}
			if container.State.Terminated != nil {
				status.State.Terminated = &corev1.ContainerStateTerminated{}
			}
			kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, status)
		}
	}
	kept.Status.Phase, kept.Status.Reason = pod.Status.Phase, pod.Status.Reason
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.DisruptionTarget, corev1.PodScheduled} {
		if c := podstatus.Condition(pod, kind); c != nil && (traced || kind != corev1.PodScheduled) {
			kept.Status.Conditions = append(kept.Status.Conditions, *c)
		}
	}
	return kept, nil
}
