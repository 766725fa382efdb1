// Package migrationstatus has the names of QEMU's migration statuses (query-migrate, and the event MIGRATION), and
// virt-launcher's one rule about them. It must not query QEMU. Package switchover decides what a status means for a
// migrating guest; virt-launcher can't import it, since every VM pays for the code that virt-launcher links.
package migrationstatus

import "time"

// Status is QEMU's migration status, which QEMU keeps until the next migration.
type Status string

// A QEMU that has never migrated reports None or an empty status.
const (
	None          Status = "none"
	Setup         Status = "setup"
	WaitUnplug    Status = "wait-unplug"
	Active        Status = "active"
	PreSwitchover Status = "pre-switchover"
	Device        Status = "device"
	// PostCopyDevice is PostCopyActive before the target can run, since QEMU 10.1.
	PostCopyDevice       Status = "postcopy-device"
	PostCopyActive       Status = "postcopy-active"
	PostCopyPaused       Status = "postcopy-paused"
	PostCopyRecoverSetup Status = "postcopy-recover-setup"
	PostCopyRecover      Status = "postcopy-recover"
	Canceling            Status = "cancelling" //nolint:misspell // QEMU's word
	Canceled             Status = "cancelled"  //nolint:misspell // QEMU's word
	Failed               Status = "failed"
	Completed            Status = "completed"
)

// PostCopy reports whether the guest's memory follows the guest.
func (s Status) PostCopy() bool {
	switch s {
	case PostCopyDevice, PostCopyActive, PostCopyPaused, PostCopyRecoverSetup, PostCopyRecover:
		return true
	}
	return false
}

// Revocable reports whether a post-copy's stream is whole: the guest can be brought back if it has not run at the target.
func (s Status) Revocable() bool { return s == PostCopyDevice || s == PostCopyActive }

// UnderWay reports whether the migration has not ended: QEMU will leave the status, or waits in it for a command.
func (s Status) UnderWay() bool {
	switch s {
	case "", None, Completed, Failed, Canceled:
		return false
	}
	return true
}

// StreamBroken reports whether the stream of a target's post-copy is broken after QEMU has reported s. A QEMU that was told
// to wait for another connection reports Setup (7.2) or PostCopyRecoverSetup: nothing has changed then.
func StreamBroken(before bool, s Status) bool {
	return s == PostCopyPaused || before && (s == Setup || s == PostCopyRecoverSetup)
}

// Unattended is how long a guest waits for its switchover without a virt-handler. A virt-handler needs milliseconds; a new
// one starts within seconds, or not at all.
const Unattended = 2 * time.Second

// CancelUnattended reports whether virt-launcher cancels the migration (migrate_cancel), so that the guest continues here.
// Only virt-handler can complete it; without is the time since it went away, or since QEMU entered the status. QEMU decides
// whether the cancel is in time.
func CancelUnattended(s Status, without time.Duration) bool {
	return s == PreSwitchover && without >= Unattended
}
