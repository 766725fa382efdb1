package driver

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
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

// On a busy machine seconds may pass between two readings of the clock. The reported progress must be as old as its
// date says.
func TestProgressIsDueWhenItIsDated(t *testing.T) {
	began := time.Now()
	now := began
	source, err := migration.NewSource(t.Context(), migration.Env{
		Node: &migration.Node{}, Go: func(func()) {}, Wake: func() {}, Now: func() time.Time { return now },
	}, migration.ID{Migration: ours}, "node2", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	vmi := withoutScratch(scheduled("web"))
	vmi.Status.Phase = v1.Running
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: ours, SourceNode: "node1", TargetNode: "node2", StartTimestamp: new(metav1.NewTime(began)),
	}
	d := &Driver{moving: moving{of: ours, source: source}}
	told := func(at time.Time) bool {
		s := snapshot{role: vmihandler.Home, now: at}
		s.migration.progress = vmistatus.Progress{Stage: vmistatus.SendingMemory, Total: 2, Remaining: 1}
		return d.progress(&s, vmihandler.Observed{VMI: vmi}, vmihandler.Facts{Node: "node1", Now: at}) != nil
	}
	now = began.Add(vmistatus.ProgressInterval)
	if told(began) {
		t.Error("what was seen at the beginning is told later, with the date of the beginning")
	}
	if !told(now) {
		t.Error("what is seen after the interval is not told")
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

func TestWhatProgressIsTold(t *testing.T) {
	under := switchover.Record{Current: true, Started: true}
	with := func(edit func(*switchover.SourceFacts)) switchover.SourceFacts {
		f := switchover.SourceFacts{Record: under, Process: switchover.ProcessRuns, Begun: true, Status: migrationstatus.Active, RunState: runstate.Running}
		edit(&f)
		return f
	}
	disks := func(f *switchover.SourceFacts) {
		f.Begun, f.Status, f.Mirrors = false, "", switchover.Mirrors{Begun: true, Done: 3, Total: 10}
	}
	memory := vmistatus.Progress{Stage: vmistatus.SendingMemory, Total: 10, Remaining: 4, Sent: 7, Rate: 5, DirtyRate: 2, Downtime: time.Second}
	known := &guest.Migration{Progress: guest.Progress{Total: 10, Transferred: 7, Remaining: 4, DirtyRate: 2, Rate: 5, Expected: time.Second, Downtime: time.Hour}}
	for name, c := range map[string]struct {
		edit func(*switchover.SourceFacts)
		want vmistatus.Progress
	}{
		"memory is sent":                       {func(*switchover.SourceFacts) {}, memory},
		"disks are copied":                     {disks, vmistatus.Progress{Stage: vmistatus.CopyingDisks, Total: 10, Remaining: 7, Sent: 3}},
		"nothing has begun":                    {func(f *switchover.SourceFacts) { f.Begun = false }, vmistatus.Progress{}},
		"it is another's":                      {func(f *switchover.SourceFacts) { f.Record.Current = false }, vmistatus.Progress{}},
		"nothing was recorded":                 {func(f *switchover.SourceFacts) { f.Record.Started = false }, vmistatus.Progress{}},
		"it has failed":                        {func(f *switchover.SourceFacts) { f.Record.Failed = true }, vmistatus.Progress{}},
		"it has completed":                     {func(f *switchover.SourceFacts) { f.Record.Completed = true }, vmistatus.Progress{}},
		"QEMU has ended":                       {func(f *switchover.SourceFacts) { f.Process = switchover.ProcessEnded }, vmistatus.Progress{}},
		"the guest is about to be handed over": {func(f *switchover.SourceFacts) { f.Status = migrationstatus.PreSwitchover }, vmistatus.Progress{Stage: vmistatus.HandingOver}},
		"the guest is handed over":             {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Device }, vmistatus.Progress{Stage: vmistatus.HandingOver}},
		"its memory follows":                   {func(f *switchover.SourceFacts) { f.Status = migrationstatus.PostCopyActive }, vmistatus.Progress{Stage: vmistatus.HandingOver}},
		"its memory follows, and it runs":      {func(f *switchover.SourceFacts) { f.Status, f.Ran = migrationstatus.PostCopyActive, true }, vmistatus.Progress{}},
		"the guest was sent": {func(f *switchover.SourceFacts) {
			f.Status, f.RunState = migrationstatus.Completed, runstate.PostMigrate
		}, vmistatus.Progress{Stage: vmistatus.GuestSent}},
		"the guest was sent, and is back": {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Completed }, vmistatus.Progress{}},
		"it has failed, says QEMU":        {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Failed }, vmistatus.Progress{}},
	} {
		f := with(c.edit)
		if got := progressOf(&f, known); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
