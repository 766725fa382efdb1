package switchover_test

import (
	"errors"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

var errOtherDisks = errors.New("the guest is handed over, and its disks at the target are not what they are at the source")

// copies is the progress of copying the guest's disks; the zero value is a guest without disks to copy.
type copies uint8

const (
	cpNone copies = iota
	cpMissing
	cpRuns
	cpReady
	// cpFinishing was told to end with all writes, and answers that it is ready.
	cpFinishing
	cpFinished
	cpFailed
	// cpEnded was ended, and QEMU has nothing left of it.
	cpEnded
)

var copyNames = [...]string{"none", "missing", "copied", "ready", "finishing", "finished", "failed", "ended"}

// left reports whether QEMU has something left of it.
func (c copies) left() bool { return c > cpMissing && c < cpEnded }

// answers is QEMU's answer about it.
func (c copies) answers() switchover.Mirrors {
	if c == cpNone {
		return switchover.Mirrors{}
	}
	job := switchover.Mirror{Volume: "root", Status: map[copies]string{
		cpRuns: "running", cpReady: "ready", cpFinishing: "ready", cpFinished: "concluded", cpFailed: "concluded",
	}[c]}
	if c == cpFailed {
		job.Error = "Input/output error"
	}
	all := switchover.MirrorsOf([]switchover.Mirror{job})
	all.Left = c.left()
	return all
}

func (s *state) mirrorDisks() {
	if s.src == srcRuns && s.copies == cpMissing {
		s.copies, s.copyLink, s.handlers[source].streams = cpRuns, s.tgt == tgtIncoming && s.connected(), true
	}
}

func (s *state) finishMirrors() {
	if s.copies == cpReady {
		s.copies = cpFinishing
	}
}

func (s *state) endMirrors() {
	if s.copies.left() {
		s.copies, s.copyLink = cpEnded, false
	}
}

// otherDisks returns the error of handing over the guest now.
func (s *state) otherDisks() error {
	if s.src == srcPreSwitchover && s.copies != cpNone && !s.same {
		return errOtherDisks
	}
	return nil
}

// finishes reports whether the copies end while the guest stands still, if that does not take too long.
func (s *state) finishes() bool {
	return s.src == srcPreSwitchover && s.copyLink && (s.copies == cpReady || s.copies == cpFinishing)
}

// copying has the source QEMU's own steps about the disks.
func (t *turn) copying() {
	s := t.s
	if s.src == srcEnded {
		return
	}
	become := func(name string, c copies, same bool) {
		t.goesOn(name, func(to *state) { to.copies, to.same = c, same })
	}
	switch {
	case s.copies == cpRuns && s.copyLink:
		become("source's QEMU has copied the disks", cpReady, false)
	case s.copies == cpFinishing && s.copyLink:
		// Both sides are equal if the guest stands still.
		become("source's QEMU has finished the copies", cpFinished, s.src == srcPreSwitchover)
	case s.copies == cpRuns, s.copies == cpFinishing, s.copies == cpReady && s.src.runs():
		if !s.copyLink {
			become("source's QEMU sees that a copy's stream is cut", cpFailed, false)
		}
	}
}
