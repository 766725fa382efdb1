package machine

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Markers of a live migration, with its UID. QEMU reports the status of its last migration, but neither which one that
// was nor whether a paused guest has run since it arrived. A target's QEMU starts with the first marker; virt-handler
// adds the others, each before the step that it records (decision 295).
const (
	incomingMarker = "incoming-"
	ranMarker      = "ran-"
	begunMarker    = "migration-"
	doomedMarker   = "doomed-"
	pausedMarker   = "paused-for-"
	leftMarker     = "left-with-"
)

// IncomingMarker is in a migration's target from its start.
func IncomingMarker(migration types.UID) string { return incomingMarker + string(migration) }

// RanMarker is in a target whose guest may have run: the source must not resume it.
func RanMarker(migration types.UID) string { return ranMarker + string(migration) }

// BegunMarker is in a source that was told to migrate, or is about to be.
func BegunMarker(migration types.UID) string { return begunMarker + string(migration) }

// DoomedMarker is in a target that is being killed: its guest must not run.
func DoomedMarker(migration types.UID) string { return doomedMarker + string(migration) }

// PausedMarker is in a source whose guest virt-handler has stopped for convergence, or is about to: the guest resumes
// if the migration fails.
func PausedMarker(migration types.UID) string { return pausedMarker + string(migration) }

// LeftMarker is in a source in post-copy, before the target is told to run the guest, which never resumes here,
// whatever status QEMU reports later.
func LeftMarker(migration types.UID) string { return leftMarker + string(migration) }

// Handover is the state that the markers record.
type Handover struct {
	// Incoming is the migration that brings the guest, "" for one that was started here. Ran means that it may have run
	// here, Doomed that this QEMU is being killed.
	Incoming    types.UID
	Ran, Doomed bool
	// Begun is the last migration to another node, "" for none. Paused means that the guest was stopped for it, Left
	// that the guest may run at the target before the migration is over.
	Begun        types.UID
	Paused, Left bool
}

// ReadHandover returns the handover that QEMU's objects record.
func ReadHandover(objects map[string]bool) Handover {
	var h Handover
	for name := range objects {
		if uid, ok := strings.CutPrefix(name, incomingMarker); ok {
			h.Incoming, h.Ran, h.Doomed = types.UID(uid), objects[ranMarker+uid], objects[doomedMarker+uid]
		}
		if uid, ok := strings.CutPrefix(name, begunMarker); ok {
			h.Begun, h.Paused, h.Left = types.UID(uid), objects[pausedMarker+uid], objects[leftMarker+uid]
		}
	}
	return h
}

// Arriving reports whether QEMU waits for a guest, or has it and may not run it yet.
func (h Handover) Arriving() bool { return h.Incoming != "" && !h.Ran }

// Outdated returns the markers of earlier migrations when another begins.
func Outdated(objects map[string]bool, begins types.UID) []string {
	var list []string
	for name := range objects {
		for _, marker := range []string{begunMarker, pausedMarker, leftMarker} {
			if uid, ok := strings.CutPrefix(name, marker); ok && uid != string(begins) {
				list = append(list, name)
			}
		}
	}
	return list
}
