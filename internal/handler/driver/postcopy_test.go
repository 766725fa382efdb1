package driver

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/migration/outgoing"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// toldOfTheStop checks that one event reports the stopped guest, and why post-copy is not used.
func (v *voyage) toldOfTheStop() {
	v.t.Helper()
	_, _, events := v.api.counts()
	said := slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, outgoing.ReasonStopped) })
	want := "Normal StoppedToMigrate: The memory of the guest could not be sent to node node2 in time while it ran: it is stopped until it has arrived there. " +
		"Post-copy is allowed, but QEMU there cannot do with it: its launcher pod has no userfaultfd"
	if len(said) != 1 || said[0] != want {
		v.t.Errorf("the events are %q", said)
	}
}

var postCopied = state(func(m *v1.VirtualMachineInstanceMigrationState) bool { return m.Mode == v1.MigrationPostCopy })

// newPostCopy runs the guest on node2 before its memory has arrived; release lets the memory follow.
func newPostCopy(t *testing.T, prepare ...func(*voyage)) (v *voyage, release func()) {
	t.Helper()
	v = newVoyage(t)
	for _, do := range prepare {
		do(v)
	}
	v.beginAndCopy(&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(1)), ProgressTimeout: new(int64(0)), AllowPostCopy: new(true)})
	release = v.from.model.qemu.HoldPostCopy()
	v.from.model.qemu.SetElapsed(time.Hour)
	v.api.await(t, "the mode", postCopied)
	awaitTrue(t, "a guest that runs before its memory is there", func() bool { return v.to.model.qemu.RunState() == runstate.Running })
	if from := v.from.model.qemu; from.RunState() != "finish-migrate" || !from.HasObject(machine.LeftMarker(ours)) || from.Executed("migrate-start-postcopy") != 1 {
		t.Errorf("the source is %s, and was told %q", from.RunState(), from.Commands())
	}
	return v, release
}

// arrives checks that the guest has all of its memory at the target, and runs nowhere else.
func (v *voyage) arrives() {
	v.t.Helper()
	v.api.await(v.t, "the completion", completed)
	<-v.from.model.qemu.Ended()
	v.alone(v.to, v.from)
	v.arrive()
	v.api.await(v.t, "a guest that runs", well)
	if n := v.from.model.qemu.Executed("cont"); n > 0 {
		v.t.Errorf("the source was told to run %d times", n)
	}
}

func TestAGuestMovesBeforeItsMemory(t *testing.T) {
	t.Parallel()
	v, release := newPostCopy(t)
	v.tell(vmistatus.Migration{Abort: true}, nil)
	refused := v.api.await(t, "the answer to an abort", state(func(m *v1.VirtualMachineInstanceMigrationState) bool { return m.AbortStatus == v1.MigrationAbortFailed }))
	if m := refused.Status.MigrationState; m.Completed || m.Failed {
		t.Errorf("the migration is %+v", m)
	}
	release()
	v.arrives()
}

// TestAPostCopyIsTakenBackUntilItsGuestIsMarked: nobody has run it at the target before that.
func TestAPostCopyIsTakenBackUntilItsGuestIsMarked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens func(*voyage)
		failure string
		abort   v1.MigrationAbortStatus
	}{
		"it is canceled":        {func(v *voyage) { v.tell(vmistatus.Migration{Abort: true}, nil) }, "the migration was aborted", v1.MigrationAbortSucceeded},
		"the connection breaks": {func(v *voyage) { v.to.model.qemu.CutMigration() }, "the connection to the target has ended", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVoyage(t)
			v.beginAndCopy(&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(1)), ProgressTimeout: new(int64(0)), AllowPostCopy: new(true)})
			defer v.from.model.qemu.HoldPostCopy()()
			v.from.model.qemu.Override("object-add", func(args json.RawMessage) (any, error) {
				if strings.Contains(string(args), machine.LeftMarker(ours)) {
					return nil, errors.New("QEMU is stuck")
				}
				v.from.model.qemu.AddObject(machine.MarkerType, machine.PausedMarker(ours))
				return nil, nil
			})
			v.from.model.qemu.SetElapsed(time.Hour)
			v.api.await(t, "the mode", postCopied)
			awaitTrue(t, "a guest that has been loaded", func() bool { return v.to.model.qemu.MigrationStatus() == "postcopy-active" })
			test.happens(v)
			failed := v.api.await(t, "the failure", failedNow)
			if m := failed.Status.MigrationState; m.FailureReason != test.failure || m.AbortStatus != test.abort {
				t.Errorf("the migration is %+v", m)
			}
			awaitTrue(t, "a guest that runs", func() bool { return v.from.model.qemu.RunState() == runstate.Running })
			<-v.to.model.qemu.Ended()
			v.alone(v.from, v.to)
			v.api.await(t, "a guest that runs", well)
			if n := v.to.model.qemu.Executed("cont"); n > 0 {
				t.Errorf("the target was told to run %d times", n)
			}
			if n := v.from.model.qemu.Executed("migrate_cancel"); n > 0 {
				t.Errorf("the source was told to cancel %d times", n)
			}
		})
	}
}

// TestABrokenPostCopyGoesOn: the guest continues meanwhile, until it needs missing memory.
func TestABrokenPostCopyGoesOn(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*voyage){
		"the connection breaks":               func(v *voyage) { v.from.model.qemu.CutMigration() },
		"the source's virt-handler restarts":  func(v *voyage) { v.from.restart() },
		"the target's virt-handler restarts":  func(v *voyage) { v.to.restart() },
		"the connection breaks, and it again": func(v *voyage) { v.from.model.qemu.CutMigration(); v.goesOn(1); v.to.model.qemu.CutMigration() },
	} {
		t.Run(name, func(t *testing.T) {
			v, release := newPostCopy(t)
			before := v.from.model.qemu.Executed("migrate")
			breaks(v)
			v.goesOn(before)
			release()
			v.arrives()
		})
	}
}

// TestABrokenPostCopyGoesOnByAnOlderVirtLauncher: QEMU is told on virt-handler's monitor.
func TestABrokenPostCopyGoesOnByAnOlderVirtLauncher(t *testing.T) {
	t.Parallel()
	v, release := newPostCopy(t, func(v *voyage) { v.to.model.Recovered = nil })
	v.from.model.qemu.CutMigration()
	v.goesOn(1)
	release()
	v.arrives()
}

// TestABrokenPostCopyGoesOnAtAQEMUThatAnswersNothing: its main loop waits for memory.
func TestABrokenPostCopyGoesOnAtAQEMUThatAnswersNothing(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*voyage){
		"the connection breaks":              func(v *voyage) { v.from.model.qemu.CutMigration() },
		"the target's virt-handler restarts": func(v *voyage) { v.to.restart() },
		"both happen": func(v *voyage) {
			v.from.stop()
			v.to.restart()
			v.from.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, release := newPostCopy(t)
			before := v.from.model.qemu.Executed("migrate")
			v.to.model.qemu.NeedMemory()
			breaks(v)
			v.goesOn(before)
			release()
			v.arrives()
		})
	}
}

// goesOn waits until another connection sends the rest of the memory.
func (v *voyage) goesOn(before int) {
	v.t.Helper()
	awaitTrue(v.t, "the rest of the memory", func() bool {
		from, to := v.from.model.qemu, v.to.model.qemu
		return from.Executed("migrate") > before && from.MigrationStatus() == "postcopy-active" && to.MigrationStatus() == "postcopy-active"
	})
}
