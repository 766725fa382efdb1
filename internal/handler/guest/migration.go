package guest

import (
	"math"
	"strings"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// Migration is a QEMU's state as a migration's source or target.
type Migration struct {
	machine.Handover
	// RunState is QEMU's own; guestRunState derives the guest's.
	RunState string
	// Status belongs to Begun or, without one, to Incoming.
	Status        migrationstatus.Status
	Failure       string
	Progress      Progress
	PostCopyBytes float64 // of memory that a source has sent after its guest
}

// Progress is the progress of a source's migration.
type Progress struct {
	Total, Transferred, Remaining float64 // bytes of memory
	DirtyRate, Rate               float64 // bytes per second that the guest changes, and that QEMU sends
	// Downtime is how long the guest has been stopped, Expected how long it would be from now.
	Elapsed, Downtime, Expected time.Duration
	Rounds                      float64 // passes through the memory
	Throttle                    float64 // percentage of time taken from the guest
}

// UnderWay reports whether QEMU will leave the status by itself or on a command.
func (m *Migration) UnderWay() bool { return m.Status.UnderWay() }

// measurable reports whether the guest has not left, and is about neither to leave nor to arrive.
func (m *Migration) measurable() bool {
	sending := m.Status == migrationstatus.Setup || m.Status == migrationstatus.WaitUnplug || m.Status == migrationstatus.Active
	gone := m.Begun != "" && m.Status == migrationstatus.Completed
	return !m.Arriving() && !gone && (sending || !m.Status.UnderWay())
}

// HasArrived reports whether a target has got its guest.
func (m *Migration) HasArrived() bool {
	return m.Incoming != "" && (m.Ran || m.RunState != runstate.InMigrate && (m.Status == migrationstatus.Completed || m.Status.PostCopy()))
}

// HasSentGuest reports whether a source has sent its guest.
func (m *Migration) HasSentGuest() bool {
	return m.Begun != "" && m.RunState == runstate.PostMigrate && m.Status == migrationstatus.Completed
}

type migrationInfo struct {
	Status   string  `json:"status"`
	Error    string  `json:"error-desc"`
	Total    float64 `json:"total-time"`
	Downtime float64 `json:"downtime"`
	Expected float64 `json:"expected-downtime"`
	Throttle float64 `json:"cpu-throttle-percentage"`
	RAM      struct {
		Total       float64 `json:"total"`
		Transferred float64 `json:"transferred"`
		Remaining   float64 `json:"remaining"`
		PageSize    float64 `json:"page-size"`
		DirtyRate   float64 `json:"dirty-pages-rate"`
		Mbps        float64 `json:"mbps"`
		Rounds      float64 `json:"dirty-sync-count"`
		PostCopy    float64 `json:"postcopy-bytes"`
	} `json:"ram"`
}

const (
	// maxFigure bounds QEMU's figures: a guest may have taken QEMU over.
	maxFigure = 1 << 60
	// These bound QEMU's texts in bytes.
	maxFailure = 512
	maxStatus  = 64
)

// Truncate bounds a text of QEMU's.
func Truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
}

func clamp(f float64) float64 { return math.Max(0, math.Min(maxFigure, f)) }

func milliseconds(f float64) time.Duration {
	return time.Duration(math.Min(clamp(f), float64(math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
}

// runState is QEMU's own.
func migrationOf(info migrationInfo, runState string, objects map[string]bool) Migration {
	m := Migration{
		Handover: machine.ReadHandover(objects), RunState: runState,
		Status: migrationstatus.Status(info.Status[:min(len(info.Status), maxStatus)]),
		Progress: Progress{
			Total: clamp(info.RAM.Total), Transferred: clamp(info.RAM.Transferred), Remaining: clamp(info.RAM.Remaining),
			DirtyRate: clamp(info.RAM.DirtyRate * info.RAM.PageSize), Rate: clamp(info.RAM.Mbps * 1e6 / 8),
			Elapsed: milliseconds(info.Total), Downtime: milliseconds(info.Downtime), Expected: milliseconds(info.Expected),
			Rounds: clamp(info.RAM.Rounds), Throttle: math.Min(100, clamp(info.Throttle)),
		},
		PostCopyBytes: clamp(info.RAM.PostCopy),
	}
	if m.Status == migrationstatus.Failed {
		m.Failure = Truncate(info.Error)
	}
	if m.Begun != "" && m.Status == migrationstatus.Completed && runState != runstate.PostMigrate && !isTransient(runState) {
		// This is the end of an earlier migration: the marked one has not begun. A QEMU that completes one leaves
		// finish-migrate only after it reports the status.
		m.Status = migrationstatus.None
	}
	return m
}

func (m *Migration) endedAtSource() bool {
	return m.Status == migrationstatus.Failed || m.Status == migrationstatus.Canceled
}

// stoppedForMigration reports whether virt-handler has stopped a source's guest, also after its migration has failed.
func (m *Migration) stoppedForMigration() bool {
	return runstate.Of(m.RunState).Reason == runstate.ReasonPausedByUser || m.RunState == runstate.PostMigrate && m.endedAtSource()
}

// pausedMarkerLeftOver reports whether PausedMarker must be removed: the guest runs and is not about to be stopped.
func (m *Migration) pausedMarkerLeftOver() bool {
	return m.Paused && !m.UnderWay() && runstate.Of(m.RunState).Outlook == runstate.Runs
}

// guestRunState derives the guest's run state from QEMU's. A guest that has not arrived is inmigrate. QEMU reports
// postmigrate for a guest that a disk error stopped just before a failed handover: it has an I/O error.
func guestRunState(m Migration) string {
	switch {
	case m.Arriving() && runstate.Of(m.RunState).Outlook != runstate.Over:
		return runstate.InMigrate
	case m.Left && runstate.Of(m.RunState).Outlook == runstate.Waits:
		return runstate.PostMigrate
	case m.Left:
		return m.RunState
	case m.Paused && m.stoppedForMigration():
		return runstate.PausedToMigrate
	case m.RunState == runstate.PostMigrate && m.Begun != "" && m.endedAtSource():
		return runstate.IOError
	}
	return m.RunState
}
