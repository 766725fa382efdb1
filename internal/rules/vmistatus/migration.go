package vmistatus

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/switchover"
)

// Migration is what virt-controller does about a migration, with what it knows of the
// VMI's pods.
type Migration struct {
	// Begin is the migration that begins, nil for none. It takes the place of one that
	// is over.
	Begin *MigrationBegin
	// Of names the migration that Abort, Failure and Arrived are about; they change
	// nothing of another.
	Of types.UID
	// Abort asks the source's virt-handler to end a migration that it has begun. One that
	// it has not begun has failed with that.
	Abort bool
	// Failure is why a migration has failed that has not been begun; "" if it has not.
	Failure string
	// Arrived is the pod in which the guest runs now, nil as long as it does not.
	Arrived *Arrival
	// Ended are pods of the VMI that hold no guest any more, and come to hold none.
	Ended []types.UID
}

// MigrationBegin is a migration whose target pod runs. From then on that pod is the VMI's
// second.
type MigrationBegin struct {
	UID types.UID
	// SourcePod is where the guest runs, TargetPod where it is to run.
	SourceNode, SourcePod string
	TargetNode, TargetPod string
	TargetPodUID          types.UID
	// PolicyName is the MigrationPolicy that applies, "" for none; Configuration is what
	// the migration goes by.
	PolicyName    string
	Configuration *v1.VMIMConfigurationOptions
}

// Arrival is the pod that a guest has got to.
type Arrival struct {
	// Image is that of the pod's launcher.
	Image string
	// Volumes are the guest's where it is now; nil leaves what is said of them.
	Volumes []v1.VolumeStatus
}

// SourceMigration is what virt-handler on the guest's node knows of a migration.
type SourceMigration struct {
	UID types.UID
	// Begins means that QEMU is about to be told to send the guest. It is told only after
	// this has been written.
	Begins bool
	// Mode is what QEMU does, "" if that is not known.
	Mode v1.MigrationMode
	// Failure is why the migration has failed: the guest runs here, and will not run
	// there. "" if it has not failed.
	Failure string
	// Abort is what has become of a request to end it, "" if nothing is known.
	Abort v1.MigrationAbortStatus
	// Progress is how far it is, when that is to be told.
	Progress Progress
}

// TargetMigration is what virt-handler knows of a migration on the node where the guest
// arrives.
type TargetMigration struct {
	UID types.UID
	// Address is where the guest is taken in, "" as long as it can't be.
	Address string
	// Runs means that the guest runs here.
	Runs bool
}

// ActiveMigration returns the migration that has neither completed nor failed; nil if
// there is none.
func ActiveMigration(status *v1.VirtualMachineInstanceStatus) *v1.VirtualMachineInstanceMigrationState {
	if m := status.MigrationState; m != nil && !m.Completed && !m.Failed {
		return m
	}
	return nil
}

// active returns the migration of that UID in the status while it is not over.
func active(status *v1.VirtualMachineInstanceStatus, uid types.UID) *v1.VirtualMachineInstanceMigrationState {
	if m := ActiveMigration(status); m != nil && m.MigrationUID == uid {
		return m
	}
	return nil
}

// migrate says what has become of a migration, as virt-controller and the source's
// virt-handler know it.
func (p *projection) migrate(status *v1.VirtualMachineInstanceStatus) {
	if p.stage != HandedOver {
		return
	}
	p.begin(status)
	p.abort(status)
	p.leave(status)
	p.moveOn(status)
	if m := ActiveMigration(status); m != nil && p.End != nil {
		fail(m, "The VMI has ended while it was migrated: "+p.End.Message, p.Now)
	}
	p.settle(status)
}

// settle says of a migration that has failed that it is over: no pod is the VMI's on the target any more,
// or the VMI ends.
func (p *projection) settle(status *v1.VirtualMachineInstanceStatus) {
	m := status.MigrationState
	if m == nil || !m.Failed {
		return
	}
	named := slices.Contains(slices.Collect(maps.Values(status.ActivePods)), m.TargetNode)
	m.Completed = m.Completed || !named || p.End != nil
}

