// Package starttrace makes the trace of one guest's start: a span for each stage, from the facts that its node knows.
//
// The IDs follow from the VMI's UID and the stages' names. So no context is passed between components, each can send its
// own spans, and a span that is sent twice is the same. The package must not know how spans are sent.
//
//	VMI        pod      on the node  process   connected             monitor     Running
//	 |-- pod ---|-- bind --|-- sandbox --|-- virt-launcher --|  |-- QEMU --|         |
//	 |          |          |             |                   |- network -|  |-------- first line --|
//	 |- admission (virt-api)                                 |- disks ---|
package starttrace

import (
	"crypto/sha256"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// The names of spans. Start is the parent of the others.
const (
	Start     = "VM start"
	Admission = "admission"
	Pod       = "pod"
	Bind      = "bind"
	Sandbox   = "sandbox"
	Launcher  = "virt-launcher"
	Network   = "network"
	Disks     = "disks"
	QEMU      = "QEMU"
	FirstLine = "first line"
)

// Interval is the time of a stage. It is unknown if End is zero.
type Interval struct{ Begin, End time.Time }

// Facts are all that is known about a start. The zero time is unknown.
type Facts struct {
	Namespace, Name   string
	UID               types.UID
	Node, Accelerator string

	// Kubernetes cuts these times to whole seconds. They are by the clocks of others.
	Created, PodCreated, Scheduled time.Time

	// The times below are by the node's clock.

	// Shown is when virt-handler first saw the VMI, LauncherStarted that of virt-launcher's process.
	Shown, LauncherStarted time.Time
	// Connected is when virt-launcher was connected. After a restart of virt-handler, that is not the first time.
	Connected time.Time
	// They are unknown if an earlier virt-handler started QEMU.
	Network, Disks, QEMU Interval
	// Running is when the VMI's phase became Running.
	Running   time.Time
	FirstLine time.Time // of the serial console
	// Mute means that there will be no first line.
	Mute bool
	// Ended is set if the guest has ended or never ran, with the status's reason.
	Ended  time.Time
	Reason string
}

// Traced reports whether the start of a VMI that virt-handler sees first in this phase has a trace: a guest that runs
// already has started, or arrives by a migration.
func Traced(phase v1.VirtualMachineInstancePhase) bool {
	switch phase {
	case v1.Running, v1.Succeeded, v1.Failed:
		return false
	}
	return true
}

// lineWait bounds the wait for the first line: most guests write one within seconds, and others never do.
const lineWait = time.Minute

// Due reports whether the facts are complete, or else in which time they will be; 0 for unknown.
func (f *Facts) Due(now time.Time) (due bool, after time.Duration) {
	switch {
	case !f.Ended.IsZero():
		return true, 0
	case f.Running.IsZero():
		return false, 0
	case f.Mute || !f.FirstLine.IsZero():
		return true, 0
	}
	after = lineWait - now.Sub(f.Running)
	return after <= 0, max(0, after)
}

// TraceID returns the ID of the trace of a VMI's start: the VMI's UID without its dashes.
func TraceID(uid types.UID) [16]byte {
	if id, err := uuid.Parse(string(uid)); err == nil && id != uuid.Nil {
		return id
	}
	sum := sha256.Sum256([]byte(uid))
	return [16]byte(sum[:16])
}

// SpanID returns the ID of a span of that trace.
func SpanID(uid types.UID, name string) [8]byte {
	id := TraceID(uid)
	sum := sha256.Sum256(append(id[:], name...))
	return [8]byte(sum[:8])
}
