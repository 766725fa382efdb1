package hotplug

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Volume is a hotplugged volume.
type Volume struct {
	Name  string `json:"name"`
	Claim string `json:"claim"`
}

// Wanted is a volume in the VMI's spec.
type Wanted struct {
	Volume
	// Attach means that the claim is bound, or an attachment pod lets it be bound.
	Attach bool
	// Alone means that the claim allows one pod only, or may not be bindable on the node.
	Alone bool
	// Empty means that the claim is not filled: a pod must only bind it.
	Empty bool
	// Without a reason the claim is bound.
	Reason, Message string
}

// Entry is a volume in the VMI's status.
type Entry struct {
	Volume
	Phase           v1.VolumePhase
	PodName         string
	PodUID          types.UID
	Reason, Message string
}

// InUse reports whether the guest may use a volume in this phase.
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
	// Running means that its container runs; all its volumes are available then.
	Running bool
	// Scheduling means that its claims are bound and the scheduler is about to set its node.
	Scheduling            bool
	Terminating, Finished bool
	// Stuck means that it should be running by now; Why is the obstacle.
	Stuck bool
	Why   string
	// Cooling means that it ended so soon that a successor would end, too.
	Cooling bool
	// Elsewhere means that the guest is on another node, Left that no launcher pod of the VMI there
	// can have its volumes open.
	Elsewhere, Left bool
	Volumes         []Volume
}

// Stage is a part of the VMI's life.
type Stage int

// The stages.
const (
	// Active: the guest runs, or its pod has a node.
	Active Stage = iota
	// Ending: nothing is plugged any more; volumes in use stay held.
	Ending
	// Frozen: the guest's node is uncertain; nothing changes.
	Frozen
	// Moving: the guest migrates (migration.go).
	Moving
	// Over: no guest runs any more.
	Over
)

// Observed is the input of Decide. Each part may be stale unless Live.
type Observed struct {
	Stage        Stage
	Move         Move
	Wanted       []Wanted
	Destinations []Destination
	Entries      []Entry
	Record       Record
	Pods         []Pod
	Budget       Budget
	// Failures are creation errors by the name of the pod.
	Failures map[string]string
	// Prefix begins the names of this VMI's attachment pods only.
	Prefix string
	// Live means that the API server was asked for the pods, and then for the VMI.
	Live bool
	// Maintainers has the maintenance pods by claim, read from the API server after the VMI.
	Maintainers      map[string]Maintainer
	MaintainersAsked bool
	// Settled means that nothing has changed for a while.
	Settled bool
	// MaxAttachmentPods limits the pods at rest of volumes that can share one.
	MaxAttachmentPods int
}

// Question is one that only the API server can answer.
type Question string

// NeedPods asks for an observation with Live.
const NeedPods Question = "the attachment pods, and then the VMI"

// Plan either changes the VMI, on condition of the observed version, or acts on pods.
type Plan struct {
	Changed bool
	// Needs is to be answered first. No other part of the plan may be applied then.
	Needs   Question
	Entries []Entry
	Record  Record
	// Guarded wait for the disruption budget.
	Create  []AttachmentPod
	Guarded []AttachmentPod
	Delete  []Pod
}

func contains(list []Volume, v Volume) bool { return slices.Contains(list, v) }