// begin names the two pods of a migration.
func (p *projection) begin(status *v1.VirtualMachineInstanceStatus) {
	b := p.Migration.Begin
	if b == nil || p.End != nil || ActiveMigration(status) != nil || status.MigrationState != nil && status.MigrationState.MigrationUID == b.UID {
		return
	}
	status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: b.UID, SourceNode: b.SourceNode, SourcePod: b.SourcePod, TargetNode: b.TargetNode, TargetPod: b.TargetPod,
		VMIMConfigurationOptions: b.Configuration.DeepCopy(),
	}
	if b.PolicyName != "" {
		status.MigrationState.MigrationPolicyName = &b.PolicyName
	}
	if status.ActivePods == nil {
		status.ActivePods = map[types.UID]string{}
	}
	status.ActivePods[b.TargetPodUID] = b.TargetNode
}

// abort ends a migration on behalf of virt-controller. Until its beginning is written,
// which tests what its writer has read, the source has sent nothing.
func (p *projection) abort(status *v1.VirtualMachineInstanceStatus) {
	m := active(status, p.Migration.Of)
	switch {
	case m == nil, !p.Migration.Abort && p.Migration.Failure == "":
	case m.StartTimestamp == nil:
		if m.AbortRequested = m.AbortRequested || p.Migration.Abort; m.AbortRequested {
			m.AbortStatus = v1.MigrationAbortSucceeded
		}
		reason := p.Migration.Failure
		if reason == "" {
			reason = "The migration was aborted before the guest was sent."
		}
		fail(m, reason, p.Now)
	default:
		m.AbortRequested = m.AbortRequested || p.Migration.Abort
	}
}

// leave says how far the source's virt-handler is.
func (p *projection) leave(status *v1.VirtualMachineInstanceStatus) {
	s, known := p.Source.Get()
	m := active(status, s.UID)
	if !known || m == nil {
		return
	}
	if s.Begins && m.StartTimestamp == nil && !m.AbortRequested && s.Failure == "" {
		m.StartTimestamp = second(p.Now)
		m.Mode = v1.MigrationPreCopy
	}
	if s.Mode != "" && m.StartTimestamp != nil {
		m.Mode = s.Mode
	}
	if s.Abort != "" {
		m.AbortStatus = s.Abort
	}
	if s.Failure != "" {
		fail(m, s.Failure, p.Now)
	}
}

// arrive says how far the target's virt-handler is. Nothing else of the status is its own
// until the guest's node is its.
func (p *projection) arrive(status *v1.VirtualMachineInstanceStatus) {
	t, known := p.Target.Get()
	m := active(status, t.UID)
	if !known || m == nil || p.stage != HandedOver {
		return
	}
	if t.Address != "" {
		m.TargetNodeAddress = t.Address
	}
	if t.Runs && m.StartTimestamp != nil {
		m.TargetNodeDomainDetected = true
		m.TargetNodeDomainReadyTimestamp, m.EndTimestamp = second(p.Now), second(p.Now)
		m.Completed = true
	}
}

// moveOn has the guest's node be the one where it runs, and forgets pods that hold none.
func (p *projection) moveOn(status *v1.VirtualMachineInstanceStatus) {
	m := status.MigrationState
	if a := p.Migration.Arrived; a != nil && m != nil && switchover.Completed(m) && m.MigrationUID == p.Migration.Of {
		status.NodeName = m.TargetNode
		status.LauncherContainerImageVersion = a.Image
		if a.Volumes != nil {
			status.VolumeStatus = a.Volumes
		}
		if status.EvacuationNodeName != m.TargetNode {
			status.EvacuationNodeName = ""
		}
	}
	for _, uid := range p.Migration.Ended {
		delete(status.ActivePods, uid)
	}
}

func fail(m *v1.VirtualMachineInstanceMigrationState, reason string, now time.Time) {
	m.Failed, m.FailureReason, m.EndTimestamp = true, reason, second(now)
}

// second is a time as the API server keeps it.
func second(t time.Time) *metav1.Time { return new(metav1.NewTime(t.Truncate(time.Second))) }
