package migration

import "time"

// RecoverAgain is how long an attempt may have no effect. QEMU reports a connection at once; a second attempt would end
// the first.
const RecoverAgain = 3 * time.Second

// Recovery times the attempts to resume a broken post-copy. The zero value has none.
type Recovery struct{ lastAttempt time.Time }

// Due reports whether to tell QEMU to resume.
func (r Recovery) Due(now time.Time) bool {
	return r.lastAttempt.IsZero() || now.Sub(r.lastAttempt) >= RecoverAgain
}

// RecordAttempt records that QEMU is about to be told to resume.
func (r *Recovery) RecordAttempt(now time.Time) { r.lastAttempt = now }
