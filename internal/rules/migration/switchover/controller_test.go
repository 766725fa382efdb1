package switchover_test

import (
	"testing"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// The exits of pods.
var (
	noWord  = switchover.Exit{}
	sentIt  = switchover.Exit{Known: true, Sent: true, Ran: true}
	ranIt   = switchover.Exit{Known: true, Ran: true}
	neverIt = switchover.Exit{Known: true}
)

func ends(exit switchover.Exit) switchover.Pod {
	return switchover.Pod{State: switchover.PodEnded, Exit: exit}
}

const (
	lost         = "the guest was sent to the target, and nobody is left who knows whether it has run there"
	lostPostCopy = "the source ended during the post-copy, before all of the guest's memory was at the target"
	lostBoth     = "both QEMUs ended during the switchover, before the guest went on in one of them"
)

// controllerTest edits the facts of a migration that has begun, and whose pods run.
type controllerTest struct {
	edit func(*switchover.ControllerFacts)
	want switchover.ControllerStep
}

func testController(t *testing.T, tests map[string]controllerTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := switchover.ControllerFacts{Record: recorded()}
			test.edit(&f)
			if got := switchover.DecideController(f); got != test.want {
				t.Errorf("it decides %+v, expected %+v", got, test.want)
			}
		})
	}
}

func concludes(action switchover.ControllerAction) switchover.ControllerStep {
	return switchover.ControllerStep{Action: action}
}

func because(action switchover.ControllerAction, reason string) switchover.ControllerStep {
	return switchover.ControllerStep{Action: action, Reason: reason}
}

func TestControllerWhileBothPodsRun(t *testing.T) {
	const deleted = "the VMI is being deleted"
	testController(t, map[string]controllerTest{
		"the migration goes on": {func(*switchover.ControllerFacts) {}, concludes(switchover.Nothing)},
		"before it has begun":   {func(f *switchover.ControllerFacts) { f.Record.Started = false }, concludes(switchover.Nothing)},
		"the VMI is being deleted before it has begun": {func(f *switchover.ControllerFacts) { f.Record.Deleting, f.Record.Started = true, false },
			because(switchover.ControllerRecordFailed, deleted)},
		"the abort is requested":   {func(f *switchover.ControllerFacts) { f.Record.Deleting, f.Record.AbortRequested = true, true }, concludes(switchover.Nothing)},
		"the VMI is being deleted": {func(f *switchover.ControllerFacts) { f.Record.Deleting = true }, because(switchover.RecordAbort, deleted)},
		"the target pod is being deleted": {func(f *switchover.ControllerFacts) { f.Target.State = switchover.PodGoes },
			because(switchover.RecordAbort, "the target pod is being deleted")},
		"the target pod is deleted before it has begun": {func(f *switchover.ControllerFacts) { f.Target.State, f.Record.Started = switchover.PodGoes, false },
			because(switchover.ControllerRecordFailed, "the target pod is being deleted")},
		"the source pod is being deleted: its guest may still move": {func(f *switchover.ControllerFacts) { f.Source.State = switchover.PodGoes }, concludes(switchover.Nothing)},
		"the record is another migration's":                         {func(f *switchover.ControllerFacts) { f.Record.Current, f.Record.Deleting = false, true }, concludes(switchover.Nothing)},
		"the VMI has ended":                                         {func(f *switchover.ControllerFacts) { f.Record.Final, f.Record.Deleting = true, true }, concludes(switchover.Nothing)},
	})
}

