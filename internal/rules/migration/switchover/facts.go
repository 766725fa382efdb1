package switchover

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// Fact is a message between the two sides.
type Fact string

// The facts of the package comment, sent again on every connection.
const (
	Ready    Fact = "Ready"
	Loaded   Fact = "Loaded"
	Released Fact = "Released"
	Ran      Fact = "Ran"
	Never    Fact = "Never"
)

// Record is the VMI's record of a migration. Each write that follows from it is conditional on its resourceVersion.
type Record struct {
	Current bool // migrationState is this migration's

	// Of migrationState; Completed excludes a failed migration.
	Addressed, Started, Failed, Completed, PostCopy bool

	AbortRequested, AbortFailed bool // AbortFailed: the request came too late
	SourceNamed, TargetNamed    bool // activePods has a pod on that node
	Switched                    bool // status.nodeName is the target
	Deleting, Final             bool
}

// Completed reports whether the guest has arrived. KubeVirt's field is also true of a failed migration.
func Completed(m *v1.VirtualMachineInstanceMigrationState) bool { return m.Completed && !m.Failed }

// Open reports whether a migration has neither completed nor failed, false for none. InFlight also covers the time until
// the VMI's node is switched.
func Open(m *v1.VirtualMachineInstanceMigrationState) bool {
	return m != nil && !m.Completed && !m.Failed
}

// Arrived reports whether the VMI's last migration has completed and the VMI's node is its target.
func Arrived(status *v1.VirtualMachineInstanceStatus) bool {
	m := status.MigrationState
	return m != nil && Completed(m) && status.NodeName == m.TargetNode
}

// InFlight reports whether the guest may be on either node of the VMI's last migration.
func InFlight(status *v1.VirtualMachineInstanceStatus) bool {
	m := status.MigrationState
	return m != nil && !m.Failed && !Arrived(status)
}

// RecordOf returns the VMI's record.
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

// Process is the state of a pod's QEMU.
type Process uint8

// The states of a process.
const (
	ProcessUnknown    Process = iota // neither virt-launcher nor the pod's end was observed
	ProcessNotStarted                // virt-launcher has started no QEMU
	ProcessRuns                      // QEMU runs and its monitor responds
	ProcessEnded                     // QEMU or its pod has ended; a pod never starts QEMU again
)

// Exit is the end of a QEMU, from virt-launcher or the container's termination message.
type Exit struct {
	// Known means that virt-launcher reported it. A killed virt-launcher reports nothing, and a report is lost with its
	// pod.
	Known bool
	// Sent means that QEMU completed an outgoing migration (event MIGRATION) and has not run again since (RESUME).
	Sent bool
	Ran  bool // QEMU has run its guest (event RESUME, or started without -S)
}

// ExitOf converts virt-launcher's report, nil for none. arrives means that this QEMU is a target, for which only Ran
// counts. A source that lost its monitor before it reported the migration is unknown: it may have sent the guest.
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
