package migration

import "time"

// recoverAgain is how long a new connection may remain without effect. QEMU reports a connection at once; a second
// attempt during the first would end it.
const recoverAgain = 3 * time.Second

// Recovery is the resumption of a broken post-copy. The zero value is one that has not begun.
type Recovery struct {
	// told is when QEMU was last told to resume.
	told time.Time
}

// Due reports whether to tell QEMU to resume a post-copy that is broken: again if that had no effect.
func (r Recovery) Due(now time.Time) bool { return r.told.IsZero() || now.Sub(r.told) >= recoverAgain }

// Begins records that QEMU is about to be told to resume.
func (r *Recovery) Begins(now time.Time) { r.told = now }
