package migrationstatus_test

import (
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/test/shipped"
)

var all = []migrationstatus.Status{
	"", migrationstatus.None, migrationstatus.Setup, migrationstatus.WaitUnplug, migrationstatus.Active,
	migrationstatus.PreSwitchover, migrationstatus.Device, migrationstatus.PostCopyDevice, migrationstatus.PostCopyActive,
	migrationstatus.PostCopyPaused, migrationstatus.PostCopyRecoverSetup, migrationstatus.PostCopyRecover,
	migrationstatus.Canceling, migrationstatus.Canceled, migrationstatus.Failed, migrationstatus.Completed, "teleporting",
}

func TestWhichStatusesArePostCopy(t *testing.T) {
	want := []migrationstatus.Status{"postcopy-device", "postcopy-active", "postcopy-paused", "postcopy-recover-setup", "postcopy-recover"}
	for _, s := range all {
		if got := s.PostCopy(); got != slices.Contains(want, s) {
			t.Errorf("%q: post-copy is %v", s, got)
		}
	}
}

func TestWhatIsCanceledWithoutVirtHandler(t *testing.T) {
	for _, s := range all {
		for _, without := range []time.Duration{0, migrationstatus.Unattended - 1, migrationstatus.Unattended, time.Hour} {
			want := s == "pre-switchover" && without >= 2*time.Second
			if got := migrationstatus.CancelUnattended(s, without); got != want {
				t.Errorf("%q, %s without virt-handler: canceling is %v", s, without, got)
			}
		}
	}
}

// The installed QEMU may be older than some names; "colo" is a kind of migration that Drydock does not use.
func TestTheStatusesAreQEMUs(t *testing.T) {
	theirs := qmptest.Values(t, shipped.Program(t, "qemu-system-x86_64"), "query-migrate", "status")
	if len(theirs) < 10 {
		t.Fatalf("QEMU names only %q", theirs)
	}
	newer := []migrationstatus.Status{"", "teleporting", migrationstatus.PostCopyDevice, migrationstatus.PostCopyRecoverSetup}
	for _, s := range all {
		if !slices.Contains(newer, s) && !slices.Contains(theirs, string(s)) {
			t.Errorf("%q is none of QEMU's statuses: %q", s, theirs)
		}
	}
	for _, name := range theirs {
		if name != "colo" && !slices.Contains(all, migrationstatus.Status(name)) {
			t.Errorf("QEMU's status %q is missing", name)
		}
	}
}

// TestQEMUCountsPostCopysBytes checks that QEMU has the counter that shows that a post-copy can't be reverted.
func TestQEMUCountsPostCopysBytes(t *testing.T) {
	members := qmptest.Values(t, shipped.Program(t, "qemu-system-x86_64"), "query-migrate", "ram")
	if !slices.Contains(members, "postcopy-bytes") {
		t.Errorf("query-migrate's ram has no postcopy-bytes: %q", members)
	}
}
