package diskcopy_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// moved has two disks of the guest.
var moved = []machine.Mirror{{Volume: "root", Node: "n-root", Copy: "m-root"}, {Volume: "data", Node: "n-data", Copy: "m-data", Whole: true}}

// newCopying returns a migration that copies disks. The sizes are those of the second disk.
func newCopying(t *testing.T, here, there int64) (*guesttest.Moving, diskcopy.Mirroring) {
	t.Helper()
	m := guesttest.NewMoving(t)
	m.Source.AddNode("n-data", here)
	m.Target.AddNode("n-data", there)
	socket := filepath.Join(filepath.Dir(m.Socket), "d.sock")
	for range 2 { // a repetition does no harm
		if err := m.To.Export(t.Context(), socket, moved); err != nil {
			t.Fatal(err)
		}
	}
	return m, diskcopy.Mirroring{Migration: "m", Socket: socket, Disks: moved}
}

func jobs(status string) func(guest.Facts) bool {
	return func(f guest.Facts) bool {
		return len(f.Jobs) == len(moved) && !slices.ContainsFunc(f.Jobs, func(j guest.Job) bool { return j.Status != status })
	}
}

func TestDisksAreCopiedAndFinished(t *testing.T) {
	m, what := newCopying(t, 4096, 4096)
	for range 2 {
		if err := m.From.Mirror(t.Context(), what); err != nil {
			t.Fatal(err)
		}
	}
	if f := m.From.Await("copies that are ready", jobs("ready")); f.Jobs[0].ID != "mirror-m-root" || f.Jobs[0].Done != f.Jobs[0].Total {
		t.Errorf("the jobs are %+v", f.Jobs)
	}
	m.Begin(t)
	m.Release()
	m.From.Await("the switchover", guesttest.At("pre-switchover"))
	if err := m.From.Continue(t.Context()); err == nil {
		t.Error("the guest is handed over while its disks are copied")
	}
	if err := m.From.FinishMirrors(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	for _, j := range m.From.Await("copies that have ended", jobs("concluded")).Jobs {
		if j.Error != "" {
			t.Errorf("the copy %s has failed: %s", j.ID, j.Error)
		}
	}
	m.HandOver(t)
	if err := m.To.Take(t.Context(), "m", func() error { return nil }, func() {}); err != nil {
		t.Fatal(err)
	}
	if state, exports := m.Target.RunState(), m.Target.Exports(); state != runstate.Running || len(exports) > 0 {
		t.Errorf("the target is %s, and others write to %v", state, exports)
	}
	if size := m.Source.NodeSize("m-root"); size != 0 {
		t.Error("the way to the target is left")
	}
}

func TestCopiesOfAnEarlierMigrationEnd(t *testing.T) {
	m, what := newCopying(t, 4096, 4096)
	if err := m.From.Mirror(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	m.From.Await("copies that are ready", jobs("ready"))
	what.Migration = "m2"
	if err := m.From.Mirror(t.Context(), what); !errors.Is(err, diskcopy.ErrEnding) {
		t.Fatalf("the next ones begin beside them: %v", err)
	}
	if err := m.From.Mirror(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	f := m.From.Await("the next copies", jobs("ready"))
	if slices.ContainsFunc(f.Jobs, func(j guest.Job) bool { return !strings.HasPrefix(j.ID, "mirror-m2-") }) {
		t.Errorf("the jobs are %+v", f.Jobs)
	}
	if err := m.From.EndMirrors(t.Context()); !errors.Is(err, diskcopy.ErrEnding) {
		t.Fatal(err)
	}
	if err := m.From.EndMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("nothing", func(f guest.Facts) bool { return len(f.Jobs) == 0 })
	if m.Source.NodeSize("m-root") != 0 || m.Source.NodeSize("m-data") != 0 {
		t.Error("ways to the target are left")
	}
}

func TestADiskOfAnotherSizeIsNotCopied(t *testing.T) {
	m, what := newCopying(t, 4096, 8192)
	want := "volume data has 4096 bytes, and 8192 at the target: the image there is another one"
	if err := m.From.Mirror(t.Context(), what); guesttest.RefusalOf(t, err) != want {
		t.Errorf("the answer is %v", err)
	}
	if m.Source.NodeSize("m-data") != 0 {
		t.Error("the way to the target is left")
	}
}

// sliced returns the disks, of which the second is copied to another claim.
func sliced() []machine.Mirror {
	disks := slices.Clone(moved)
	disks[1].Slice = "ms-data"
	return disks
}

// TestALargerClaimIsCopiedToInPart: the node above the connection to the target is removed with it.
func TestALargerClaimIsCopiedToInPart(t *testing.T) {
	m, what := newCopying(t, 4096, 8192)
	what.Disks = sliced()
	if err := m.From.Mirror(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	m.From.Await("copies that are ready", jobs("ready"))
	if got := m.Source.NodeSize("ms-data"); got != 4096 {
		t.Errorf("%d bytes of the claim are copied to", got)
	}
	if err := m.From.EndMirrors(t.Context()); !errors.Is(err, diskcopy.ErrEnding) {
		t.Fatal(err)
	}
	if err := m.From.EndMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"m-root", "m-data", "ms-data"} {
		if m.Source.NodeSize(node) != 0 {
			t.Errorf("%s is left", node)
		}
	}
}

func TestAClaimOfTheSameSizeIsCopiedToAsAWhole(t *testing.T) {
	m, what := newCopying(t, 4096, 4096)
	what.Disks = sliced()
	if err := m.From.Mirror(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	m.From.Await("copies that are ready", jobs("ready"))
	if got := m.Source.NodeSize("ms-data"); got != 0 {
		t.Errorf("there is a part of %d bytes", got)
	}
}

func TestASmallerClaimIsNotCopiedTo(t *testing.T) {
	m, what := newCopying(t, 8192, 4096)
	what.Disks = sliced()
	want := "volume data has 8192 bytes, and only 4096 on its new claim: name a larger one"
	if err := m.From.Mirror(t.Context(), what); guesttest.RefusalOf(t, err) != want {
		t.Errorf("the answer is %v", err)
	}
	if m.Source.NodeSize("m-data") != 0 {
		t.Error("the way to the target is left")
	}
}

// TestAPartThatCanNotBeCopiedToIsRemoved: QEMU refuses the copy itself.
func TestAPartThatCanNotBeCopiedToIsRemoved(t *testing.T) {
	m, what := newCopying(t, 4096, 8192)
	what.Disks = sliced()
	what.Disks[1].Node = "none"
	m.Source.AddNode("none-known", 4096)
	if err := m.From.Mirror(t.Context(), what); err == nil {
		t.Error("a disk is copied that does not exist")
	}
	if m.Source.NodeSize("m-data") != 0 || m.Source.NodeSize("ms-data") != 0 {
		t.Error("the way to the target is left")
	}
}

func TestATargetWithItsGuestExportsNothing(t *testing.T) {
	source := qmptest.New(t)
	source.SetRunState(runstate.Running)
	w := guesttest.Open(t, source)
	if err := w.Export(t.Context(), "/none", moved); err != nil || source.Executed("nbd-server-start") > 0 {
		t.Errorf("it does: %v", err)
	}
}
