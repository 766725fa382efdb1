package switchover

import "fmt"

// MirrorState is the progress of copying the disks whose content is in the guest's pod.
type MirrorState uint8

// The states.
const (
	MirrorsUnneeded MirrorState = iota // the guest has no such disk
	MirrorsMissing                     // at least one has no job
	MirrorsCopy                        // at least one is not ready
	MirrorsReady                       // only the guest's new writes are left to copy
	// MirrorsFinished means that all ended without an error after they were ready: both sides are equal until the guest
	// runs.
	MirrorsFinished
	MirrorsFailed // at least one ended with an error
)

// Mirrors is the state of all copies.
type Mirrors struct {
	State MirrorState
	Begun bool   // this migration has begun a copy; it copies a disk only once
	Left  bool   // QEMU has jobs of this or an earlier migration
	Error string // the volume and QEMU's error, for MirrorsFailed
	// Done and Total are in bytes; Total grows with the guest's writes.
	Done, Total int64
}

// Mirror is the copy of one disk.
type Mirror struct {
	Volume        string
	Status, Error string // of QEMU's job, "" without one
	Done, Total   int64
}

// MirrorsOf combines the copies of all disks.
func MirrorsOf(disks []Mirror) Mirrors {
	var all Mirrors
	for i := range disks {
		d := &disks[i]
		state := d.state()
		all.Begun = all.Begun || d.Status != ""
		all.Done, all.Total = all.Done+max(0, d.Done), all.Total+max(0, d.Total)
		if state == MirrorsFailed && all.Error == "" {
			all.Error = fmt.Sprintf("the copy of volume %s to the target has failed: QEMU reports %s", d.Volume, bounded(d.Error))
		}
		switch {
		case all.State == MirrorsUnneeded:
			all.State = state
		case all.State == MirrorsFailed || state == MirrorsFailed:
			all.State = MirrorsFailed
		default:
			all.State = min(all.State, state) // missing, or the least progress
		}
	}
	return all
}

func (m *Mirror) state() MirrorState {
	switch m.Status {
	case "":
		return MirrorsMissing
	case "ready", "standby":
		return MirrorsReady
	case "concluded":
		if m.Error == "" {
			return MirrorsFinished
		}
		return MirrorsFailed
	case "aborting":
		return MirrorsFailed
	}
	return MirrorsCopy
}

// broken returns why the copies end a migration before the guest is stopped for the switchover, "" for none.
func (m *Mirrors) broken() string {
	switch m.State {
	case MirrorsFailed:
		return m.Error
	case MirrorsMissing:
		return "a disk of the guest is not copied to the target any more"
	case MirrorsFinished, MirrorsCopy:
		return "the copy of a disk to the target has ended before the guest was stopped"
	}
	return ""
}

func (f *SourceFacts) copiesBroken() string {
	m := &f.Mirrors
	switch {
	case !m.Begun:
		return ""
	case !f.Streams:
		return "virt-handler at the source was restarted"
	case f.Convergence.Action == GiveUp:
		return f.Convergence.Reason
	case m.State == MirrorsFailed, m.State == MirrorsFinished:
		return m.broken()
	}
	return ""
}
