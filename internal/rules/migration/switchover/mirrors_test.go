package switchover_test

import (
	"testing"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

const (
	endedEarly = "the copy of a disk to the target has ended before the guest was stopped"
	notCopied  = "a disk of the guest is not copied to the target any more"
	copyFailed = `the copy of volume root to the target has failed: QEMU reports "Input/output error"`
)

func mirrors(state switchover.MirrorState, more ...func(*switchover.SourceFacts)) func(*switchover.SourceFacts) {
	return func(f *switchover.SourceFacts) {
		f.Mirrors = switchover.Mirrors{State: state, Begun: true, Left: true}
		if state == switchover.MirrorsFailed {
			f.Mirrors.Error = copyFailed
		}
		for _, edit := range more {
			edit(f)
		}
	}
}

func TestDisksAreCopiedBeforeMemory(t *testing.T) {
	base := func(f *switchover.SourceFacts) { f.Begun, f.Status = false, migrationstatus.None }
	unbegun := func(f *switchover.SourceFacts) { f.Mirrors.Begun, f.Streams = false, false }
	testSource(t, base, map[string]sourceTest{
		"the start is recorded before a disk is copied": {mirrors(switchover.MirrorsMissing, unbegun, func(f *switchover.SourceFacts) { f.Record.Started = false }),
			switchover.SourceStep{Action: switchover.RecordStart}},
		"no disk is copied yet":                           {mirrors(switchover.MirrorsMissing, unbegun), switchover.SourceStep{Action: switchover.MirrorDisks}},
		"one of two disks is copied: the other follows":   {mirrors(switchover.MirrorsMissing), switchover.SourceStep{Action: switchover.MirrorDisks}},
		"they are being copied":                           {mirrors(switchover.MirrorsCopy), sourceWaits},
		"all have been copied":                            {mirrors(switchover.MirrorsReady), switchover.SourceStep{Action: switchover.Begin}},
		"a copy fails":                                    {mirrors(switchover.MirrorsFailed), recordsFailed(copyFailed)},
		"a copy ends":                                     {mirrors(switchover.MirrorsFinished), recordsFailed(endedEarly)},
		"another virt-handler has begun":                  {mirrors(switchover.MirrorsCopy, func(f *switchover.SourceFacts) { f.Streams = false }), recordsFailed(restarted)},
		"another virt-handler has begun with one of them": {mirrors(switchover.MirrorsMissing, func(f *switchover.SourceFacts) { f.Streams = false }), recordsFailed(restarted)},
		"it takes too long": {mirrors(switchover.MirrorsCopy, func(f *switchover.SourceFacts) {
			f.Convergence = switchover.Convergence{Action: switchover.GiveUp, Reason: "it is too slow"}
		}), recordsFailed("it is too slow")},
		"an abort is asked for":   {mirrors(switchover.MirrorsCopy, func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }), recordsFailed(aborted)},
		"the target ends":         {mirrors(switchover.MirrorsCopy, func(f *switchover.SourceFacts) { f.Never = true }), recordsFailed(targetGone)},
		"the failure is recorded": {mirrors(switchover.MirrorsCopy, func(f *switchover.SourceFacts) { f.Record.Failed = true }), switchover.SourceStep{Action: switchover.EndMirrors}},
		"the failure is recorded, and nothing is known of QEMU": {mirrors(switchover.MirrorsCopy, func(f *switchover.SourceFacts) {
			f.Record.Failed, f.Process = true, switchover.ProcessUnknown
		}), sourceWaits},
		"the failure is recorded, and nothing is left": {mirrors(switchover.MirrorsMissing, func(f *switchover.SourceFacts) { f.Record.Failed, f.Mirrors.Left = true, false }), sourceWaits},
	})
}

func TestDisksStayTheSameWhileMemoryIsCopied(t *testing.T) {
	testSource(t, asIs, map[string]sourceTest{
		"all go on":                 {mirrors(switchover.MirrorsReady), sourceWaits},
		"one has failed":            {mirrors(switchover.MirrorsFailed), cancels(copyFailed)},
		"one is not there any more": {mirrors(switchover.MirrorsMissing), cancels(notCopied)},
		"one has ended":             {mirrors(switchover.MirrorsFinished), cancels(endedEarly)},
		"one is about to end":       {mirrors(switchover.MirrorsCopy), cancels(endedEarly)},
	})
	testSource(t, func(f *switchover.SourceFacts) { f.Status = migrationstatus.Canceled }, map[string]sourceTest{
		"the migration has come to nothing: that is recorded first": {mirrors(switchover.MirrorsReady), recordsFailed("the connection to the target has ended")},
		"then the copies end": {mirrors(switchover.MirrorsReady, func(f *switchover.SourceFacts) { f.Record.Failed = true }), switchover.SourceStep{Action: switchover.EndMirrors}},
	})
}

