package outgoing

import (
	"testing"
	"time"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// On a busy machine seconds may pass between two readings of the clock. The reported progress must be as old as its
// date says.
func TestProgressIsDueWhenItIsDated(t *testing.T) {
	began := time.Now()
	now := began
	m, _ := connected(t, func() time.Time { return now })
	facts := sending()
	told := func(at time.Time) bool {
		facts.Observed.Now = at
		d := m.Decide(m.Observe(facts))
		if d.Progress(true) != nil {
			t.Error("progress is told although another change comes first")
		}
		return d.Progress(false) != nil
	}
	now = began.Add(vmistatus.ProgressInterval)
	if told(began) {
		t.Error("what was seen at the beginning is told later, with the date of the beginning")
	}
	if !told(now) {
		t.Error("what is seen after the interval is not told")
	}
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
