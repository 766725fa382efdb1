package switchover_test

import (
	"testing"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// targetTest edits the facts of a target that has loaded the guest.
type targetTest struct {
	edit func(*switchover.TargetFacts)
	want switchover.TargetStep
}

// arrived is a target that has loaded the guest.
func arrived() switchover.TargetFacts {
	return switchover.TargetFacts{
		Record: recorded(), Named: true, Process: switchover.ProcessRuns, RunState: "paused",
		Status: migrationstatus.Completed, Unmarked: true,
	}
}

func testTarget(t *testing.T, base func(*switchover.TargetFacts), tests map[string]targetTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := arrived()
			base(&f)
			test.edit(&f)
			if got := switchover.DecideTarget(f); got != test.want {
				t.Errorf("it decides %+v, expected %+v", got, test.want)
			}
		})
	}
}

func loaded(*switchover.TargetFacts) {}

var (
	targetWaits  = switchover.TargetStep{Action: switchover.TargetWait}
	kills        = switchover.TargetStep{Action: switchover.Kill}
	asksForMore  = switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Ready}
	marksAndRuns = switchover.TargetStep{Action: switchover.MarkAndRun}
)

// unwanted returns the facts for which a target that has not run must be ended, whatever it has done.
func unwanted(extra map[string]targetTest) map[string]targetTest {
	for name, edit := range map[string]func(*switchover.TargetFacts){
		"the migration has failed": func(f *switchover.TargetFacts) { f.Record.Failed = true },
		"an abort":                 func(f *switchover.TargetFacts) { f.Record.AbortRequested = true },
		"the VMI is deleted":       func(f *switchover.TargetFacts) { f.Record.Deleting = true },
		"the VMI has ended":        func(f *switchover.TargetFacts) { f.Record.Final = true },
		"the pod is being deleted": func(f *switchover.TargetFacts) { f.Terminating = true },
	} {
		extra[name] = targetTest{edit, kills}
	}
	return extra
}

func TestTargetBeforeQEMUStarts(t *testing.T) {
	base := func(f *switchover.TargetFacts) {
		f.Process, f.Record.Addressed, f.Record.Started = switchover.ProcessNotStarted, false, false
	}
	testTarget(t, base, unwanted(map[string]targetTest{
		"the guest is expected":              {loaded, switchover.TargetStep{Action: switchover.StartIncoming}},
		"completed, which can't be":          {func(f *switchover.TargetFacts) { f.Record.Completed = true }, kills},
		"virt-launcher has not answered":     {func(f *switchover.TargetFacts) { f.Process = switchover.ProcessUnknown }, targetWaits},
		"the VMI that is seen is older":      {func(f *switchover.TargetFacts) { f.Record = switchover.Record{} }, targetWaits},
		"a second pod of the name":           {func(f *switchover.TargetFacts) { f.Named = false }, targetWaits},
		"a second pod that is being deleted": {func(f *switchover.TargetFacts) { f.Named, f.Terminating = false, true }, targetWaits},
	}))
}

func TestTargetThatListens(t *testing.T) {
	base := func(f *switchover.TargetFacts) { f.RunState, f.Status = "inmigrate", migrationstatus.Active }
	testTarget(t, base, unwanted(map[string]targetTest{
		"it listens":                                            {func(f *switchover.TargetFacts) { f.Record.Addressed, f.Status = false, "" }, switchover.TargetStep{Action: switchover.ReportReady, Tell: switchover.Ready}},
		"its address is recorded":                               {loaded, asksForMore},
		"QEMU does not listen yet":                              {func(f *switchover.TargetFacts) { f.RunState, f.Status = "prelaunch", "" }, targetWaits},
		"released, and not all is here":                         {func(f *switchover.TargetFacts) { f.Released = true }, asksForMore},
		"the source is gone after it sent, and not all is here": {func(f *switchover.TargetFacts) { f.Record.SourceNamed = false }, asksForMore},
		"post-copy has begun":                                   {func(f *switchover.TargetFacts) { f.Status, f.Released = migrationstatus.PostCopyActive, true }, asksForMore},
		"all is here, and the run state is about to follow":     {func(f *switchover.TargetFacts) { f.Status, f.Released = migrationstatus.Completed, true }, asksForMore},
		"a second pod of the name":                              {func(f *switchover.TargetFacts) { f.Named = false }, targetWaits},
		"a second pod that is being deleted":                    {func(f *switchover.TargetFacts) { f.Named, f.Terminating = false, true }, kills},
		"the VMI that is seen is another migration's":           {func(f *switchover.TargetFacts) { f.Record.Current = false }, targetWaits},
	}))
}