func TestTheSwitchoverWaitsForTheDisks(t *testing.T) {
	base := func(f *switchover.SourceFacts) {
		f.Status, f.RunState = migrationstatus.PreSwitchover, "finish-migrate"
	}
	late := func(f *switchover.SourceFacts) { f.Stopped = overdue }
	testSource(t, base, map[string]sourceTest{
		"the guest stands still: the copies end":  {mirrors(switchover.MirrorsReady), switchover.SourceStep{Action: switchover.FinishMirrors}},
		"they are about to end":                   {mirrors(switchover.MirrorsCopy), sourceWaits},
		"they have ended":                         {mirrors(switchover.MirrorsFinished), switchover.SourceStep{Action: switchover.ContinueSwitchover}},
		"they have ended, however late it is":     {mirrors(switchover.MirrorsFinished, late), switchover.SourceStep{Action: switchover.ContinueSwitchover}},
		"one has failed at its end":               {mirrors(switchover.MirrorsFailed), cancels(copyFailed)},
		"one is not there any more":               {mirrors(switchover.MirrorsMissing), cancels(notCopied)},
		"the target can't be reached: they go on": {mirrors(switchover.MirrorsReady, func(f *switchover.SourceFacts) { f.Connected = false }), sourceWaits},
		"they don't come to an end": {mirrors(switchover.MirrorsCopy, late),
			cancels("the last of what the guest has written could not be copied to the target in time")},
	})
}

func TestTheSourceThatSentItsGuestKeepsItsDisks(t *testing.T) {
	base := func(f *switchover.SourceFacts) { f.Status, f.RunState = migrationstatus.Completed, "postmigrate" }
	testSource(t, base, map[string]sourceTest{
		"it is sent":                {mirrors(switchover.MirrorsFinished), switchover.SourceStep{Action: switchover.SourceWait, Tell: switchover.Released}},
		"it comes back":             {mirrors(switchover.MirrorsFinished, func(f *switchover.SourceFacts) { f.Record.Failed = true }), switchover.SourceStep{Action: switchover.Resume}},
		"it is back, and runs here": {mirrors(switchover.MirrorsFinished, func(f *switchover.SourceFacts) { f.Record.Failed, f.RunState = true, "running" }), switchover.SourceStep{Action: switchover.EndMirrors}},
	})
}

func TestMirrorsOfSeveralDisks(t *testing.T) {
	disk := func(status, err string) switchover.Mirror {
		return switchover.Mirror{Volume: "root", Status: status, Error: err, Done: 1, Total: 2}
	}
	missing, running, ready := disk("", ""), disk("running", ""), disk("ready", "")
	finished, failed := disk("concluded", ""), disk("concluded", "Input/output error")
	for name, test := range map[string]struct {
		disks []switchover.Mirror
		want  switchover.MirrorState
	}{
		"none":                        {nil, switchover.MirrorsUnneeded},
		"one without a job":           {[]switchover.Mirror{missing}, switchover.MirrorsMissing},
		"one that is copied":          {[]switchover.Mirror{running}, switchover.MirrorsCopy},
		"one that is ready":           {[]switchover.Mirror{ready}, switchover.MirrorsReady},
		"one that waits while ready":  {[]switchover.Mirror{disk("standby", "")}, switchover.MirrorsReady},
		"one that has ended":          {[]switchover.Mirror{finished}, switchover.MirrorsFinished},
		"one that is ending":          {[]switchover.Mirror{disk("waiting", "")}, switchover.MirrorsCopy},
		"one that is giving up":       {[]switchover.Mirror{disk("aborting", "")}, switchover.MirrorsFailed},
		"a status that nobody knows":  {[]switchover.Mirror{disk("resting", "")}, switchover.MirrorsCopy},
		"one behind the other":        {[]switchover.Mirror{ready, running}, switchover.MirrorsCopy},
		"one that has not begun":      {[]switchover.Mirror{ready, missing}, switchover.MirrorsMissing},
		"one that has ended earlier":  {[]switchover.Mirror{finished, ready}, switchover.MirrorsReady},
		"a failure counts before all": {[]switchover.Mirror{missing, failed, ready}, switchover.MirrorsFailed},
		"and wherever it is":          {[]switchover.Mirror{failed, missing}, switchover.MirrorsFailed},
	} {
		t.Run(name, func(t *testing.T) {
			got := switchover.MirrorsOf(test.disks)
			begun := false
			for _, d := range test.disks {
				begun = begun || d.Status != ""
			}
			n := int64(len(test.disks))
			want := switchover.Mirrors{State: test.want, Begun: begun, Done: n, Total: 2 * n, Error: got.Error}
			if got != want || (got.Error != "") != (test.want == switchover.MirrorsFailed) {
				t.Errorf("they are %+v, want %+v", got, want)
			}
		})
	}
	if got := switchover.MirrorsOf([]switchover.Mirror{failed}).Error; got != copyFailed {
		t.Errorf("the failure is %q", got)
	}
	if got := switchover.MirrorsOf([]switchover.Mirror{{Status: "running", Done: -5, Total: -9}}); got.Done != 0 || got.Total != 0 {
		t.Errorf("figures below zero count: %+v", got)
	}
}
