package vmcontroller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/rollout"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Reasons of a VM's conditions besides those of its VMI.
const (
	ReasonVMINotExists      = "VMINotExists"
	ReasonStopping          = "Stopping"
	ReasonFailedCreate      = "FailedCreate"
	ReasonNameTaken         = "VirtualMachineInstanceNameTaken"
	ReasonDataVolumeTaken   = "DataVolumeNameTaken"
	ReasonInvalidSpec       = "InvalidSpec"
	ReasonTypeMissing       = "FailedFindInstancetype"
	ReasonPreferenceMissing = "FailedFindPreference"
	ReasonTemplateChanged   = "TemplateChanged"
	reasonPVCNotFound       = "FailedPvcNotFound"
	reasonImagePullBackOff  = "ImagePullBackOff"
	unboundImmediatePhrase  = "unbound immediate PersistentVolumeClaims"
	podScheduledCondition   = v1.VirtualMachineInstanceConditionType(corev1.PodScheduled)
	messageGuestNotRunning  = "Guest VM is not reported as running"
	messageStopping         = "the guest is being shut down"
	messageVMIDoesNotExist  = "VMI does not exist"
)

// Nothing else sets conditions or the printable status.
func (d *decision) report() {
	status := &d.VM.Status
	status.Created = d.vmi != nil || d.Create != nil
	status.Ready = d.ready().Status == corev1.ConditionTrue
	status.PrintableStatus = d.printable()
	status.DesiredGeneration = d.VM.Generation
	d.reportConditions()
	if !d.outdated() {
		status.ObservedGeneration = d.VM.Generation
	}
}

// outdated reports whether the VMI is not of the VM's template, or the VM waits for a restart: the known generation stays.
// A change of labels and annotations reaches no VMI.
func (d *decision) outdated() bool {
	switch {
	case condition.Find(d.VM.Status.Conditions, v1.VirtualMachineRestartRequired) != nil:
		return true
	case !d.hasActiveVMI():
		return false
	case d.expanded == nil:
		return true
	case d.o.Started != nil && !equality.Semantic.DeepEqual(d.o.Started, templateSpec(d.expanded)):
		return true
	}
	labels, annotations := metadata(d.VM, d.expanded)
	delete(annotations, v1.VirtualMachineGenerationAnnotation)
	return !contains(d.vmi.Labels, labels) || !contains(d.vmi.Annotations, annotations)
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if is, there := all[key]; !there || is != value {
			return false
		}
	}
	return true
}

func (d *decision) printable() v1.VirtualMachinePrintableStatus {
	switch {
	case d.o.VM.DeletionTimestamp != nil:
		return v1.VirtualMachineStatusTerminating
	case d.stopping() && (!d.start || !d.vmi.IsFinal()):
		return v1.VirtualMachineStatusStopping
	case d.vmi != nil && !d.vmi.IsFinal():
		return d.printableOfVMI()
	case d.maintained() && d.strategy == v1.RunStrategyHalted:
		return StatusMaintenance
	case d.needsRecovery():
		return v1.VirtualMachineStatusStopped
	case d.start && d.backOff() > 0:
		return v1.VirtualMachineStatusCrashLoopBackOff
	case d.disksPrintable() != "":
		return d.disksPrintable()
	case d.start && d.expanded != nil:
		return v1.VirtualMachineStatusStarting
	}
	// A VM does not start before its type and preference exist.
	return v1.VirtualMachineStatusStopped
}

func (d *decision) stopping() bool {
	return d.vmi != nil && (d.Delete || d.vmi.DeletionTimestamp != nil)
}

func (d *decision) printableOfVMI() v1.VirtualMachinePrintableStatus {
	vmi := d.vmi
	ready := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	switch {
	case vmi.Status.Phase == v1.Unknown, vmistatus.Unanswered(vmi):
		return v1.VirtualMachineStatusUnknown
	case vmi.Status.Phase == v1.Running && vmistatus.Interrupted(vmi):
		return v1.VirtualMachineStatusStopping
	case vmi.Status.Phase == v1.Running && switchover.Open(vmi.Status.MigrationState) && vmi.Status.MigrationState.StartTimestamp != nil:
		// A migration is shown from the copying of the memory on.
		return v1.VirtualMachineStatusMigrating
	case condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused):
		return v1.VirtualMachineStatusPaused
	case vmi.Status.Phase == v1.Running && ready != nil && ready.Status == corev1.ConditionFalse && ready.Reason == runstate.ReasonWaitingForVolumes:
		return v1.VirtualMachineStatusStarting
	case vmi.Status.Phase == v1.Running:
		return v1.VirtualMachineStatusRunning
	}
	return d.printableOfStart()
}

func (d *decision) printableOfStart() v1.VirtualMachinePrintableStatus {
	conditions := d.vmi.Status.Conditions
	if c := condition.Find(conditions, v1.VirtualMachineInstanceSynchronized); c != nil && c.Status == corev1.ConditionFalse {
		switch c.Reason {
		case reasonPVCNotFound:
			return v1.VirtualMachineStatusPvcNotFound
		case reasonImagePullBackOff:
			return v1.VirtualMachineStatusImagePullBackOff
		case "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable":
			return v1.VirtualMachineStatusErrImagePull
		}
	}
	if d.disksInTrouble() {
		return v1.VirtualMachineStatusDataVolumeError
	}
	if c := condition.Find(conditions, podScheduledCondition); c != nil && c.Reason == corev1.PodReasonUnschedulable {
		if strings.Contains(c.Message, unboundImmediatePhrase) {
			return v1.VirtualMachineStatusWaitingForVolumeBinding
		}
		return v1.VirtualMachineStatusUnschedulable
	}
	if condition.IsTrue(conditions, v1.VirtualMachineInstanceProvisioning) {
		return v1.VirtualMachineStatusWaitingForVolumeBinding
	}
	if c := condition.Find(conditions, v1.VirtualMachineInstanceDataVolumesReady); c != nil && c.Status == corev1.ConditionFalse {
		return v1.VirtualMachineStatusProvisioning
	}
	return v1.VirtualMachineStatusStarting
}