func TestTargetThatHasLoadedTheGuest(t *testing.T) {
	released := func(edit func(*switchover.TargetFacts)) func(*switchover.TargetFacts) {
		return func(f *switchover.TargetFacts) {
			f.Released = true
			edit(f)
		}
	}
	sourceEnded := func(edit func(*switchover.TargetFacts)) func(*switchover.TargetFacts) {
		return func(f *switchover.TargetFacts) {
			f.Record.SourceNamed = false
			edit(f)
		}
	}
	deleted := func(f *switchover.TargetFacts) { f.Record.Deleting = true }
	terminating := func(f *switchover.TargetFacts) { f.Terminating = true }
	testTarget(t, loaded, unwanted(map[string]targetTest{
		"nothing is heard of the source":     {loaded, asksForMore},
		"released":                           {released(loaded), marksAndRuns},
		"the source has ended after it sent": {sourceEnded(loaded), marksAndRuns},
		"released, after an earlier virt-handler has begun to kill it": {released(func(f *switchover.TargetFacts) { f.Doomed = true }), kills},
		"released, and an abort":                                                    {released(func(f *switchover.TargetFacts) { f.Record.AbortRequested = true }), marksAndRuns},
		"released, and the migration has failed":                                    {released(func(f *switchover.TargetFacts) { f.Record.Failed = true }), kills},
		"released, and the VMI has ended":                                           {released(func(f *switchover.TargetFacts) { f.Record.Final = true }), kills},
		"released, and the VMI is deleted":                                          {released(deleted), kills},
		"released, and the pod is being deleted":                                    {released(terminating), kills},
		"the source has ended, and the VMI is deleted: the guest is shut down here": {sourceEnded(deleted), marksAndRuns},
		"the source has ended, and the pod is being deleted":                        {sourceEnded(terminating), marksAndRuns},
		"released, in another migration's record":                                   {released(func(f *switchover.TargetFacts) { f.Record.Current = false }), targetWaits},
		"released, and not named":                                                   {released(func(f *switchover.TargetFacts) { f.Named = false }), targetWaits},
		"released, with an I/O error":                                               {released(func(f *switchover.TargetFacts) { f.RunState = "io-error" }), marksAndRuns},
		"released, for post-copy":                                                   {released(func(f *switchover.TargetFacts) { f.Status = migrationstatus.PostCopyActive }), marksAndRuns},
		"released, and QEMU says failed":                                            {released(func(f *switchover.TargetFacts) { f.Status = migrationstatus.Failed }), targetWaits},
	}))
}

// TestTargetOfAPostCopy: the source decides whether the guest comes, until it is released.
func TestTargetOfAPostCopy(t *testing.T) {
	saysLoaded := switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Loaded}
	saysNothing := switchover.TargetStep{Action: switchover.TargetWait}
	for name, c := range map[string]struct {
		base            func(*switchover.TargetFacts)
		waits, unwanted switchover.TargetStep
	}{
		"loaded":                            {func(f *switchover.TargetFacts) { f.Status, f.Record.PostCopy = migrationstatus.PostCopyActive, true }, saysLoaded, saysNothing},
		"loaded, before its record is seen": {func(f *switchover.TargetFacts) { f.Status = migrationstatus.PostCopyPaused }, saysLoaded, saysNothing},
		"loaded, with all of its memory":    {func(f *switchover.TargetFacts) { f.Record.PostCopy = true }, saysLoaded, saysNothing},
		"not loaded": {func(f *switchover.TargetFacts) {
			f.Record.PostCopy, f.RunState, f.Status = true, runstate.InMigrate, migrationstatus.Active
		}, asksForMore, asksForMore},
	} {
		t.Run(name, func(t *testing.T) {
			testTarget(t, c.base, map[string]targetTest{
				"nothing is heard of the source": {loaded, c.waits},
				"an abort":                       {func(f *switchover.TargetFacts) { f.Record.AbortRequested = true }, c.unwanted},
				"the pod is being deleted":       {func(f *switchover.TargetFacts) { f.Terminating = true }, c.unwanted},
				"the VMI is deleted":             {func(f *switchover.TargetFacts) { f.Record.Deleting = true }, c.unwanted},
				"the migration has failed":       {func(f *switchover.TargetFacts) { f.Record.Failed = true }, kills},
				"the VMI has ended":              {func(f *switchover.TargetFacts) { f.Record.Final = true }, kills},
				"the source has ended, and an abort": {func(f *switchover.TargetFacts) { f.Record.SourceNamed, f.Record.AbortRequested = false, true },
					map[bool]switchover.TargetStep{true: marksAndRuns, false: kills}[c.waits == saysLoaded]},
			})
		})
	}
}

