package disks

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	migrations "drydock.dev/drydock/internal/rules/migration"
)

// Seen is the state of the guest's disks. Its maps are not modified.
type Seen struct {
	inquiry concern.Inquiry
	disks   map[string]diskhotplug.Disk // QEMU's last answer, nil before the first
	tried   nodehotplug.Attempts
	opening map[string]bool
	// They are the pods in which the disks were opened to be plugged, and to be verified.
	opened, verified map[string]types.UID
	// asked has the volumes that the guest was asked to release, refused the devices that it does not release.
	asked, refused map[string]bool
	growing        growing
}

func newSeen() Seen {
	return Seen{
		opening: map[string]bool{}, opened: map[string]types.UID{}, verified: map[string]types.UID{},
		asked: map[string]bool{}, refused: map[string]bool{}, growing: newGrowing(),
	}
}

func (s *Seen) clone() Seen {
	next := *s
	next.disks, next.opening, next.opened, next.verified = maps.Clone(s.disks), maps.Clone(s.opening), maps.Clone(s.opened), maps.Clone(s.verified)
	next.asked, next.refused, next.growing = maps.Clone(s.asked), maps.Clone(s.refused), s.growing.clone()
	return next
}

// A guest keeps its disks while it is being migrated.
func frozen(r *concern.Round) bool { return r.Arrival == nil && migrations.InFlight(r.VMI) }

// The disks of an ending guest stay as they are.
func ending(r *concern.Round) bool {
	return r.Arrival == nil && (r.VMI.DeletionTimestamp != nil || r.VMI.IsFinal())
}

func (s *Seen) decisions(r *concern.Round) []nodehotplug.Decision {
	o := nodehotplug.Observed{
		VMI: r.VMI, AttachmentPods: r.AttachmentPods, Disks: s.disks, Opened: s.opened, Verified: s.verified, Halted: r.Halted,
	}
	if to := r.Arrival; to != nil {
		o.VMI, o.Halted, o.Arriving, o.Places, o.Copied = to.VMI, true, true, to.Places, to.Copied
		o.Record, _ = hotplug.Arrivals(to.VMI, r.AttachmentPods)
		return nodehotplug.Decide(o)
	}
	// An unreadable record hands nothing over.
	o.Record, _ = hotplug.RecordOf(r.VMI)
	return nodehotplug.Decide(o)
}

// fixed reports whether the disks no longer change in a migration: the guest may release none.
func (s *Seen) fixed(r *concern.Round) bool {
	for volume := range s.asked {
		if !s.refused[machine.DiskID(volume)] {
			return false
		}
	}
	return frozen(r) && !s.inquiry.Outdated() && s.disks != nil
}
