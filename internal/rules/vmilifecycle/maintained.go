package vmilifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// ReasonMaintenance is the reason of the condition Synchronized of a VMI whose VM is locked for a maintenance pod.
const ReasonMaintenance = "Maintenance"

// MaintainerOn reports whether a maintenance pod may write to one of the claims. vm is the VM that the pod names, as the
// API server has it after the pod; nil if there is none. A pod with a gate writes nothing, but one that has the lock may
// lose its gate at any moment. Like a launcher pod with a node it is seen by whoever asks later.
func MaintainerOn(claims []string, pod *corev1.Pod, vm *v1.VirtualMachine) (Rival, bool) {
	r := Rival{Pod: pod.Name, Maintains: lock.For(pod), UID: pod.UID, Created: pod.CreationTimestamp.Time, Claim: writtenOf(claims, pod)}
	holder := vm != nil && lock.HeldBy(vm, pod) && !lock.Ended(pod)
	return r, r.Claim != "" && (holder || lock.MayWrite(pod))
}

// locked reports whether the VM of the VMI's name is locked.
func (d *decision) locked() bool {
	if d.o.VM == nil {
		return false
	}
	_, locked := lock.Of(d.o.VM)
	return locked
}

// awaitUnlock keeps the VMI from its node while its VM's disks are locked. It goes if the VM is to be halted, and goes on
// otherwise: a pod that has the lock and does not run yet gives way to it.
func (d *decision) awaitUnlock() {
	l, _ := lock.Of(d.o.VM)
	d.p.After = rivalPause
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonMaintenance,
		Message: fmt.Sprintf("the VM is in maintenance mode: its disks are locked for the pod %s; it starts when that has ended", l.Pod)})
}
