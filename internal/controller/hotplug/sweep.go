package hotplug

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// guestPause is how often to look at the attachment pods of a guest that outlives its VMI.
const guestPause = 5 * time.Second

// sweep deletes the attachment pods of deleted VMIs of a name, which would be deleted with their launcher pod after a
// long grace period. Only the API server can confirm that nothing uses them.
func (r *Reconciler) sweep(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	var pods corev1.PodList
	if err := r.listPods(ctx, key, &pods); err != nil {
		return ctrl.Result{}, err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		grace := pod.DeletionGracePeriodSeconds
		return grace != nil && *grace <= hotplugpod.GracePeriodSeconds
	})
	if len(pods.Items) == 0 {
		return ctrl.Result{}, nil
	}
	left, wait, err := r.leftovers(ctx, key, pods.Items)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, p := range left {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = key.Namespace, p.Name, p.UID
		if _, err := r.deletePod(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
	}
	if wait {
		return ctrl.Result{RequeueAfter: guestPause}, nil
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) leftovers(ctx context.Context, key types.NamespacedName, pods []corev1.Pod) ([]hotplug.Pod, bool, error) {
	guests := map[types.UID]bool{}
	var seen []hotplug.Leftover
	for i := range pods {
		of := types.UID(pods[i].Labels[v1.CreatedByLabel])
		seen = append(seen, hotplug.Leftover{Pod: hotplugpod.Observe(&pods[i]), VMI: of})
		if _, asked := guests[of]; asked || of == "" {
			continue
		}
		running, err := r.guestRuns(ctx, key.Namespace, of)
		if err != nil {
			return nil, false, err
		}
		guests[of] = running
	}
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", key)
	if err != nil {
		return nil, false, err
	}
	var instance types.UID
	if vmi != nil {
		instance = vmi.UID
	}
	left, wait := hotplug.Leftovers(seen, instance, guests)
	return left, wait, nil
}

func (r *Reconciler) guestRuns(ctx context.Context, namespace string, vmi types.UID) (bool, error) {
	labels := client.MatchingLabels{v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: string(vmi)}
	running, err := pagedlist.Collect(ctx, r.Reader, &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) {
		return pod.Name, !podstatus.Terminal(pod)
	}, client.InNamespace(namespace), labels)
	if err != nil {
		return false, fmt.Errorf("asking for the launcher pods of the VMI with the UID %s: %w", vmi, err)
	}
	return len(running) > 0, nil
}
