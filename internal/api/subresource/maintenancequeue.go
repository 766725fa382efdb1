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
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/verb"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Queue returns which maintenance pod has the machine's disks and which wait. vmi is the VM's, nil for none or if the
// machine is a VMI.
func Queue(m lock.Machine, vmi *v1.VirtualMachineInstance, pods []corev1.Pod) maintenance.State {
	state := maintenance.State{}
	holder, locked := m.GetLabels()[layout.MaintenanceLabel]
	if locked {
		state.Holder = &maintenance.Pod{Name: holder}
	}
	inOrder := slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { // in which they get the lock
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, pod := range inOrder {
		switch {
		case locked && pod.Name == holder:
			told := tell(&pod)
			state.Holder = &told
		case pod.DeletionTimestamp == nil && !podstatus.Terminal(&pod):
			state.Queue = append(state.Queue, tell(&pod))
		}
	}
	switch m := m.(type) {
	case *v1.VirtualMachine:
		state.Message = inTheWay(m, vmi, state.Holder)
	case *v1.VirtualMachineInstance:
		state.Message = inTheWayOfInstance(m, state.Holder)
	}
	return state
}

func tell(pod *corev1.Pod) maintenance.Pod {
	return maintenance.Pod{
		Name: pod.Name, UID: string(pod.UID), Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName,
		Since: pod.CreationTimestamp.UTC().Format(time.RFC3339), Deleting: pod.DeletionTimestamp != nil,
	}
}

func inTheWay(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, holder *maintenance.Pod) string {
	strategy, err := vm.RunStrategy()
	switch {
	case holder != nil:
		return fmt.Sprintf("the disks of VM %s are locked for the pod %s", vm.Name, holder.Name)
	case err != nil:
		return err.Error()
	case strategy != v1.RunStrategyHalted:
		return fmt.Sprintf("the run strategy of VM %s is %s: stop it, so that it is %s", vm.Name, strategy, v1.RunStrategyHalted)
	case verb.Exists(vmi):
		return fmt.Sprintf("the guest of VM %s has not ended", vm.Name)
	}
	return ""
}

func inTheWayOfInstance(vmi *v1.VirtualMachineInstance, holder *maintenance.Pod) string {
	switch {
	case holder != nil:
		return fmt.Sprintf("the disks of VMI %s are locked for the pod %s", vmi.Name, holder.Name)
	case !lock.Wanted(vmi):
		return fmt.Sprintf("VMI %s is to run: set its spec.startStrategy to %s", vmi.Name, lock.StartStrategy)
	case vmistatus.StageOf(vmi.Status.Phase) != vmistatus.Waiting:
		return fmt.Sprintf("the guest of VMI %s has not ended, or its pod is being taken away (phase %s)", vmi.Name, vmi.Status.Phase)
	}
	return ""
}

func machineConflict(m lock.Machine, format string, args ...any) error {
	if vmi, is := m.(*v1.VirtualMachineInstance); is {
		return verb.GuestConflict(vmi, fmt.Sprintf(format, args...))
	}
	return verb.Conflict(m.(*v1.VirtualMachine), format, args...)
}

// ToRelease returns the pod to delete: the named one, or else the holder of the lock.
func ToRelease(m lock.Machine, pods []corev1.Pod, name string) (*corev1.Pod, error) {
	holder, locked := m.GetLabels()[layout.MaintenanceLabel]
	if name == "" && !locked {
		return nil, machineConflict(m, "the %s is not locked for maintenance", lock.Noun(m))
	}
	wanted := cmp.Or(name, holder)
	for i := range pods {
		if pods[i].Name == wanted {
			return &pods[i], nil
		}
	}
	if locked && wanted == holder {
		return nil, machineConflict(m, "the pod %s, which the disks are locked for, was deleted by force: the lock goes when it can no longer write; "+
			"an administrator who knows that it can't may release by force", holder)
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), wanted)
}

// ForcedRelease returns the machine with a request to remove the lock from its holder. A named pod must be the
// holder.
func ForcedRelease(m lock.Machine, pod, by string) (lock.Machine, error) {
	l, locked := lock.Of(m)
	switch {
	case !locked:
		return nil, machineConflict(m, "the %s is not locked for maintenance", lock.Noun(m))
	case pod != "" && pod != l.Pod:
		return nil, machineConflict(m, "the disks are locked for the pod %s, not for %s: one that waits is released without force", l.Pod, pod)
	}
	changed := m.DeepCopyObject().(lock.Machine)
	lock.Force(changed, by)
	return changed, nil
}
