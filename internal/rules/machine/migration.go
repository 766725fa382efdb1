package machine

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Markers of a live migration, by its UID. QEMU tells the status of its last migration, and not
// which that was; nor does it tell whether a guest that was paused has run since it arrived. QEMU
// is started with the first as the target of a migration, and virt-handler adds the others, each
// before it does what the marker says (decision 295).
const (
	incomingMarker = "incoming-"
	ranMarker      = "ran-"
	begunMarker    = "migration-"
	doomedMarker   = "doomed-"
	pausedMarker   = "paused-for-"
	leftMarker     = "left-with-"
)

// IncomingMarker is in a QEMU that was started as the target of a migration.
func IncomingMarker(migration types.UID) string { return incomingMarker + string(migration) }

// RanMarker is in a target whose guest may have run: the source must not have it continue.
func RanMarker(migration types.UID) string { return ranMarker + string(migration) }

// BegunMarker is in a source that was told to migrate, or is about to be.
func BegunMarker(migration types.UID) string { return begunMarker + string(migration) }

// DoomedMarker is in a target that is being ended because its guest is not to come: nobody runs the
// guest in it any more.
func DoomedMarker(migration types.UID) string { return doomedMarker + string(migration) }

// PausedMarker is in a source whose guest virt-handler has stopped so that the migration ends, or is
// about to: the guest is to go on if the migration fails.
func PausedMarker(migration types.UID) string { return pausedMarker + string(migration) }

// LeftMarker is in a source whose guest has moved before its memory: the target may run it, or will be told so
// after this. The guest never goes on here, whatever QEMU says of the migration afterwards.
func LeftMarker(migration types.UID) string { return leftMarker + string(migration) }

// Handover is what the markers of migrations say of a QEMU.
type Handover struct {
	// Incoming is the migration that has brought the guest, or will; empty for a guest that
	// was started here. Ran means that it may have run here, Doomed that this QEMU is being
	// ended.
	Incoming    types.UID
	Ran, Doomed bool
	// Begun is the last migration that takes the guest elsewhere; empty for none. Paused means that the
	// guest was stopped for it, Left that it may run at the target although the migration goes on.
	Begun        types.UID
	Paused, Left bool
}

// ReadHandover reads the markers among the names of QEMU's objects.
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

// Outdated are the markers of migrations that are over when another begins.
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

// arrive has QEMU wait for its guest, and leave the guest's CPUs stopped when it is there.
func (b *builder) arrive() {
	b.named("migration", string(b.in.Incoming))
	b.option("S", "")
	b.option("incoming", "defer")
	b.object(Properties{"qom-type": MarkerType, "id": IncomingMarker(b.in.Incoming)})
}