func TestControllerAfterTheMigration(t *testing.T) {
	completed := func(edit func(*switchover.ControllerFacts)) func(*switchover.ControllerFacts) {
		return func(f *switchover.ControllerFacts) {
			f.Record.Completed, f.Record.Switched = true, true
			edit(f)
		}
	}
	failed := func(edit func(*switchover.ControllerFacts)) func(*switchover.ControllerFacts) {
		return func(f *switchover.ControllerFacts) {
			f.Record.Failed = true
			edit(f)
		}
	}
	testController(t, map[string]controllerTest{
		"completed: the VMI goes to the target": {completed(func(f *switchover.ControllerFacts) { f.Record.Switched = false }), concludes(switchover.SwitchNode)},
		"completed, and the source has ended: first the VMI goes to the target": {completed(func(f *switchover.ControllerFacts) {
			f.Record.Switched, f.Source = false, ends(sentIt)
		}), concludes(switchover.SwitchNode)},
		"completed, and the source runs":             {completed(func(*switchover.ControllerFacts) {}), concludes(switchover.Nothing)},
		"completed, and the source has ended":        {completed(func(f *switchover.ControllerFacts) { f.Source = ends(sentIt) }), concludes(switchover.DropSource)},
		"completed, and the source has gone by now":  {completed(func(f *switchover.ControllerFacts) { f.Source, f.Record.SourceNamed = ends(noWord), false }), concludes(switchover.Nothing)},
		"completed, and the target ends":             {completed(func(f *switchover.ControllerFacts) { f.Target = ends(ranIt) }), concludes(switchover.EndAsTarget)},
		"failed: the target is dropped":              {failed(func(*switchover.ControllerFacts) {}), concludes(switchover.DropTarget)},
		"failed, and the target is dropped":          {failed(func(f *switchover.ControllerFacts) { f.Record.TargetNamed = false }), concludes(switchover.Nothing)},
		"failed, and the source ends":                {failed(func(f *switchover.ControllerFacts) { f.Source = ends(ranIt) }), concludes(switchover.EndAsSource)},
		"failed, and the source ends without a word": {failed(func(f *switchover.ControllerFacts) { f.Source = ends(noWord) }), concludes(switchover.EndAsSource)},
		"failed, and the source ends before it resumes": {failed(func(f *switchover.ControllerFacts) { f.Source = ends(sentIt) }),
			because(switchover.EndAsLost, lostBoth)},
	})
}

func TestControllerWhenTheSourcePodHasEnded(t *testing.T) {
	source := func(exit switchover.Exit, edit func(*switchover.ControllerFacts)) func(*switchover.ControllerFacts) {
		return func(f *switchover.ControllerFacts) {
			f.Source = ends(exit)
			edit(f)
		}
	}
	nothingElse := func(*switchover.ControllerFacts) {}
	notBegun := func(f *switchover.ControllerFacts) { f.Record.Started = false }
	postCopy := func(f *switchover.ControllerFacts) { f.Record.PostCopy = true }
	target := func(exit switchover.Exit) func(*switchover.ControllerFacts) {
		return func(f *switchover.ControllerFacts) { f.Target = ends(exit) }
	}
	testController(t, map[string]controllerTest{
		"after it has sent the guest: the target is released":         {source(sentIt, nothingElse), concludes(switchover.DropSource)},
		"after it has sent the guest, and was dropped":                {source(sentIt, func(f *switchover.ControllerFacts) { f.Record.SourceNamed = false }), concludes(switchover.Nothing)},
		"without a word, and was dropped after it had sent the guest": {source(noWord, func(f *switchover.ControllerFacts) { f.Record.SourceNamed = false }), concludes(switchover.Nothing)},
		"dropped in post-copy, and without a word":                    {source(noWord, func(f *switchover.ControllerFacts) { f.Record.SourceNamed, f.Record.PostCopy = false, true }), concludes(switchover.Nothing)},
		"dropped, and the target ended without having run":            {source(noWord, func(f *switchover.ControllerFacts) { f.Record.SourceNamed, f.Target = false, ends(neverIt) }), because(switchover.EndAsLost, lost)},
		"after it has sent the guest, in post-copy":                   {source(sentIt, postCopy), concludes(switchover.DropSource)},
		"its guest has ended":                                         {source(ranIt, nothingElse), concludes(switchover.EndAsSource)},
		"its guest has ended before the migration began":              {source(ranIt, notBegun), concludes(switchover.EndAsSource)},
		"without a word, before the migration began":                  {source(noWord, notBegun), concludes(switchover.EndAsSource)},
		"without a word": {source(noWord, nothingElse), because(switchover.RecordAbort, "the source pod ended without a word")},
		"without a word, and the abort is requested":   {source(noWord, func(f *switchover.ControllerFacts) { f.Record.AbortRequested = true }), concludes(switchover.Nothing)},
		"without a word, and the abort failed earlier": {source(noWord, func(f *switchover.ControllerFacts) { f.Record.AbortRequested, f.Record.AbortFailed = true, true }), concludes(switchover.Nothing)},
		"in post-copy":                 {source(ranIt, postCopy), because(switchover.EndAsLost, lostPostCopy)},
		"in post-copy, without a word": {source(noWord, postCopy), because(switchover.EndAsLost, lostPostCopy)},
		"after it has sent the guest, which ended at the target": {source(sentIt, target(ranIt)), concludes(switchover.EndAsTarget)},
		"after it has sent the guest, which never ran":           {source(sentIt, target(neverIt)), because(switchover.EndAsLost, lost)},
		"after it has sent the guest, and nobody knows":          {source(sentIt, target(noWord)), because(switchover.EndAsLost, lost)},
		"without a word, and the guest ended at the target":      {source(noWord, target(ranIt)), concludes(switchover.EndAsTarget)},
		"both without a word":                                    {source(noWord, target(noWord)), because(switchover.EndAsLost, lost)},
		"its guest has ended, and so has the target":             {source(ranIt, target(neverIt)), concludes(switchover.EndAsSource)},
		"in post-copy, and so has the target": {source(ranIt, func(f *switchover.ControllerFacts) { postCopy(f); f.Target = ends(ranIt) }),
			because(switchover.EndAsLost, lostPostCopy)},
		"after post-copy, and so has the target": {source(sentIt, func(f *switchover.ControllerFacts) { postCopy(f); f.Target = ends(ranIt) }), concludes(switchover.EndAsTarget)},
		"a Sent that is not virt-launcher's counts for nothing": {source(switchover.Exit{Sent: true}, nothingElse),
			because(switchover.RecordAbort, "the source pod ended without a word")},
	})
}