func TestTargetThatMayRun(t *testing.T) {
	base := func(f *switchover.TargetFacts) { f.Marked, f.Unmarked = true, false }
	runs := switchover.TargetStep{Action: switchover.Run}
	ran := switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Ran}
	reports := switchover.TargetStep{Action: switchover.ReportCompleted, Tell: switchover.Ran}
	running := func(edit func(*switchover.TargetFacts)) func(*switchover.TargetFacts) {
		return func(f *switchover.TargetFacts) {
			f.RunState = "running"
			edit(f)
		}
	}
	testTarget(t, base, map[string]targetTest{
		"it is marked":                                 {loaded, runs},
		"it is marked, whatever else it says":          {func(f *switchover.TargetFacts) { f.Doomed = true }, runs},
		"it is marked, and aborted":                    {func(f *switchover.TargetFacts) { f.Record.AbortRequested = true }, runs},
		"it is marked, and the VMI is deleted":         {func(f *switchover.TargetFacts) { f.Record.Deleting = true }, runs},
		"it is marked, and the pod is being deleted":   {func(f *switchover.TargetFacts) { f.Terminating = true }, runs},
		"it is marked, and the VMI has ended":          {func(f *switchover.TargetFacts) { f.Record.Final = true }, targetWaits},
		"it is marked, and not named":                  {func(f *switchover.TargetFacts) { f.Named, f.Terminating = false, true }, targetWaits},
		"it is marked, with an I/O error":              {func(f *switchover.TargetFacts) { f.RunState = "io-error" }, runs},
		"it runs":                                      {running(loaded), reports},
		"it runs, without the mark":                    {running(func(f *switchover.TargetFacts) { f.Marked = false }), reports},
		"it runs without the mark, not named":          {running(func(f *switchover.TargetFacts) { f.Marked, f.Named, f.Terminating = false, false, true }), targetWaits},
		"it runs, and has panicked":                    {running(func(f *switchover.TargetFacts) { f.RunState = "guest-panicked" }), reports},
		"it runs, and completed is recorded":           {running(func(f *switchover.TargetFacts) { f.Record.Completed = true }), ran},
		"its user has paused it since":                 {func(f *switchover.TargetFacts) { f.Record.Completed = true }, targetWaits},
		"it runs, of another migration":                {running(func(f *switchover.TargetFacts) { f.Record.Current = false }), targetWaits},
		"it runs, and its memory follows":              {running(func(f *switchover.TargetFacts) { f.Status = migrationstatus.PostCopyActive }), ran},
		"it runs, and the stream of its memory breaks": {running(func(f *switchover.TargetFacts) { f.Status = migrationstatus.PostCopyPaused }), switchover.TargetStep{Action: switchover.RecoverIncoming, Tell: switchover.Ran}},
		"it runs, and the VMI has ended":               {running(func(f *switchover.TargetFacts) { f.Record.Final = true }), targetWaits},
	})
}

