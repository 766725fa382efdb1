package hotplug

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Volume is a hotplugged volume on its claim.
type Volume struct {
	Name  string `json:"name"`
	Claim string `json:"claim"`
}

// Wanted is a volume that the VMI's spec asks for.
type Wanted struct {
	Volume
	// Attach reports whether an attachment pod may be made: the claim is bound, or is bound by
	// the pod that uses it.
	Attach bool
	// Alone reports whether the volume must not share an attachment pod: only one pod may use the
	// claim, or it is not sure yet that the claim can be bound on the node.
	Alone bool
	// Empty reports whether the claim is not filled: its attachment pod is to bind it only.
	Empty bool
	// Reason and Message say what a claim that is not bound waits for; without a
	// reason the claim is bound.
	Reason, Message string
}

// Entry is what the VMI's status says of a volume.
type Entry struct {
	Volume
	Phase           v1.VolumePhase
	PodName         string
	PodUID          types.UID
	Reason, Message string
}

// InUse reports whether the guest may be using a volume in this phase.
func InUse(phase v1.VolumePhase) bool {
	switch phase {
	case v1.HotplugVolumeMounted, v1.VolumeReady, v1.HotplugVolumeDetaching:
		return true
	}
	return false
}

// Pod is an attachment pod of the VMI.
type Pod struct {
	Name    string
	UID     types.UID
	Created time.Time
	// Running reports whether its container runs, and with it that every volume is there.
	Running bool
	// Scheduling reports whether the scheduler has had its claims bound and gives it its node next.
	Scheduling bool
	// Terminating reports whether it is being deleted, Finished whether it has ended.
	Terminating, Finished bool
	// Stuck reports whether it should have been running by now, and Why what is in its way.
	Stuck bool
	Why   string
	// Cooling reports whether it ended so soon that its successor would do the same.
	Cooling bool
	// Elsewhere reports whether it is on another node than the guest, as a migration leaves it, and
	// Left whether no launcher pod of the VMI there can have its volumes open.
	Elsewhere, Left bool
	Volumes         []Volume
}

// Stage is how far the VMI is, as far as its volumes care.
type Stage int

// The stages of a VMI.
const (
	// Active: the guest runs, or its pod has a node.
	Active Stage = iota
	// Ending: nothing more is brought in, what is in use stays held.
	Ending
	// Frozen: it is not known well enough where the guest is; nothing changes.
	Frozen
	// Moving: the guest moves to another node (migration.go).
	Moving
	// Over: no guest runs any more.
	Over
)

// Observed is what a decision is made on. Each part may be stale unless Live.
type Observed struct {
	Stage  Stage
	Move   Move
	Wanted []Wanted
	// Destinations are the volumes whose disks are copied in the move that is under way.
	Destinations []Destination
	Entries      []Entry
	Record       Record
	Pods         []Pod
	// Budget keeps evictions from the pods.
	Budget Budget
	// Failures says why attachment pods could not be made, by name.
	Failures map[string]string
	// Prefix begins the name of every attachment pod of this VMI and of no other.
	Prefix string
	// Live reports whether the API server itself was asked for the pods, and then for
	// the VMI.
	Live bool
	// Maintainers are the maintenance pods that may write to claims which volumes are to be plugged from, by claim, as the
	// API server said after it had the VMI as it is observed; MaintainersAsked reports whether it was asked.
	Maintainers      map[string]Maintainer
	MaintainersAsked bool
	// Settled reports whether nothing has changed for a while: a time to merge attachment pods.
	Settled bool
	// MaxAttachmentPods is how many attachment pods may stay at rest, those of volumes that can't
	// share one aside.
	MaxAttachmentPods int
}

// Question is something that only the API server can answer.
type Question string

// NeedPods asks for the attachment pods and then for the VMI: an observation with Live.
const NeedPods Question = "the attachment pods, and then the VMI"

// Plan is what is to be done. A plan that changes the VMI does nothing else:
// the change is written on condition of the observed version, and what it
// brings is planned anew on the answer.
type Plan struct {
	Changed bool
	// Needs is what has to be asked before the VMI is changed (NeedMaintainers), or before any pod is made or
	// deleted: then this is no plan, and another one is to be made.
	Needs Question
	// Entries and Record are the VMI's as they should be.
	Entries []Entry
	Record  Record
	// Create are attachment pods whose pods are to be made, Guarded those whose pods are to
	// be made as soon as the VMI's disruption budget is right.
	Create  []AttachmentPod
	Guarded []AttachmentPod
	Delete  []Pod
}

func contains(list []Volume, v Volume) bool { return slices.Contains(list, v) }