func (d *decision) reportConditions() {
	before := d.VM.DeepCopy()
	d.VM.Status.Conditions = slices.DeleteFunc(d.VM.Status.Conditions, func(c v1.VirtualMachineCondition) bool {
		return c.Type != v1.VirtualMachineFailure && c.Type != v1.VirtualMachineRestartRequired &&
			c.Type != v1.VirtualMachineManualRecoveryRequired
	})
	set := func(c v1.VirtualMachineCondition) {
		if old := condition.Find(before.Status.Conditions, c.Type); old != nil && condition.Find(d.VM.Status.Conditions, c.Type) == nil {
			d.VM.Status.Conditions = append(d.VM.Status.Conditions, *old)
		}
		condition.Set(&d.VM.Status.Conditions, c, d.o.Now)
	}
	if d.vmi != nil {
		for _, c := range d.vmi.Status.Conditions {
			// It changes every few seconds.
			if c.Type != v1.VirtualMachineInstanceReady && c.Type != vmistatus.MigrationProgress {
				set(v1.VirtualMachineCondition{
					Type: v1.VirtualMachineConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
				})
			}
		}
	}
	if c, say := d.disksCondition(); say {
		set(c)
	}
	set(d.ready())
	for _, c := range d.guestConditions() {
		set(c)
	}
	if d.maintained() {
		set(d.maintenanceCondition())
	}
	d.reportFailure()
	d.reportRestartRequired()
	d.reportRecovery()
	sortConditions(d.VM)
}

func sortConditions(vm *v1.VirtualMachine) {
	slices.SortFunc(vm.Status.Conditions, func(a, b v1.VirtualMachineCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
}

// Before the guest runs, Ready's message is fixed, so that a start costs the VM one write.
func (d *decision) ready() v1.VirtualMachineCondition {
	out := v1.VirtualMachineCondition{
		Type: v1.VirtualMachineReady, Status: corev1.ConditionFalse,
		Reason: v1.GuestNotRunningReason, Message: messageGuestNotRunning,
	}
	switch {
	case d.vmi == nil && d.Create == nil:
		out.Reason, out.Message = ReasonVMINotExists, messageVMIDoesNotExist
	case d.stopping():
		// The condition is written once. The VMI shows whether the guest still runs.
		out.Reason, out.Message = ReasonStopping, messageStopping
	case d.vmi != nil && d.vmi.Status.Phase == v1.Failed:
		if c := condition.Find(d.vmi.Status.Conditions, v1.VirtualMachineInstanceReady); c != nil && c.Message != "" {
			out.Message = c.Message // with the end of the guest
		}
	case d.vmi != nil && d.vmi.Status.Phase == v1.Running:
		if c := condition.Find(d.vmi.Status.Conditions, v1.VirtualMachineInstanceReady); c != nil {
			out.Status, out.Reason, out.Message = c.Status, c.Reason, c.Message
		}
	}
	return out
}

func (d *decision) reportFailure() {
	failure := v1.VirtualMachineCondition{Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue}
	switch {
	case d.invalid != nil:
		failure.Reason, failure.Message = ReasonInvalidSpec, d.invalid.Error()
	case d.expanded == nil:
		failure.Reason, failure.Message = d.unexpanded.reason, d.unexpanded.message
	case d.start && d.conflicting != nil:
		failure.Reason = ReasonNameTaken
		failure.Message = fmt.Sprintf("a virtual machine instance %s exists that does not belong to this virtual machine; delete it, or give this one another name", d.VM.Name)
	case d.disks.blocked != "":
		failure.Reason, failure.Message = ReasonDataVolumeTaken, d.disks.blocked
	default:
		condition.Drop(&d.VM.Status.Conditions, v1.VirtualMachineFailure)
		return
	}
	condition.Set(&d.VM.Status.Conditions, failure, d.o.Now)
}

func (d *decision) reportRestartRequired() {
	if d.expanded == nil {
		// Unknown, so the condition stays.
		return
	}
	var waiting []rollout.Change
	if d.vmi != nil && !d.vmi.IsFinal() && d.template() != nil {
		waiting = slices.DeleteFunc(rollout.Compare(rollout.Input{
			Strategy: d.o.Strategy, VMName: d.VM.Name, Started: d.o.Started, VMI: d.vmi, Template: &d.template().Spec, Plugged: d.templateForPlugging(), Moves: d.moves.wanted,
		}), func(c rollout.Change) bool { return c.Way != rollout.Restart })
	}
	if len(waiting) == 0 && len(d.moves.refusals) > 0 {
		waiting = []rollout.Change{{Path: volumesPath, Way: rollout.Restart, Reason: rollout.ReasonMachine}} // These volumes stay plugged in.
	}
	if len(waiting) == 0 {
		condition.Drop(&d.VM.Status.Conditions, v1.VirtualMachineRestartRequired)
		return
	}
	condition.Set(&d.VM.Status.Conditions, v1.VirtualMachineCondition{
		Type: v1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, Reason: ReasonTemplateChanged,
		Message: d.restartMessage(waiting),
	}, d.o.Now)
}
