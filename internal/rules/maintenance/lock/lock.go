// Package lock says what the lock of a machine for maintenance looks like on the objects: on the VM, or the VMI without a
// VM, that is locked, and on the pods that wait for it, hold it, or have had it.
//
// It owns how these facts are read and written and what they are called; it is pure. When a lock is taken and released
// is package maintenance's to decide.
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
	"drydock.dev/drydock/internal/rules/podstatus"
)

// MaxPodName is how long the name of a maintenance pod may be: it is the value of a label.
const MaxPodName = 63

// KubeVirt's API has neither of these.
const (
	// StartStrategy of a VMI keeps it from having a guest, so that it can be locked. A VM is halted instead.
	StartStrategy v1.StartStrategy = "Maintenance"
	// Phase is that of a VMI which is locked.
	Phase v1.VirtualMachineInstancePhase = "Maintenance"
)

// Machine is what is locked: a VM, or a VMI without a VM of its name.
type Machine interface {
	metav1.Object
	runtime.Object
}

// Chosen is the machine that the maintenance pods of a name are for, nil for none: the VM, unless the VMI was locked before
// there was one. Neither is locked while the other exists (package maintenance).
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

// Noun is what a machine is called.
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

// Lock is a machine's lock. The zero value is that of one that is not locked.
type Lock struct {
	Pod string
	UID types.UID
	// Since is the time from which on the VM is locked, as text.
	Since string
	// Open means that the pod may run: nothing stood in the way after the VM was locked. It stays so until the pod
	// can no longer write.
	Open bool
}

// Of returns the lock of a machine, and whether it has one.
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

// HeldBy reports whether the machine is locked for this very pod, and the pod is one for this machine: each
// names the other, so that what one of them says is not enough.
func HeldBy(m, pod metav1.Object) bool {
	l, locked := Of(m)
	return locked && l.Pod == pod.GetName() && l.UID == pod.GetUID() && m.GetNamespace() == pod.GetNamespace() &&
		For(pod) == layout.LabelValue(m.GetName())
}

// Take locks a machine for a pod. The finalizer keeps the machine, and with it its name, until it is unlocked.
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

// Force asks for a forced unlock, by somebody who vouches that the holder writes no more.
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

// Drop unlocks a machine, and takes away what was asked of its lock.
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

// Request is what a forced unlock was asked for: the pod that is vouched to write no more, and by whom. The UID is ""
// when nothing was asked for.
func Request(vm metav1.Object) (uid types.UID, by string) {
	notes := vm.GetAnnotations()
	return types.UID(notes[layout.MaintenanceReleaseAnnotation]), notes[layout.MaintenanceReleaseByAnnotation]
}

// For is the name of the machine that a pod is to work on, "" for a pod of another kind.
func For(pod metav1.Object) string { return pod.GetLabels()[layout.MaintenanceForLabel] }

// Gated reports whether a pod waits for its lock: it gets no node before.
func Gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: layout.MaintenanceGate})
}

// Ungate takes the gate off.
func Ungate(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == layout.MaintenanceGate
	})
}

// Kept reports whether a pod's object stays until the pod is known to write no more. The object of a pod that is deleted
// by force stays as well, which is how its end can be seen.
func Kept(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, layout.MaintenanceFinalizer) }

// Keep puts the finalizer on a pod, LetGo takes it off.
func Keep(pod *corev1.Pod) {
	if !Kept(pod) {
		pod.Finalizers = append(pod.Finalizers, layout.MaintenanceFinalizer)
	}
}

// LetGo takes the finalizer off a pod.
func LetGo(pod *corev1.Pod) { pod.Finalizers = without(pod.Finalizers) }

// Ended reports whether a pod writes no more, for ever: its processes have ended, or it is being deleted and has no
// node, and gets none any more. That its deletion was asked for is not enough.
func Ended(pod *corev1.Pod) bool {
	return podstatus.Terminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// MayWrite reports whether a maintenance pod may be writing to its claims, or will without being asked again. One that
// lost its finalizer before its end was vouched for by whoever may force an unlock.
func MayWrite(pod *corev1.Pod) bool {
	return For(pod) != "" && Kept(pod) && !Gated(pod) && !Ended(pod)
}

// Claims lists the claims that a pod uses, each once, in the order of its volumes.
func Claims(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if source := pod.Spec.Volumes[i].PersistentVolumeClaim; source != nil && !slices.Contains(out, source.ClaimName) {
			out = append(out, source.ClaimName)
		}
	}
	return out
}

// LabelClaims names the pod's claims in its labels, and takes away what they said of claims before.
func LabelClaims(pod *corev1.Pod) {
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return strings.HasPrefix(key, layout.ClaimLabelPrefix) })
	for _, claim := range Claims(pod) {
		pod.Labels[layout.ClaimLabel(claim)] = ""
	}
}

// Refusal is what whoever would start a VM that is locked is told.
func Refusal(vm metav1.Object) string {
	l, _ := Of(vm)
	return fmt.Sprintf("Failed to start %s as it is in maintenance mode: its disks are locked for the pod %s", vm.GetName(), l.Pod)
}
