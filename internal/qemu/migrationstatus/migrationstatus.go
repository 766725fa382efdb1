// Package migrationstatus has the names of QEMU's migration statuses (query-migrate, and the
// event MIGRATION), and the one rule about them that virt-launcher acts on.
//
// It owns those names and nothing else: it asks no QEMU. What a status means for a guest that
// moves is decided in package switchover; virt-launcher can't import that, since every VM
// pays for what it links.
package migrationstatus

import "time"

// Status is where QEMU is with a migration. QEMU keeps the status of the last migration until
// the next one begins.
type Status string

// The statuses, in QEMU's words. A QEMU that has never migrated says none, or nothing.
const (
	None          Status = "none"
	Setup         Status = "setup"
	WaitUnplug    Status = "wait-unplug"
	Active        Status = "active"
	PreSwitchover Status = "pre-switchover"
	Device        Status = "device"
	// PostCopyDevice is PostCopyActive before the target has what it needs to run. QEMU before
	// version 10.1 does not have it.
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

// UnderWay reports whether QEMU is to leave the status by itself, or waits in it for a command.
func (s Status) UnderWay() bool {
	switch s {
	case "", None, Completed, Failed, Canceled:
		return false
	}
	return true
}

// Unattended is how long a guest stands still before its switchover without a virt-handler.
// virt-handler needs some milliseconds for a switchover; one that has died is started again
// within seconds, or not at all.
const Unattended = 2 * time.Second

// CancelUnattended reports whether virt-launcher cancels the migration (migrate_cancel), so
// that the guest goes on here: virt-handler alone can complete it, and has not been connected
// for the duration without, or since QEMU has been in the status. QEMU itself decides whether
// the cancel comes in time, so this is safe at any moment.
func CancelUnattended(s Status, without time.Duration) bool {
	return s == PreSwitchover && without >= Unattended
}
