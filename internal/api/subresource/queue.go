package subresource

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/podstatus"
)

// Queue tells who has the disks of a VM, and who waits for them, out of the VM's maintenance pods. vmi is the VM's, nil
// when there is none.
func Queue(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, pods []corev1.Pod) maintenance.State {
	state := maintenance.State{}
	holder, locked := vm.Labels[layout.MaintenanceLabel]
	if locked {
		state.Holder = &maintenance.Pod{Name: holder}
	}
	for _, pod := range inOrder(pods) {
		switch {
		case locked && pod.Name == holder:
			told := tell(&pod)
			state.Holder = &told
		case pod.DeletionTimestamp == nil && !podstatus.Terminal(&pod):
			state.Queue = append(state.Queue, tell(&pod))
		}
	}
	state.Message = inTheWay(vm, vmi, state.Holder)
	return state
}

// inOrder are pods in the order in which they get the lock.
func inOrder(pods []corev1.Pod) []corev1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
}

func tell(pod *corev1.Pod) maintenance.Pod {
	return maintenance.Pod{
		Name: pod.Name, UID: string(pod.UID), Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName,
		Since: pod.CreationTimestamp.UTC().Format(time.RFC3339), Deleting: pod.DeletionTimestamp != nil,
	}
}

// inTheWay says why nobody who waits gets the disks now; empty if nothing is known to be in the way.
func inTheWay(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, holder *maintenance.Pod) string {
	strategy, err := vm.RunStrategy()
	switch {
	case holder != nil:
		return fmt.Sprintf("the disks of VM %s are locked for the pod %s", vm.Name, holder.Name)
	case err != nil:
		return err.Error()
	case strategy != v1.RunStrategyHalted:
		return fmt.Sprintf("the run strategy of VM %s is %s: stop it, so that it is %s", vm.Name, strategy, v1.RunStrategyHalted)
	case exists(vmi):
		return fmt.Sprintf("the guest of VM %s has not ended", vm.Name)
	}
	return ""
}

// ToRelease is the pod to be deleted so that a VM is unlocked, or one that waits is gone: the one that is named, or the
// holder.
func ToRelease(vm *v1.VirtualMachine, pods []corev1.Pod, name string) (*corev1.Pod, error) {
	holder, locked := vm.Labels[layout.MaintenanceLabel]
	if name == "" && !locked {
		return nil, conflict(vm, "the VM is not locked for maintenance")
	}
	wanted := cmp.Or(name, holder)
	for i := range pods {
		if pods[i].Name == wanted {
			return &pods[i], nil
		}
	}
	if locked && wanted == holder {
		return nil, conflict(vm, "the pod %s, which the disks are locked for, was deleted by force: the lock goes when it can no longer write; "+
			"an administrator who knows that it can't may release by force", holder)
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), wanted)
}

// ForcedRelease is the VM with the request that its lock be taken away from its holder. A pod that is named must be that.
func ForcedRelease(vm *v1.VirtualMachine, pod, by string) (*v1.VirtualMachine, error) {
	l, locked := lock.Of(vm)
	switch {
	case !locked:
		return nil, conflict(vm, "the VM is not locked for maintenance")
	case pod != "" && pod != l.Pod:
		return nil, conflict(vm, "the disks are locked for the pod %s, not for %s: one that waits is released without force", l.Pod, pod)
	}
	changed := vm.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[layout.MaintenanceReleaseAnnotation] = string(l.UID)
	changed.Annotations[layout.MaintenanceReleaseByAnnotation] = by
	return changed, nil
}
