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
	Attach          bool   // the claim is bound, or an attachment pod makes it so
	Alone           bool   // the claim allows one pod only, or may not be bindable on the node
	Empty           bool   // the claim is not filled: a pod must only bind it
	Reason, Message string // empty if the claim is bound
}

// Entry is a volume in the VMI's status.
type Entry struct {
	Volume
	Phase           v1.VolumePhase
	PodName         string
	PodUID          types.UID
	Reason, Message string
}

// InUse reports whether the guest, or QEMU for a memory dump, may access a volume in this phase.
func InUse(phase v1.VolumePhase) bool {
	switch phase {
	case v1.HotplugVolumeMounted, v1.VolumeReady, v1.HotplugVolumeDetaching,
		v1.MemoryDumpVolumeInProgress, v1.MemoryDumpVolumeCompleted, v1.MemoryDumpVolumeFailed: // until it is released
		return true
	}
	return false
}

// Pod is an attachment pod of the VMI.
type Pod struct {
	Name    string
	UID     types.UID
	Created time.Time
	Running bool // its container, so all its volumes are available
	// Scheduling means that its claims are bound and the scheduler is about to set its node.
	Scheduling            bool
	Terminating, Finished bool
	Stuck                 bool // it should run by now
	Why                   string
	Cooling               bool // it ended so soon that a successor would end, too
	Elsewhere             bool // the guest is on another node
	Left                  bool // no launcher pod on the pod's node can have its volumes open
	Volumes               []Volume
}

// Stage is a part of the VMI's life.
type Stage int

// The stages.
const (
	Active Stage = iota // the guest runs, or its pod has a node
	Ending              // nothing is plugged; volumes in use stay held
	Frozen              // the guest's node is uncertain; nothing changes
	Moving              // the guest migrates (migration.go)
	Over                // no guest runs
)

// Observed is the input of Decide. Each part may be outdated unless Live.
type Observed struct {
	Stage        Stage
	Move         Move
	Wanted       []Wanted
	Destinations []Destination
	Entries      []Entry
	Record       Record
	Pods         []Pod
	Budget       Budget
	Failures     map[string]string // creation errors by the name of the pod
	Prefix       string            // of the names of this VMI's attachment pods only
	Live         bool              // the API server was asked for the pods, and then for the VMI
	// Maintainers are by claim, read from the API server after the VMI.
	Maintainers       map[string]Maintainer
	MaintainersAsked  bool
	Settled           bool // nothing has changed for a while
	MaxAttachmentPods int  // at rest, for volumes that can share one
}

// Question is a question that only the API server can answer.
type Question string

// NeedPods asks for an observation with Live.
const NeedPods Question = "the attachment pods, and then the VMI"

// Plan either changes the VMI, on condition of the observed version, or acts on pods.
type Plan struct {
	Changed bool
	Needs   Question // to answer first: no other part of the plan may be applied then
	Entries []Entry
	Record  Record
	Create  []AttachmentPod
	Guarded []AttachmentPod // wait for the disruption budget
	Delete  []Pod
}

func contains(list []Volume, v Volume) bool { return slices.Contains(list, v) }
