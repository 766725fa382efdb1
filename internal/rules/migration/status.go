package migration

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/objectevent"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// ConditionWaiting is True of a migration while something keeps it from going on; its reason
// and message say what. KubeVirt has no condition for it.
const ConditionWaiting v1.VirtualMachineInstanceMigrationConditionType = layout.MigrationWaiting

// Reasons of ConditionWaiting. The scheduler's and the kubelet's own come beside them.
const (
	// ReasonStarting: the guest has not started yet.
	ReasonStarting = "GuestStarting"
	// ReasonAnotherMigration: the VMI is being migrated already.
	ReasonAnotherMigration = "AnotherMigration"
	// ReasonEarlierMigration: what an earlier migration leaves behind has not ended.
	ReasonEarlierMigration = "EarlierMigration"
	// ReasonClusterLimit and ReasonNodeLimit: as many run as the configuration allows.
	ReasonClusterLimit = "ClusterLimit"
	ReasonNodeLimit    = "NodeLimit"
	// ReasonVolumes: hotplugged volumes are being plugged or unplugged.
	ReasonVolumes = "VolumesChanging"
	// ReasonNotAttached: attachment pods at the target do not run.
	ReasonNotAttached = "VolumesNotAttached"
	// ReasonDestinations: a claim that a disk is to be copied to can't be used.
	ReasonDestinations = "DestinationNotReady"
	// ReasonBackOff: earlier migrations of the VMI have failed.
	ReasonBackOff = "BackOff"
)

// Reasons of KubeVirt's conditions.
const (
	reasonQuota   = "TargetPodRefused"
	reasonAborted = "AbortRequested"
)

// canceled is the reason of a migration that was deleted.
const canceled = "the migration was canceled: its object was deleted"

// NotBetweenClusters is said of a migration that names another cluster.
const NotBetweenClusters = "migration between clusters (sendTo, receive) is not supported by Drydock"

// phases are in the order in which a migration goes through them.
var phases = []v1.VirtualMachineInstanceMigrationPhase{
	v1.MigrationPhaseUnset, v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled,
	v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning,
}

// enter takes the migration to a phase, through those between: a phase that nobody was there
// to write is entered with the next one. It never goes back.
func (d *decision) enter(phase v1.VirtualMachineInstanceMigrationPhase) {
	from, to := slices.Index(phases, d.p.Migration.Status.Phase), slices.Index(phases, phase)
	if from < 0 {
		return // it is final
	}
	for i := from + 1; i <= to; i++ {
		d.reach(phases[i])
	}
}

func (d *decision) reach(phase v1.VirtualMachineInstanceMigrationPhase) {
	status := &d.p.Migration.Status
	status.Phase = phase
	status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: *d.now()})
}

// end takes the migration to its final phase, with what the VMI says of it.
func (d *decision) end(phase v1.VirtualMachineInstanceMigrationPhase) {
	if d.p.Migration.IsFinal() {
		return
	}
	if phase == v1.MigrationSucceeded {
		d.enter(v1.MigrationRunning)
	}
	d.reach(phase)
	d.goOn()
	status := &d.p.Migration.Status
	if ms := d.state(); ms != nil {
		status.MigrationState = ms.DeepCopy()
	}
	if phase == v1.MigrationFailed && status.MigrationState != nil {
		status.MigrationState.Completed = true
		status.MigrationState.FailureReason = objectevent.Fit(d.wholeReason(status.MigrationState.FailureReason))
	}
}

// wholeReason puts why the migration was to be stopped before how it stopped.
func (d *decision) wholeReason(said string) string {
	abort := condition.Find(d.p.Migration.Status.Conditions, v1.VirtualMachineInstanceMigrationAbortRequested)
	switch {
	case abort == nil || abort.Message == said:
		return said
	case said == "":
		return abort.Message
	}
	return abort.Message + "; " + said
}

// fail ends a migration that the VMI was not handed over with, or has nothing to say of any
// more.
func (d *decision) fail(because string, args ...any) {
	o := &d.o
	if o.VMI != nil && !o.VMIAsked && d.state() == nil {
		// It may have been handed over since, or the guest may have begun to run, and a failure is for good.
		d.p.Needs = NeedVMI
		return
	}
	reason := objectevent.Fit(fmt.Sprintf(because, args...))
	if o.Migration.DeletionTimestamp != nil {
		d.abortRequested(reason)
	}
	d.end(v1.MigrationFailed)
	status := &d.p.Migration.Status
	if status.MigrationState == nil {
		status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: o.Migration.UID}
		if o.VMI != nil {
			status.MigrationState.SourceNode = o.VMI.Status.NodeName
		}
		if o.Target != nil {
			status.MigrationState.TargetNode, status.MigrationState.TargetPod = o.Target.Spec.NodeName, o.Target.Name
		}
	}
	ms := status.MigrationState
	ms.Completed, ms.Failed, ms.FailureReason, ms.EndTimestamp = true, true, reason, d.now()
	if o.Migration.DeletionTimestamp != nil {
		ms.AbortRequested, ms.AbortStatus = true, v1.MigrationAbortSucceeded
	}
	d.tidy()
}

// wait says what the migration waits for. Of the same reason the first message stays: the
// kubelet names another sandbox at every attempt.
func (d *decision) wait(reason, message string) {
	d.enter(v1.MigrationPending)
	d.dropCondition(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota)
	d.setCondition(ConditionWaiting, reason, message)
}

// Unschedulable is what a migration says of a target pod that the scheduler finds no node for, "" while it says nothing of that.
func Unschedulable(m *v1.VirtualMachineInstanceMigration) string {
	c := condition.Find(m.Status.Conditions, ConditionWaiting)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != corev1.PodReasonUnschedulable || m.IsFinal() {
		return ""
	}
	return c.Message
}

// waitForKubelet does so in the kubelet's words.
func (d *decision) waitForKubelet(reason, message string) {
	said := condition.Find(d.p.Migration.Status.Conditions, ConditionWaiting)
	if reason == vmistatus.ReasonSandbox && said != nil && said.Reason == reason {
		return
	}
	d.wait(reason, message)
}

// refused says that the API server does not let the target pod be made, which a quota is the
// usual reason of.
func (d *decision) refused() {
	d.dropCondition(ConditionWaiting)
	d.setCondition(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota, reasonQuota, d.o.Refusal)
}

// goOn says that nothing keeps the migration waiting.
func (d *decision) goOn() {
	d.dropCondition(ConditionWaiting)
	d.dropCondition(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota)
}

// abortRequested says that the migration is to be stopped, and why. The first reason stays.
func (d *decision) abortRequested(reason string) {
	conditions := d.p.Migration.Status.Conditions
	if !d.p.Migration.IsFinal() && !condition.IsTrue(conditions, v1.VirtualMachineInstanceMigrationAbortRequested) {
		d.setCondition(v1.VirtualMachineInstanceMigrationAbortRequested, reasonAborted, reason)
	}
}

func (d *decision) setCondition(kind v1.VirtualMachineInstanceMigrationConditionType, reason, message string) {
	condition.Set(&d.p.Migration.Status.Conditions, v1.VirtualMachineInstanceMigrationCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: objectevent.Fit(message),
	}, d.o.Now)
}

func (d *decision) dropCondition(kind v1.VirtualMachineInstanceMigrationConditionType) {
	condition.Drop(&d.p.Migration.Status.Conditions, kind)
}

// now is the decision's time as the API server keeps it, in whole seconds.
func (d *decision) now() *metav1.Time {
	now := metav1.NewTime(d.o.Now.Truncate(time.Second))
	return &now
}
