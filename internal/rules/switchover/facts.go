package switchover

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// Fact is what one side of a migration tells the other. The zero value is nothing.
type Fact string

// The facts; the package comment says what each means. Each is told again on every new
// connection, as long as the decision says so.
const (
	Ready    Fact = "Ready"
	Released Fact = "Released"
	Ran      Fact = "Ran"
	Never    Fact = "Never"
)

// Record is what the VMI says of a migration. Every write that a step leads to is
// conditional on the resourceVersion of the VMI that the Record was read from.
type Record struct {
	// Current means that migrationState is that of this migration.
	Current bool
	// Addressed, Started and Failed mean that targetNodeAddress, startTimestamp and failed are
	// recorded, Completed that completed is, without failed; PostCopy that the mode is PostCopy.
	Addressed, Started, Failed, Completed, PostCopy bool
	// AbortRequested is virt-controller's; AbortFailed means that the source has answered that
	// it came too late.
	AbortRequested, AbortFailed bool
	// SourceNamed and TargetNamed mean that activePods has a pod on the source's node, and on
	// the target's.
	SourceNamed, TargetNamed bool
	// Switched means that status.nodeName is the target's node.
	Switched bool
	// Deleting means that the VMI is being deleted, Final that its phase is final.
	Deleting, Final bool
}

// Completed reports whether a migration has brought the guest to its target. In KubeVirt's API the
// field completed means only that a migration is over: it is true of one that has failed, too.
func Completed(m *v1.VirtualMachineInstanceMigrationState) bool { return m.Completed && !m.Failed }

// RecordOf returns what a VMI says of a migration.
func RecordOf(vmi *v1.VirtualMachineInstance, migration types.UID) Record {
	r := Record{Deleting: vmi.DeletionTimestamp != nil, Final: vmi.IsFinal()}
	m := vmi.Status.MigrationState
	if m == nil || m.MigrationUID != migration {
		return r
	}
	r.Current = true
	r.Addressed, r.Started = m.TargetNodeAddress != "", m.StartTimestamp != nil
	r.Failed, r.Completed, r.PostCopy = m.Failed, Completed(m), m.Mode == v1.MigrationPostCopy
	r.AbortRequested, r.AbortFailed = m.AbortRequested, m.AbortStatus == v1.MigrationAbortFailed
	r.Switched = vmi.Status.NodeName == m.TargetNode
	for _, node := range vmi.Status.ActivePods {
		r.SourceNamed = r.SourceNamed || node == m.SourceNode
		r.TargetNamed = r.TargetNamed || node == m.TargetNode
	}
	return r
}

// Process is what is known of the QEMU of a launcher pod.
type Process uint8

const (
	// ProcessUnknown means that neither virt-launcher nor the pod's end has said anything yet.
	ProcessUnknown Process = iota
	// ProcessNotStarted means that virt-launcher has started no QEMU.
	ProcessNotStarted
	// ProcessRuns means that QEMU runs and answers on its monitor.
	ProcessRuns
	// ProcessEnded means that QEMU has ended, or that nothing of its pod runs any more. QEMU
	// is never started again in the same pod.
	ProcessEnded
)

// Exit is what is known of a QEMU that has ended. virt-launcher knows it from QEMU's
// events, which it has all read when QEMU has ended; it says it in the exit that virt-handler
// hears, and that is the container's termination message.
type Exit struct {
	// Known means that virt-launcher has said how QEMU ended. A virt-launcher that is killed
	// says nothing, and what it said is gone together with its pod.
	Known bool
	// Sent means that QEMU had run, then completed an outgoing migration (event MIGRATION
	// with status completed), and has not run again since (RESUME).
	Sent bool
	// Ran means that QEMU has run its guest (event RESUME, or started without -S).
	Ran bool
}

// ExitOf returns what virt-launcher has said of the end of a QEMU; exit is nil for nothing. arrives
// means that the migration was to bring the guest to this QEMU: then nothing counts as known but
// whether the guest has run. Of a QEMU that the guest was in, all else is unknown when
// virt-launcher had lost its monitor: it may have sent the guest.
func ExitOf(exit *launch.Exit, arrives bool) Exit {
	if exit == nil {
		return Exit{}
	}
	said := exit.Incoming == launch.IncomingRan || exit.Incoming == launch.IncomingNeverRan
	sent := exit.Reason == launch.ReasonMigrated
	if arrives && !said || !arrives && exit.Unheard && !sent {
		return Exit{}
	}
	return Exit{Known: true, Sent: sent, Ran: exit.Incoming != launch.IncomingNeverRan}
}

func (e Exit) sent() bool { return e.Known && e.Sent }

func (e Exit) ran() bool { return e.Known && e.Ran }
