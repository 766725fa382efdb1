package migration

import (
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// recoverAgain is how long a new connection may remain without effect. QEMU reports a connection at once; a second
// attempt during the first would end it.
const recoverAgain = 3 * time.Second

// Recovery is the resumption of a broken post-copy. The zero value is one that has not begun.
type Recovery struct {
	// told is when QEMU was last told to resume; zero once it has resumed.
	told time.Time
}

// Due reports whether to tell QEMU to resume a broken post-copy: once for each break, and again if that had no effect.
func (r *Recovery) Due(status migrationstatus.Status, now time.Time) bool {
	if status != migrationstatus.PostCopyPaused {
		r.told = time.Time{}
		return false
	}
	return r.told.IsZero() || now.Sub(r.told) >= recoverAgain
}

// Begins records that QEMU is about to be told to resume.
func (r *Recovery) Begins(now time.Time) { r.told = now }
