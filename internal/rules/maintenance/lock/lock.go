// Package lock defines the maintenance lock of a machine: the labels, annotations and finalizers on
// the VM, or the VMI without a VM, and on the pods that wait for it, hold it, or have held it.
//
// It must not decide when a lock is taken and released: package maintenance does.
package lock

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// MaxPodName limits a maintenance pod's name, which is also a label's value.
const MaxPodName = 63

// These are not in KubeVirt's API.
const (
	// StartStrategy keeps a VMI without a guest, so that it can be locked. A VM is halted instead.
	StartStrategy v1.StartStrategy               = "Maintenance"
	Phase         v1.VirtualMachineInstancePhase = "Maintenance" // of a locked VMI
)

// Machine is a VM, or a VMI without a VM of its name.
type Machine interface {
	metav1.Object
	runtime.Object
}

// Chosen returns the machine for the maintenance pods of a name, nil for none: the VM, unless the VMI
// was locked before that existed. Neither is locked while the other exists (package maintenance).
func Chosen(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) Machine {
	switch {
	case vm == nil && vmi == nil:
		return nil
	case vm == nil:
		return vmi
	case vmi == nil:
		return vm
	}
	_, first := Of(vm)
	if _, locked := Of(vmi); locked && !first {
		return vmi
	}
	return vm
}

// Noun returns the machine's kind for messages.
func Noun(m Machine) string {
	if _, is := m.(*v1.VirtualMachineInstance); is {
		return "VMI"
	}
	return "VM"
}

// Wanted reports whether a VMI is to have no guest, so that it can be locked.
func Wanted(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Spec.StartStrategy != nil && *vmi.Spec.StartStrategy == StartStrategy
}

// Lock is a machine's lock. The zero value is unlocked.
type Lock struct {
	Pod   string
	UID   types.UID
	Since string // in RFC 3339
	// Open means that the pod may run: there was no obstacle after the lock. It stays until the pod
	// can no longer write.
	Open bool
}

// Of returns the machine's lock, and whether it has one.
func Of(vm metav1.Object) (Lock, bool) {
	name, locked := vm.GetLabels()[layout.MaintenanceLabel]
	notes := vm.GetAnnotations()
	if !locked {
		return Lock{}, false
	}
	return Lock{
		Pod: name, UID: types.UID(notes[layout.MaintenanceUIDAnnotation]), Since: notes[layout.MaintenanceSinceAnnotation],
		Open: notes[layout.MaintenanceOpenAnnotation] == "true",
	}, true
}

// HeldBy reports whether the machine is locked for this pod, and the pod is for this machine: neither's word suffices.
func HeldBy(m, pod metav1.Object) bool {
	l, locked := Of(m)
	return locked && l.Pod == pod.GetName() && l.UID == pod.GetUID() && m.GetNamespace() == pod.GetNamespace() &&
		For(pod) == layout.LabelValue(m.GetName())
}

// Take locks a machine. The finalizer keeps it and its name until it is unlocked.
func Take(m metav1.Object, pod *corev1.Pod, now time.Time) {
	Drop(m)
	note(m, layout.MaintenanceUIDAnnotation, string(pod.UID))
	note(m, layout.MaintenanceSinceAnnotation, now.UTC().Format(time.RFC3339))
	m.SetFinalizers(append(m.GetFinalizers(), layout.MaintenanceFinalizer))
	labels := m.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[layout.MaintenanceLabel] = pod.Name
	m.SetLabels(labels)
}

// Open lets the holder run.
func Open(m metav1.Object) { note(m, layout.MaintenanceOpenAnnotation, "true") }

// Force requests a forced unlock for a user who vouches that the holder writes no more.
func Force(m metav1.Object, by string) {
	l, _ := Of(m)
	note(m, layout.MaintenanceReleaseAnnotation, string(l.UID))
	note(m, layout.MaintenanceReleaseByAnnotation, by)
}

func note(m metav1.Object, name, value string) {
	notes := m.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[name] = value
	m.SetAnnotations(notes)
}

// Drop unlocks a machine and removes a request for its unlock.
func Drop(m metav1.Object) {
	delete(m.GetLabels(), layout.MaintenanceLabel)
	for _, name := range []string{
		layout.MaintenanceUIDAnnotation, layout.MaintenanceSinceAnnotation, layout.MaintenanceOpenAnnotation,
		layout.MaintenanceReleaseAnnotation, layout.MaintenanceReleaseByAnnotation,
	} {
		delete(m.GetAnnotations(), name)
	}
	m.SetFinalizers(without(m.GetFinalizers()))
}

func without(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(f string) bool { return f == layout.MaintenanceFinalizer })
}

// Request returns the requested forced unlock: the UID of the pod, "" for none, and the user who vouches.
func Request(vm metav1.Object) (uid types.UID, by string) {
	notes := vm.GetAnnotations()
	return types.UID(notes[layout.MaintenanceReleaseAnnotation]), notes[layout.MaintenanceReleaseByAnnotation]
}

// For returns a maintenance pod's machine, "" for another pod.
func For(pod metav1.Object) string { return pod.GetLabels()[layout.MaintenanceForLabel] }

// Gated reports whether a pod waits for its lock. It gets no node before.
func Gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: layout.MaintenanceGate})
}

// Ungate removes the gate.
func Ungate(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == layout.MaintenanceGate
	})
}

// Kept reports whether the pod has the finalizer, which keeps even a pod that is deleted by force until it is
// known to write no more.
func Kept(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, layout.MaintenanceFinalizer) }

// Keep adds the finalizer.
func Keep(pod *corev1.Pod) {
	if !Kept(pod) {
		pod.Finalizers = append(pod.Finalizers, layout.MaintenanceFinalizer)
	}
}

// LetGo removes the finalizer.
func LetGo(pod *corev1.Pod) { pod.Finalizers = without(pod.Finalizers) }

// Ended reports whether a pod can never write again: its processes have ended, or it is being
// deleted without a node, and gets none any more. A request for its deletion is not enough.
func Ended(pod *corev1.Pod) bool {
	return podstatus.Terminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// MayWrite reports whether a maintenance pod may write to its claims, now or without another check.
// Whoever forced an unlock has vouched for a pod that lost its finalizer before its end.
func MayWrite(pod *corev1.Pod) bool {
	return For(pod) != "" && Kept(pod) && !Gated(pod) && !Ended(pod)
}

// Claims returns the claims that a pod uses, in the order of its volumes.
func Claims(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if source := pod.Spec.Volumes[i].PersistentVolumeClaim; source != nil && !slices.Contains(out, source.ClaimName) {
			out = append(out, source.ClaimName)
		}
	}
	return out
}

// LabelClaims sets the pod's labels for its claims, and removes others.
func LabelClaims(pod *corev1.Pod) {
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return strings.HasPrefix(key, layout.ClaimLabelPrefix) })
	for _, claim := range Claims(pod) {
		pod.Labels[layout.ClaimLabel(claim)] = ""
	}
}

// Refusal returns the error for a start of a locked VM.
func Refusal(vm metav1.Object) string {
	l, _ := Of(vm)
	return fmt.Sprintf("Failed to start %s as it is in maintenance mode: its disks are locked for the pod %s", vm.GetName(), l.Pod)
}