// Such a QEMU answers nothing before it has the memory for which it waits.
func TestTargetThatWaitsForMemory(t *testing.T) {
	base := func(f *switchover.TargetFacts) {
		f.Stuck, f.Process, f.RunState, f.Status, f.Unmarked = true, switchover.ProcessUnknown, "", "", false
	}
	listens := switchover.TargetStep{Action: switchover.RecoverIncoming}
	saysRan := switchover.TargetStep{Action: switchover.RecoverIncoming, Tell: switchover.Ran}
	hasRun := func(edit func(*switchover.TargetFacts)) func(*switchover.TargetFacts) {
		return func(f *switchover.TargetFacts) {
			f.HasRun = true
			edit(f)
		}
	}
	testTarget(t, base, map[string]targetTest{
		"its guest has run": {hasRun(loaded), saysRan},
		"its guest has run, by what was known before": {hasRun(func(f *switchover.TargetFacts) {
			f.Process, f.Status = switchover.ProcessRuns, migrationstatus.PostCopyActive
		}), saysRan},
		"its guest has run, and the pod is deleted":   {hasRun(func(f *switchover.TargetFacts) { f.Terminating = true }), saysRan},
		"its guest has run, and the VMI is deleted":   {hasRun(func(f *switchover.TargetFacts) { f.Record.Deleting = true }), saysRan},
		"its guest has run, and the VMI has ended":    {hasRun(func(f *switchover.TargetFacts) { f.Record.Final = true }), targetWaits},
		"its guest has run, of another migration":     {hasRun(func(f *switchover.TargetFacts) { f.Record.Current = false }), targetWaits},
		"its guest has run, and the pod is not named": {hasRun(func(f *switchover.TargetFacts) { f.Named = false }), targetWaits},
		"its guest has not run":                       {loaded, listens},
		"its guest has not run, and was released":     {func(f *switchover.TargetFacts) { f.Released = true }, listens},
		"its guest has not run, and was taken back":   {func(f *switchover.TargetFacts) { f.Record.Failed = true }, targetWaits},
		"QEMU has ended": {func(f *switchover.TargetFacts) {
			f.Process, f.Exit = switchover.ProcessEnded, switchover.Exit{Known: true}
		}, switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Never}},
	})
}

// The source must be told that the guest runs by QEMU's earlier answer, and not only when QEMU is asked again.
func TestTargetThatHasJustRunTheGuest(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*switchover.TargetFacts)
		want switchover.TargetStep
	}{
		"it had loaded it":                 {loaded, switchover.TargetStep{Action: switchover.ReportCompleted, Tell: switchover.Ran}},
		"it had marked it":                 {func(f *switchover.TargetFacts) { f.Marked = true }, switchover.TargetStep{Action: switchover.ReportCompleted, Tell: switchover.Ran}},
		"for post-copy":                    {func(f *switchover.TargetFacts) { f.Status = migrationstatus.PostCopyActive }, switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Ran}},
		"the VMI has another target since": {func(f *switchover.TargetFacts) { f.Record.Current = false }, targetWaits},
	} {
		f := arrived()
		c.edit(&f)
		if got := switchover.Taken(f); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTargetWhoseQEMUHasEnded(t *testing.T) {
	base := func(f *switchover.TargetFacts) {
		f.Process, f.Unmarked, f.Exit = switchover.ProcessEnded, false, switchover.Exit{Known: true}
	}
	never := switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Never}
	ran := switchover.TargetStep{Action: switchover.TargetWait, Tell: switchover.Ran}
	silent := func(f *switchover.TargetFacts) { f.Exit = switchover.Exit{} }
	hasRun := func(edit func(*switchover.TargetFacts)) func(*switchover.TargetFacts) {
		return func(f *switchover.TargetFacts) {
			f.Exit.Ran = true
			edit(f)
		}
	}
	testTarget(t, base, map[string]targetTest{
		"without having run":                                    {loaded, never},
		"without having run, marked":                            {func(f *switchover.TargetFacts) { f.Marked = true }, never},
		"without having run, an incoming guest had been loaded": {func(f *switchover.TargetFacts) { f.Exit.Sent = true }, never},
		"after the migration failed":                            {func(f *switchover.TargetFacts) { f.Record.Failed = true }, never},
		"having run":                                            {hasRun(loaded), switchover.TargetStep{Action: switchover.ReportCompleted, Tell: switchover.Ran}},
		"having run, whatever was known before":                 {hasRun(func(f *switchover.TargetFacts) { f.Unmarked = true }), switchover.TargetStep{Action: switchover.ReportCompleted, Tell: switchover.Ran}},
		"having run, and completed":                             {hasRun(func(f *switchover.TargetFacts) { f.Record.Completed = true }), ran},
		"having run, and the VMI has ended":                     {hasRun(func(f *switchover.TargetFacts) { f.Record.Final = true }), ran},
		"without a word":                                        {silent, targetWaits},
		"without a word, under the eyes of a virt-handler that did not run it": {func(f *switchover.TargetFacts) { silent(f); f.Unmarked = true }, never},
		"without a word, with a Ran that is not virt-launcher's":               {func(f *switchover.TargetFacts) { f.Exit = switchover.Exit{Ran: true} }, targetWaits},
		"a second pod of the name":                                             {func(f *switchover.TargetFacts) { f.Named, f.Unmarked = false, true }, targetWaits},
		"of another migration":                                                 {func(f *switchover.TargetFacts) { f.Record.Current = false }, targetWaits},
	})
}