func TestControllerWhenTheTargetPodHasEnded(t *testing.T) {
	target := func(exit switchover.Exit, edit func(*switchover.Record)) func(*switchover.ControllerFacts) {
		return func(f *switchover.ControllerFacts) {
			f.Target = ends(exit)
			edit(&f.Record)
		}
	}
	nothingElse := func(*switchover.Record) {}
	notBegun := func(r *switchover.Record) { r.Started = false }
	const ended = "the target pod has ended"
	testController(t, map[string]controllerTest{
		"before the migration began":                    {target(neverIt, notBegun), because(switchover.ControllerRecordFailed, ended)},
		"before the migration began, without a word":    {target(noWord, notBegun), because(switchover.ControllerRecordFailed, ended)},
		"it never ran: the source is told":              {target(neverIt, nothingElse), concludes(switchover.DropTarget)},
		"it never ran, and was dropped":                 {target(neverIt, func(r *switchover.Record) { r.TargetNamed = false }), concludes(switchover.Nothing)},
		"without a word, and was dropped":               {target(noWord, func(r *switchover.Record) { r.TargetNamed = false }), concludes(switchover.Nothing)},
		"without a word, dropped, and the abort failed": {target(noWord, func(r *switchover.Record) { r.TargetNamed, r.AbortRequested, r.AbortFailed = false, true, true }), concludes(switchover.Nothing)},
		"it ran":         {target(ranIt, nothingElse), concludes(switchover.EndAsTarget)},
		"without a word": {target(noWord, nothingElse), because(switchover.RecordAbort, "the target pod ended without a word")},
		"without a word, and the source has not answered": {target(noWord, func(r *switchover.Record) { r.AbortRequested = true }), concludes(switchover.Nothing)},
		"without a word, and the source has sent the guest": {target(noWord, func(r *switchover.Record) { r.AbortRequested, r.AbortFailed = true, true }),
			because(switchover.EndAsLost, lost)},
		"a Ran that is not virt-launcher's counts for nothing": {target(switchover.Exit{Ran: true}, nothingElse),
			because(switchover.RecordAbort, "the target pod ended without a word")},
	})
}
