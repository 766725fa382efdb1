package vmistatus

import (
	"math"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// QEMU's figures may be anything; the sentence must keep its form.
func TestTheSentenceOfProgress(t *testing.T) {
	for name, c := range map[string]struct {
		of   Progress
		want string
	}{
		"nothing":         {Progress{}, ""},
		"memory, at once": {Progress{Stage: SendingMemory}, "0% of the memory is there: 0 MiB of 0 MiB left, 0 MiB sent, 0 MiB/s; the guest changes 0 MiB/s and would stand still for 0 ms"},
		"disks":           {Progress{Stage: CopyingDisks, Total: gib, Remaining: gib / 4, Sent: 7, Rate: 10*mib + 1, DirtyRate: 5}, "75% of the disks is there: 256 MiB of 1024 MiB left, 11 MiB/s"},
		"a guest that is handed over": {Progress{Stage: HandingOver, Stopped: time.Date(2026, 11, 29, 14, 7, 2, 5, time.FixedZone("", 3600))},
			"the guest stands still since 2026-11-29T13:07:02Z while the rest of what it needs is sent to node target"},
		"a guest that is handed over since nobody knows when": {Progress{Stage: HandingOver},
			"the guest stands still while the rest of what it needs is sent to node target"},
		"a guest that was sent a while ago": {Progress{Stage: GuestSent, Stopped: time.Date(2026, 11, 29, 13, 7, 2, 0, time.UTC)},
			"the guest was sent, and stands still since 2026-11-29T13:07:02Z until virt-handler on node target runs it"},
		"a guest that was sent":   {Progress{Stage: GuestSent, Total: gib}, "the guest was sent, and stands still until virt-handler on node target runs it"},
		"a stage of nobody":       {Progress{Stage: "x", Total: gib}, ""},
		"all but a byte":          {Progress{Stage: CopyingDisks, Total: 100 * mib, Remaining: 1}, "99% of the disks is there: 1 MiB of 100 MiB left, 0 MiB/s"},
		"all":                     {Progress{Stage: CopyingDisks, Total: 100 * mib}, "100% of the disks is there: 0 MiB of 100 MiB left, 0 MiB/s"},
		"a whole MiB":             {Progress{Stage: CopyingDisks, Total: mib, Remaining: mib}, "0% of the disks is there: 1 MiB of 1 MiB left, 0 MiB/s"},
		"of one byte":             {Progress{Stage: CopyingDisks, Total: 1}, "100% of the disks is there: 0 MiB of 1 MiB left, 0 MiB/s"},
		"more left than there is": {Progress{Stage: CopyingDisks, Total: mib, Remaining: 5 * mib}, "0% of the disks is there: 5 MiB of 1 MiB left, 0 MiB/s"},
		"less than nothing": {Progress{Stage: SendingMemory, Total: -1, Remaining: -1, Sent: math.MinInt64, Rate: -1, DirtyRate: -1, Downtime: -1},
			"0% of the memory is there: 0 MiB of 0 MiB left, 0 MiB sent, 0 MiB/s; the guest changes 0 MiB/s and would stand still for 0 ms"},
		"less than nothing left": {Progress{Stage: CopyingDisks, Total: mib, Remaining: -5}, "100% of the disks is there: 0 MiB of 1 MiB left, 0 MiB/s"},
		"as much as there can be": {Progress{Stage: SendingMemory, Total: math.MaxInt64, Remaining: math.MaxInt64 / 2, Sent: math.MaxInt64, Rate: math.MaxInt64, DirtyRate: math.MaxInt64, Downtime: math.MaxInt64},
			"50% of the memory is there: 4398046511104 MiB of 8796093022208 MiB left, 8796093022208 MiB sent, 8796093022208 MiB/s; the guest changes 8796093022208 MiB/s and would stand still for 9223372036854 ms"},
		"a guest that changes much": {Progress{Stage: SendingMemory, Total: 512 * mib, Remaining: 195 * mib, Sent: 330 * mib, Rate: 16 * mib, DirtyRate: 2 * mib, Downtime: 300 * time.Millisecond},
			"61% of the memory is there: 195 MiB of 512 MiB left, 330 MiB sent, 16 MiB/s; the guest changes 2 MiB/s and would stand still for 300 ms"},
	} {
		if got := c.of.message("target"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestProgressIsToldEveryFiveSeconds(t *testing.T) {
	for after, want := range map[time.Duration]bool{-time.Hour: false, 0: false, 5*time.Second - 1: false, 5 * time.Second: true, time.Hour: true} {
		if got := ProgressDue(now, now.Add(after)); got != want {
			t.Errorf("%v after it was told it is due: %v", after, got)
		}
	}
}

// Only the source may report a migration's progress, and the end of the migration must remove it.
func TestWhatProgressIsSaid(t *testing.T) {
	said := says(MigrationProgress, "True", "Before")
	told := func(of Progress, failure string) Facts {
		return Facts{Source: Known(SourceMigration{UID: "m", Progress: of, Failure: failure})}
	}
	sent := Progress{Stage: GuestSent}
	arrived := Facts{Migration: Migration{Of: "m", Arrived: &Arrival{}}}
	for name, c := range map[string]struct {
		by    Writer
		f     Facts
		given []edit
		want  string
	}{
		"the source tells it":                             {Handler, told(sent, ""), []edit{begun}, "GuestSent"},
		"the source knows nothing new":                    {Handler, told(Progress{}, ""), []edit{begun}, "Before"},
		"the source tells of another":                     {Handler, Facts{Source: Known(SourceMigration{UID: "n", Progress: sent})}, []edit{begun}, "Before"},
		"the source says that it has failed":              {Handler, told(sent, "x"), []edit{begun}, ""},
		"the source tells of one that has failed":         {Handler, told(sent, ""), []edit{begun, failedWith("x")}, ""},
		"the source tells of one that has completed":      {Handler, told(sent, ""), []edit{begun, completed}, "Before"},
		"the target completes it":                         {TargetHandler, Facts{Target: Known(TargetMigration{UID: "m", Runs: true})}, []edit{begun}, "Before"},
		"virt-controller looks at it":                     {Controller, Facts{}, []edit{begun}, "Before"},
		"virt-controller asks for its end":                {Controller, Facts{Migration: Migration{Of: "m", Abort: true}}, []edit{begun}, "Before"},
		"virt-controller sees that it has completed":      {Controller, Facts{}, []edit{begun, completed}, "Before"},
		"virt-controller has the guest be where it is":    {Controller, arrived, []edit{begun, completed}, ""},
		"virt-controller ends the VMI":                    {Controller, Facts{End: EndOfPodGone()}, []edit{begun}, ""},
		"virt-handler ends the VMI":                       {Handler, Facts{End: EndOfGuestLost()}, []edit{begun}, ""},
		"virt-handler finds what another has left behind": {Handler, Facts{}, []edit{begun, failedWith("x")}, ""},
	} {
		vmi := onTheWay(c.given...)
		vmi.Status.Conditions = append(vmi.Status.Conditions, said)
		c.f.Now = now
		status := Project(vmi, c.by, c.f)
		got := condition.Find(status.Conditions, MigrationProgress)
		if (got == nil) != (c.want == "") || got != nil && got.Reason != c.want {
			t.Errorf("%s: it says %+v, want %q", name, got, c.want)
		}
		if got != nil && got.Reason == "GuestSent" && (!got.LastProbeTime.Time.Equal(now.Truncate(time.Second)) || got.Status != "True" || got.Message != sent.message("target")) {
			t.Errorf("%s: it says %+v", name, got)
		}
	}
	// Without a migration there is no progress, and none may be assumed.
	vmi := instance(v1.Running, said)
	if c := condition.Find(Project(vmi, Handler, Facts{Now: now}).Conditions, MigrationProgress); c != nil {
		t.Errorf("without a migration it says %+v", c)
	}
	if c := condition.Find(Project(onTheWay(begun), Handler, Facts{Now: now}).Conditions, MigrationProgress); c != nil {
		t.Errorf("before anything was told it says %+v", c)
	}
	// Nobody can report it for a VMI without a node.
	if c := condition.Find(Project(instance(v1.Pending, said), Controller, Facts{Now: now}).Conditions, MigrationProgress); c == nil {
		t.Error("it is taken away by somebody who may not")
	}
}
