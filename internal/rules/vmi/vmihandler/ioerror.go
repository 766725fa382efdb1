package vmihandler

import (
	"fmt"
	"strings"
	"time"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

const (
	// They bound the backoff of a guest that an I/O error has stopped.
	firstResume   = 2 * time.Second
	longestResume = 30 * time.Second
	// settled is how long the guest must run before its disk counts as working: repeated failures are one error.
	settled = 5 * time.Second
)

// Stall is the state of a guest that an I/O error has stopped. The zero value is none. A new virt-handler restores it from
// QEMU's run state, with a new backoff.
//
//	          io-error               Resume
//	(none) ───────────> stopped <────────────────────> running
//	   ^                             io-error             |
//	   '────────── any other run state, or settled ───────'
type Stall struct {
	active   bool
	running  bool
	attempts int
	since    time.Time // of the last change or resume
}

// Next returns the state after a run state was observed.
func (s Stall) Next(state string, now time.Time) Stall {
	switch {
	case state == runstate.IOError && (!s.active || s.running):
		return Stall{active: true, attempts: s.attempts, since: now}
	case state == runstate.IOError:
		return s
	case state == runstate.Running && s.active && !s.running:
		return Stall{active: true, running: true, attempts: s.attempts, since: now}
	case state == runstate.Running && s.active && now.Sub(s.since) < settled:
		return s
	}
	return Stall{}
}

// AfterResume returns the state after a resume.
func (s Stall) AfterResume(now time.Time) Stall {
	if s.active {
		s.attempts++
		s.since = now
	}
	return s
}

// Active reports whether the VMI reports the I/O error.
func (s Stall) Active() bool { return s.active }

// Attempts returns the number of resumes.
func (s Stall) Attempts() int { return s.attempts }

// Resume reports whether to resume the guest now, or the delay until the next decision, 0 for never.
func (s Stall) Resume(paused bool, now time.Time) (due bool, after time.Duration) {
	switch {
	case !s.active:
		return false, 0
	case s.running:
		return false, max(s.since.Add(settled).Sub(now), time.Millisecond)
	case paused:
		return false, 0
	}
	left := s.since.Add(backoff.Delay(firstResume, longestResume, s.attempts+1)).Sub(now)
	return left <= 0, max(left, 0)
}

// FailedDisk is a disk whose I/O error has stopped the guest.
type FailedDisk struct {
	Volume string
	Full   bool // no space for a write
}

func (d FailedDisk) String() string {
	if d.Full {
		return "there is no space left for disk " + d.Volume
	}
	return fmt.Sprintf("reading or writing disk %s failed (I/O error)", d.Volume)
}

const maxNamed = 5

func stallMessage(disks []FailedDisk, paused bool) string {
	var causes []string
	for _, d := range disks[:min(len(disks), maxNamed)] {
		causes = append(causes, d.String())
	}
	switch more := len(disks) - len(causes); {
	case len(disks) == 0:
		causes = []string{"reading or writing one of its disks failed (I/O error)"}
	case more > 0:
		causes = append(causes, fmt.Sprintf("and %d more disks failed", more))
	}
	message := "The guest is stopped: " + strings.Join(causes, "; ") + ". "
	if paused {
		return message + "VMI was paused by user too; when it is unpaused, the guest tries again."
	}
	return message + "It continues by itself when that works again."
}
