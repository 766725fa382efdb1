package switchover

import "fmt"

// MirrorState is how far the copies are of the disks that move with the guest because what it
// writes to them is in its pod.
type MirrorState uint8

const (
	// MirrorsUnneeded means that the guest has no such disk.
	MirrorsUnneeded MirrorState = iota
	// MirrorsMissing means that QEMU does not copy all of them.
	MirrorsMissing
	// MirrorsCopy means that there is something left to copy of at least one.
	MirrorsCopy
	// MirrorsReady means that all has been copied but what the guest has written lately.
	MirrorsReady
	// MirrorsFinished means that all have ended after they were ready, without an error. Both
	// sides are the same as long as the guest has not run since.
	MirrorsFinished
	// MirrorsFailed means that at least one has ended with an error.
	MirrorsFailed
)

// Mirrors is what is known of those copies.
type Mirrors struct {
	State MirrorState
	// Begun means that at least one of this migration was begun. A disk is copied once in a
	// migration: what an earlier attempt has left at the target is no beginning.
	Begun bool
	// Left means that QEMU has something left of copies, of this migration or of earlier ones.
	Left bool
	// Error goes with MirrorsFailed: the volume, and what QEMU says.
	Error string
	// Done and Total are in bytes; Total grows with what the guest writes.
	Done, Total int64
}

// Mirror is what QEMU says of the copy of one disk.
type Mirror struct {
	Volume string
	// Status is that of QEMU's job, empty without one; Error is its error.
	Status, Error string
	Done, Total   int64
}

// MirrorsOf sums up the copies of all disks that are to be copied.
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
		all.State = worse(all.State, state)
	}
	return all
}

// worse is what two disks come to: one that has failed counts before one that is missing, and that
// before those that are not as far as others.
func worse(a, b MirrorState) MirrorState {
	switch {
	case a == MirrorsUnneeded:
		return b
	case a == MirrorsFailed || b == MirrorsFailed:
		return MirrorsFailed
	}
	return min(a, b)
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

// broken returns why a migration can't go on with the copies as they are; empty if it can. They
// are finished only while the guest stands still before the switchover.
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

// copiesBroken returns why the copies have come to nothing before memory is sent.
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
