package vmistatus

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// Migration has virt-controller's facts about a migration.
type Migration struct {
	// Begin replaces a migration that is over.
	Begin *MigrationBegin
	// Of is the migration of Abort, Failure and Arrived.
	Of types.UID
	// Abort asks the source to stop the migration. One that has not begun fails at once.
	Abort   bool
	Failure string // why it failed before the source began it
	Arrived *Arrival
	// Ended are pods that have no guest and will have none.
	Ended []types.UID
}

// MigrationBegin is a migration whose target pod runs.
type MigrationBegin struct {
	UID                   types.UID
	SourceNode, SourcePod string
	TargetNode, TargetPod string
	TargetPodUID          types.UID
	// PolicyName is the MigrationPolicy, "" for none. Configuration is the effective one.
	PolicyName    string
	Configuration *v1.VMIMConfigurationOptions
}

// Arrival is an arrived guest's pod.
type Arrival struct {
	Image   string
	Volumes []v1.VolumeStatus // nil leaves the status
}

// SourceMigration has the facts of virt-handler on the guest's node.
type SourceMigration struct {
	UID types.UID
	// Begins means that QEMU is about to send the guest, once this has been written.
	Begins   bool
	Mode     v1.MigrationMode // QEMU's, "" if unknown
	Failure  string           // why the guest keeps running here and will not run at the target
	Abort    v1.MigrationAbortStatus
	Progress Progress
}

// TargetMigration has the facts of virt-handler on the target node.
type TargetMigration struct {
	UID     types.UID
	Address string // "" until the target accepts the guest
	Runs    bool
}

// ActiveMigration returns the migration that has neither completed nor failed; nil for none.
func ActiveMigration(status *v1.VirtualMachineInstanceStatus) *v1.VirtualMachineInstanceMigrationState {
	if m := status.MigrationState; switchover.Open(m) {
		return m
	}
	return nil
}

func active(status *v1.VirtualMachineInstanceStatus, uid types.UID) *v1.VirtualMachineInstanceMigrationState {
	if m := ActiveMigration(status); m != nil && m.MigrationUID == uid {
		return m
	}
	return nil
}

func (p *projection) migrate(status *v1.VirtualMachineInstanceStatus) {
	if p.stage != HandedOver {
		return
	}
	p.begin(status)
	p.abort(status)
	p.leave(status)
	p.switchNode(status)
	if m := ActiveMigration(status); m != nil && p.End != nil {
		fail(m, "The VMI has ended while it was migrated: "+p.End.Message, p.Now)
	}
	if m := status.MigrationState; m != nil && m.Failed {
		named := slices.Contains(slices.Collect(maps.Values(status.ActivePods)), m.TargetNode)
		m.Completed = m.Completed || !named || p.End != nil
	}
}

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

// The source sends nothing before it has written StartTimestamp, and that write fails on an outdated VMI.
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

// The target's virt-handler owns nothing else before the guest's node is its own.
func (p *projection) applyTarget(status *v1.VirtualMachineInstanceStatus) {
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

func (p *projection) switchNode(status *v1.VirtualMachineInstanceStatus) {
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

// second truncates a time as the API server does.
func second(t time.Time) *metav1.Time { return new(metav1.NewTime(t.Truncate(time.Second))) }
