package migrationstatus_test

import (
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

var all = []migrationstatus.Status{
	"", migrationstatus.None, migrationstatus.Setup, migrationstatus.WaitUnplug, migrationstatus.Active,
	migrationstatus.PreSwitchover, migrationstatus.Device, migrationstatus.PostCopyDevice, migrationstatus.PostCopyActive,
	migrationstatus.PostCopyPaused, migrationstatus.PostCopyRecoverSetup, migrationstatus.PostCopyRecover,
	migrationstatus.Cancelling, migrationstatus.Cancelled, migrationstatus.Failed, migrationstatus.Completed, "teleporting",
}

func TestWhichStatusesArePostCopy(t *testing.T) {
	want := []migrationstatus.Status{"postcopy-device", "postcopy-active", "postcopy-paused", "postcopy-recover-setup", "postcopy-recover"}
	for _, s := range all {
		if got := s.PostCopy(); got != slices.Contains(want, s) {
			t.Errorf("%q: post-copy is %v", s, got)
		}
	}
}

func TestWhatIsCancelledWithoutVirtHandler(t *testing.T) {
	for _, s := range all {
		for _, without := range []time.Duration{0, migrationstatus.Unattended - 1, migrationstatus.Unattended, time.Hour} {
			want := s == "pre-switchover" && without >= 2*time.Second
			if got := migrationstatus.CancelUnattended(s, without); got != want {
				t.Errorf("%q, %s without virt-handler: cancelling is %v", s, without, got)
			}
		}
	}
}
