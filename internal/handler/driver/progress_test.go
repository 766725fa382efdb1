package driver

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// progressIs reports whether the VMI shows the given progress.
func progressIs(reason vmistatus.ProgressStage, message string) func(*v1.VirtualMachineInstance) bool {
	return func(vmi *v1.VirtualMachineInstance) bool {
		c := condition(vmi, vmistatus.MigrationProgress)
		return c != nil && c.Reason == string(reason) && c.Message == message
	}
}

// looksAgain waits until the source's driver has looked at its migration and decided.
func (v *voyage) looksAgain() {
	v.t.Helper()
	// The second query from now on belongs to a round that has begun after now.
	asked := v.from.model.qemu.Executed("query-migrate")
	awaitTrue(v.t, "another look at the migration", func() bool { return v.from.model.qemu.Executed("query-migrate") > asked+1 })
}

func TestItIsToldHowFarAMigrationIs(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.from.model.qemu.SetMemory(1<<20, 3<<20)
	v.from.pass(0)
	v.beginAndCopy(nil)
	awaitTrue(t, "all of the memory to be sent", func() bool { return v.from.model.qemu.MemorySent() == 1<<20 })
	written, _, _ := v.api.counts()
	v.from.pass(vmistatus.ProgressInterval - 2*time.Second)
	v.looksAgain()
	if now, _, _ := v.api.counts(); now != written {
		t.Errorf("in the first seconds %d patches were made: %v", now-written, v.api.patches[written:])
	}
	const sent = "100% of the memory is there: 0 MiB of 1 MiB left, 1 MiB sent, 1 MiB/s; the guest changes 3 MiB/s and would stand still for 0 ms"
	v.from.pass(2 * time.Second)
	first := condition(v.api.await(t, "its progress", progressIs(vmistatus.SendingMemory, sent)), vmistatus.MigrationProgress)
	v.from.model.qemu.SetMemory(8<<20, 3<<20)
	v.looksAgain()
	if now, _, _ := v.api.counts(); now != written+1 {
		t.Errorf("%d patches were made for its progress: %v", now-written, v.api.patches[written:])
	}
	v.from.pass(vmistatus.ProgressInterval)
	const less = "12% of the memory is there: 7 MiB of 8 MiB left, 1 MiB sent, 1 MiB/s; the guest changes 3 MiB/s and would stand still for 0 ms"
	second := condition(v.api.await(t, "other figures", progressIs(vmistatus.SendingMemory, less)), vmistatus.MigrationProgress)
	if !second.LastProbeTime.After(first.LastProbeTime.Time) {
		t.Errorf("it was told at %v, and again at %v", first.LastProbeTime, second.LastProbeTime)
	}
	v.release()
	if c := condition(v.api.await(t, "the completion", completed), vmistatus.MigrationProgress); c == nil {
		t.Error("the target's virt-handler has taken it away")
	}
	written, _, _ = v.api.counts()
	v.arrive()
	if c := condition(v.to.pausesAndRuns(), vmistatus.MigrationProgress); c != nil {
		t.Errorf("a guest that has arrived has %+v", c)
	}
	// The pause and its end.
	if now, _, _ := v.api.counts(); now != written+2 {
		t.Errorf("%d patches were made after the completion: %v", now-written, v.api.patches[written:])
	}
}

// A guest that changes much memory may be stopped for longer in the end.
func TestAGuestMayStandStillForLongerRoundByRound(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.beginAndCopy(nil)
	allowed := func(want string) {
		t.Helper()
		awaitTrue(t, "a limit of "+want+" ms", func() bool { return v.from.model.qemu.Parameter("downtime-limit") == want })
	}
	allowed("20")
	v.from.model.qemu.SetRound(5)
	allowed("80")
	v.from.model.qemu.SetRound(6)
	allowed("100")
	told := v.from.model.qemu.Executed("migrate-set-parameters")
	v.looksAgain()
	if now := v.from.model.qemu.Executed("migrate-set-parameters"); now != told {
		t.Errorf("QEMU was told %d times more what it knows", now-told)
	}
	v.release()
	v.api.await(t, "the completion", completed)
}

// An API server that does not answer must not prolong the guest's downtime.
func TestNothingWaitsForTheProgressToBeWritten(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.api.ignore(t, string(vmistatus.MigrationProgress))
	v.from.pass(0)
	v.beginAndCopy(nil)
	v.from.pass(vmistatus.ProgressInterval)
	v.looksAgain()
	v.release()
	v.api.await(t, "the completion", completed)
	<-v.from.model.qemu.Ended()
	v.alone(v.to, v.from)
}
