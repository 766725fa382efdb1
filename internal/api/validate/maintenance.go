package validate

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// MaintenancePod validates a new maintenance pod, after MaintenancePod of package defaults. of is the machine that it
// names, nil for none.
func MaintenancePod(pod *corev1.Pod, of lock.Machine) field.ErrorList {
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	var errs field.ErrorList
	if len(pod.Name) > lock.MaxPodName {
		errs = append(errs, field.Invalid(metadata.Child("name"), pod.Name,
			fmt.Sprintf("the name of a maintenance pod becomes a label of its VM or VMI and must be no more than %d characters", lock.MaxPodName)))
	}
	if of == nil {
		errs = append(errs, field.Invalid(metadata.Child("labels").Key(layout.MaintenanceForLabel), lock.For(pod),
			"there is no VM of this name in the namespace, and no VMI"))
	}
	switch {
	case pod.Spec.NodeName != "":
		errs = append(errs, field.Forbidden(spec.Child("nodeName"),
			"a maintenance pod waits for the disks and can't be given a node; use spec.nodeSelector"))
	case !lock.Gated(pod):
		errs = append(errs, field.Required(spec.Child("schedulingGates"), "a maintenance pod must have the gate "+layout.MaintenanceGate))
	}
	if !lock.Kept(pod) {
		errs = append(errs, field.Required(metadata.Child("finalizers"), "a maintenance pod must have the finalizer "+layout.MaintenanceFinalizer))
	}
	whole := pod.DeepCopy()
	lock.LabelClaims(whole)
	whole.Labels[v1.AppLabel] = layout.MaintenanceApp
	if !maps.Equal(whole.Labels, pod.Labels) {
		errs = append(errs, field.Forbidden(metadata.Child("labels"), "the labels kubevirt.io and "+layout.ClaimLabelPrefix+"… of a maintenance pod are Drydock's"))
	}
	return errs
}

// MaintenancePodUpdate validates updates, by anybody but virt-controller, of pods that are or would become
// maintenance pods.
func MaintenancePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	metadata := field.NewPath("metadata")
	if lock.For(old) == "" {
		return field.ErrorList{field.Forbidden(metadata.Child("labels").Key(layout.MaintenanceForLabel),
			"a pod becomes a maintenance pod when it is created, and not later")}
	}
	var errs field.ErrorList
	if !maps.Equal(ours(pod.Labels), ours(old.Labels)) {
		errs = append(errs, field.Forbidden(metadata.Child("labels"), fmt.Sprintf(
			"the labels %s, kubevirt.io and %s… of a maintenance pod can't be changed", layout.MaintenanceForLabel, layout.ClaimLabelPrefix)))
	}
	if lock.Gated(old) != lock.Gated(pod) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "schedulingGates"),
			"only virt-controller takes the gate off, when the disks are locked for the pod"))
	}
	if lock.Kept(old) != lock.Kept(pod) {
		errs = append(errs, field.Forbidden(metadata.Child("finalizers"),
			"only virt-controller takes the finalizer off, when the pod can no longer write; delete the pod, or unlock its VM or VMI by force"))
	}
	return errs
}

// ours returns the labels of a maintenance pod on which Drydock relies.
func ours(labels map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range labels {
		if name == layout.MaintenanceForLabel || name == v1.AppLabel || strings.HasPrefix(name, layout.ClaimLabelPrefix) {
			out[name] = value
		}
	}
	return out
}

var lockNotes = []string{
	layout.MaintenanceUIDAnnotation, layout.MaintenanceSinceAnnotation, layout.MaintenanceOpenAnnotation,
	layout.MaintenanceReleaseAnnotation, layout.MaintenanceReleaseByAnnotation,
}

// MaintenanceLock keeps users from changing a VM's lock. old is nil on creation.
func MaintenanceLock(vm, old *v1.VirtualMachine) field.ErrorList {
	before := &v1.VirtualMachine{}
	if old != nil {
		before = old
	}
	metadata := field.NewPath("metadata")
	errs := unchanged([]string{layout.MaintenanceLabel}, vm.Labels, before.Labels, metadata.Child("labels"),
		"only virt-controller locks a VM for maintenance")
	errs = append(errs, unchanged(lockNotes, vm.Annotations, before.Annotations, metadata.Child("annotations"),
		"only Drydock's components keep this record of a VM's lock")...)
	if old == nil {
		return errs
	}
	if _, locked := lock.Of(old); !locked {
		return errs
	}
	was, _ := old.RunStrategy()
	is, err := vm.RunStrategy()
	if err != nil || is == was || is == v1.RunStrategyHalted {
		return errs
	}
	path := field.NewPath("spec", "runStrategy")
	if vm.Spec.Running != nil {
		path = field.NewPath("spec", "running")
	}
	return append(errs, field.Forbidden(path, lock.Refusal(old)))
}

// instanceLock keeps users from changing the record of a VMI's lock. Its label is reserved anyway.
func instanceLock(now, before map[string]string, path *field.Path) field.ErrorList {
	return unchanged(lockNotes, now, before, path, "only Drydock's components keep this record of a VMI's lock")
}

// lasting refuses a VMI without a guest for now whose pod stays after its guest: the first requires free disks, and
// the second keeps them.
func lasting(vmi *v1.VirtualMachineInstance) field.ErrorList {
	if !lock.Wanted(vmi) || vmi.Annotations[layout.LeaveLauncherPodAnnotation] != "true" {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "startStrategy"), fmt.Sprintf(
		"%s asks for disks that are free when the guest has ended, and the annotation %s for a launcher pod that stays and has them: take one of both away",
		lock.StartStrategy, layout.LeaveLauncherPodAnnotation))}
}

// takesToMaintenance reports whether the only change of a VMI's spec is that it is to have no guest for now, or may
// have one again.
func takesToMaintenance(vmi, old *v1.VirtualMachineInstance) bool {
	if lock.Wanted(vmi) == lock.Wanted(old) {
		return false
	}
	same := old.Spec.DeepCopy()
	same.StartStrategy = vmi.Spec.StartStrategy
	return equality.Semantic.DeepEqual(vmi.Spec, *same)
}

func intoMaintenance(vmi, old *v1.VirtualMachineInstance) field.ErrorList {
	path := field.NewPath("spec", "startStrategy")
	owner := metav1.GetControllerOf(old)
	switch {
	case owner != nil && lock.Wanted(vmi):
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("the VMI is that of %s %s: %s", owner.Kind, owner.Name, takeVM))}
	case lock.Wanted(vmi) && migration.InFlight(old):
		return field.ErrorList{field.Forbidden(path, "the VMI is being migrated: wait until that is over, or cancel it")}
	}
	return supported.VMISpec(&v1.VirtualMachineInstanceSpec{StartStrategy: vmi.Spec.StartStrategy}, field.NewPath("spec"))
}

// takeVM says how a VM is taken to maintenance, since its template can't request it.
const takeVM = "a VM is halted and its disks are handed out by virtctl maintenance, or virtctl guestfs --vm; only a VMI without an owner is taken to maintenance by its startStrategy"

// maintainedTemplate refuses a template whose VMIs would have no guest.
func maintainedTemplate(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	if !lock.Wanted(&v1.VirtualMachineInstance{Spec: *spec}) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("startStrategy"), takeVM)}
}
