package vmistatus

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// Project returns the VMI's status with the writer's facts applied. It shares no memory with the VMI.
func Project(vmi *v1.VirtualMachineInstance, by Writer, f Facts) v1.VirtualMachineInstanceStatus {
	status := *vmi.Status.DeepCopy()
	if by == Controller && f.Maintain != nil {
		return maintain(vmi, f)
	}
	if StageOf(status.Phase) == Ended {
		return status
	}
	p := projection{Facts: f, vmi: vmi, stage: StageOf(status.Phase)}
	if by == TargetHandler {
		p.applyTarget(&status)
		return status
	}
	p.setPhase(&status)
	p.migrate(&status)
	p.moveVolumes(&status)
	if h := p.HandOver; h != nil {
		status.NodeName = h.Node
		status.ActivePods = map[types.UID]string{h.Pod: h.Node}
		status.RuntimeUser = h.User
		status.QOSClass = new(h.QOS)
		status.LauncherContainerImageVersion = h.Image
	}
	p.describe(&status)
	p.next = &status
	for _, rule := range conditionRules {
		rule.of(&p).apply(&status.Conditions, rule.kind, f.Now)
	}
	return status
}

type projection struct {
	Facts
	vmi   *v1.VirtualMachineInstance
	stage Stage                            // of the current status
	next  *v1.VirtualMachineInstanceStatus // complete except for its conditions
}

func (p *projection) current(kind v1.VirtualMachineInstanceConditionType) v1.VirtualMachineInstanceCondition {
	if c := condition.Find(p.vmi.Status.Conditions, kind); c != nil {
		return *c
	}
	return v1.VirtualMachineInstanceCondition{}
}

func (p *projection) setPhase(status *v1.VirtualMachineInstanceStatus) {
	created := p.vmi.CreationTimestamp.Time
	_, running := p.Guest.Get()
	switch {
	case p.End != nil && p.End.Failed:
		status.Reason = p.End.Reason
		enter(status, v1.Failed, created, p.Now)
	case p.End != nil:
		enter(status, v1.Succeeded, created, p.Now)
	case p.HandOver != nil:
		enter(status, v1.Scheduling, created, p.HandOver.Created)
		enter(status, v1.Scheduled, created, p.Now)
	case running:
		enter(status, v1.Running, created, p.Now)
	case p.Wait.Phase != "" && p.stage == Waiting:
		if status.Phase == lock.Phase {
			begin(status, v1.Pending, p.Now) // a VMI that may start again is like a new one
		}
		enter(status, p.Wait.Phase, created, p.Now)
	}
}

var phases = []v1.VirtualMachineInstancePhase{
	v1.VmPhaseUnset, v1.Pending, lock.Phase, v1.Scheduling, v1.Scheduled, v1.Running, v1.Succeeded, v1.Failed,
}

// Pending needs no separate write: it began with the VMI's creation.
func enter(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase, created, now time.Time) {
	if slices.Index(phases, phase) <= slices.Index(phases, status.Phase) {
		return
	}
	if status.Phase == v1.VmPhaseUnset && phase != v1.Pending {
		stamp(status, v1.Pending, created)
	}
	status.Phase = phase
	stamp(status, phase, now)
}

func stamp(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase, at time.Time) {
	status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps, v1.VirtualMachineInstancePhaseTransitionTimestamp{
		Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at.Truncate(time.Second)),
	})
}

func (p *projection) describe(status *v1.VirtualMachineInstanceStatus) {
	g, running := p.Guest.Get()
	if !running || p.End != nil {
		return
	}
	d := &g.Details
	if d.Machine != nil {
		status.Machine = d.Machine
	}
	if d.Memory != nil {
		status.Memory = d.Memory
	}
	status.CurrentCPUTopology = d.CPUTopology
	status.SelinuxContext = d.SELinuxContext
	status.Interfaces = d.Interfaces
	status.VolumeStatus = d.Volumes
	status.MigrationMethod = d.MigrationMethod
	status.MigrationTransport = d.MigrationTransport
	status.GuestOSInfo = d.OS
	status.FSFreezeStatus = ""
	if d.Frozen {
		status.FSFreezeStatus = frozen
	}
}

const frozen = "frozen"

// verdict is a rule's result for a condition: its new value, nil to remove it, or not known.
type verdict struct {
	known bool
	want  *v1.VirtualMachineInstanceCondition
}

var (
	unknown = verdict{}
	absent  = verdict{known: true}
)

func isTrue(reason, message string) verdict  { return is(corev1.ConditionTrue, reason, message) }
func isFalse(reason, message string) verdict { return is(corev1.ConditionFalse, reason, message) }

func is(status corev1.ConditionStatus, reason, message string) verdict {
	return verdict{known: true, want: &v1.VirtualMachineInstanceCondition{Status: status, Reason: reason, Message: message}}
}

// condition.Set keeps LastProbeTime, so apply sets the verdict's afterwards.
func (v verdict) apply(list *[]v1.VirtualMachineInstanceCondition, kind v1.VirtualMachineInstanceConditionType, now time.Time) {
	switch {
	case !v.known:
	case v.want == nil:
		condition.Drop(list, kind)
	default:
		want := *v.want
		want.Type = kind
		condition.Set(list, want, now)
		if !want.LastProbeTime.IsZero() {
			condition.Find(*list, kind).LastProbeTime = want.LastProbeTime
		}
	}
}
