package migration

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// ConditionWaiting is True while a migration waits. KubeVirt has no condition for it.
const ConditionWaiting v1.VirtualMachineInstanceMigrationConditionType = layout.MigrationWaiting

// Reasons of ConditionWaiting, besides the scheduler's and the kubelet's.
const (
	ReasonStarting         = "GuestStarting"
	ReasonAnotherMigration = "AnotherMigration" // is under way or precedes
	ReasonEarlierMigration = "EarlierMigration" // has a pod that has not ended
	ReasonClusterLimit     = "ClusterLimit"
	ReasonNodeLimit        = "NodeLimit"
	ReasonVolumes          = "VolumesChanging" // plugged or unplugged
	ReasonNotAttached      = "VolumesNotAttached"
	ReasonDestinations     = "DestinationNotReady"
	ReasonBackOff          = "BackOff"
)

// Reasons of KubeVirt's conditions.
const (
	reasonQuota   = "TargetPodRefused"
	reasonAborted = "AbortRequested"
)

const canceled = "the migration was canceled: its object was deleted"

// NotBetweenClusters is the failure of a migration that names another cluster.
const NotBetweenClusters = "migration between clusters (sendTo, receive) is not supported by Drydock"

var phases = []v1.VirtualMachineInstanceMigrationPhase{
	v1.MigrationPhaseUnset, v1.MigrationPending, v1.MigrationScheduling, v1.MigrationScheduled,
	v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning,
}

// enter also records the phases between. It never goes back.
func (d *decision) enter(phase v1.VirtualMachineInstanceMigrationPhase) {
	from, to := slices.Index(phases, d.p.Migration.Status.Phase), slices.Index(phases, phase)
	if from < 0 {
		return
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

// end also copies the VMI's migrationState.
func (d *decision) end(phase v1.VirtualMachineInstanceMigrationPhase) {
	if d.p.Migration.IsFinal() {
		return
	}
	if phase == v1.MigrationSucceeded {
		d.enter(v1.MigrationRunning)
	}
	d.reach(phase)
	d.clearWaiting()
	status := &d.p.Migration.Status
	if ms := d.state(); ms != nil {
		status.MigrationState = ms.DeepCopy()
	}
	if phase == v1.MigrationFailed && status.MigrationState != nil {
		status.MigrationState.Completed = true
		status.MigrationState.FailureReason = objectevent.Fit(d.wholeReason(status.MigrationState.FailureReason))
	}
}

// wholeReason adds how the migration stopped to the reason why.
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

// fail ends a migration that was not handed over, or about which the VMI will report nothing more.
func (d *decision) fail(because string, args ...any) {
	o := &d.o
	if o.VMI != nil && !o.VMIAsked && d.state() == nil {
		// A failure is final, but the VMI may have been handed over, or its guest started, since.
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
	d.deleteRemains()
}

func (d *decision) wait(reason, message string) {
	d.enter(v1.MigrationPending)
	d.dropCondition(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota)
	d.setCondition(ConditionWaiting, reason, message)
}

// Unschedulable returns why the scheduler does not place the target pod, "" if it does.
func Unschedulable(m *v1.VirtualMachineInstanceMigration) string {
	c := condition.Find(m.Status.Conditions, ConditionWaiting)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != corev1.PodReasonUnschedulable || m.IsFinal() {
		return ""
	}
	return c.Message
}

// waitForKubelet keeps the first message about a sandbox: each attempt names another one.
func (d *decision) waitForKubelet(reason, message string) {
	said := condition.Find(d.p.Migration.Status.Conditions, ConditionWaiting)
	if reason == vmistatus.ReasonSandbox && said != nil && said.Reason == reason {
		return
	}
	d.wait(reason, message)
}

func (d *decision) clearWaiting() {
	d.dropCondition(ConditionWaiting)
	d.dropCondition(v1.VirtualMachineInstanceMigrationRejectedByResourceQuota)
}

// The first reason stays.
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

// now truncates to the API server's precision of a second.
func (d *decision) now() *metav1.Time {
	now := metav1.NewTime(d.o.Now.Truncate(time.Second))
	return &now
}
