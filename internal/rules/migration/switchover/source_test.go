package switchover_test

import (
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// recorded is the VMI's record of a migration under way.
func recorded() switchover.Record {
	return switchover.Record{Current: true, Addressed: true, Started: true, SourceNamed: true, TargetNamed: true}
}

// copying is a source that copies memory, with all conditions for the switchover.
func copying() switchover.SourceFacts {
	return switchover.SourceFacts{
		Record: recorded(), Process: switchover.ProcessRuns, RunState: "running", Status: migrationstatus.Active,
		Begun: true, Streams: true, Settled: true, Connected: true, Ready: true, Loaded: true,
	}
}

// sourceTest edits the facts of a source that copies memory.
type sourceTest struct {
	edit func(*switchover.SourceFacts)
	want switchover.SourceStep
}

func testSource(t *testing.T, base func(*switchover.SourceFacts), tests map[string]sourceTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := copying()
			base(&f)
			test.edit(&f)
			if got := switchover.DecideSource(f); got != test.want {
				t.Errorf("it decides %+v, expected %+v", got, test.want)
			}
		})
	}
}

var sourceWaits = switchover.SourceStep{Action: switchover.SourceWait}

func cancels(reason string) switchover.SourceStep {
	return switchover.SourceStep{Action: switchover.Cancel, Reason: reason}
}

func withdraws(reason string) switchover.SourceStep {
	return switchover.SourceStep{Action: switchover.Withdraw, Reason: reason}
}

func recordsFailed(reason string) switchover.SourceStep {
	return switchover.SourceStep{Action: switchover.RecordFailed, Reason: reason}
}

func asIs(*switchover.SourceFacts) {}

const (
	aborted    = "the migration was aborted"
	isEnding   = "the VMI is ending"
	targetGone = "the target's QEMU has ended"
	restarted  = "virt-handler at the source was restarted"
)

func TestSourceBeforeTheBeginning(t *testing.T) {
	base := func(f *switchover.SourceFacts) {
		f.Begun, f.Streams, f.Status = false, false, migrationstatus.None
		f.Record.Started = false
	}
	started := func(edit func(*switchover.SourceFacts)) func(*switchover.SourceFacts) {
		return func(f *switchover.SourceFacts) {
			f.Record.Started = true
			edit(f)
		}
	}
	testSource(t, base, map[string]sourceTest{
		"a target that is ready: the start is recorded first":   {asIs, switchover.SourceStep{Action: switchover.RecordStart}},
		"the start is recorded: the migration begins":           {started(asIs), switchover.SourceStep{Action: switchover.Begin}},
		"QEMU has migrated in vain before: the next one begins": {started(func(f *switchover.SourceFacts) { f.Status = migrationstatus.Failed }), switchover.SourceStep{Action: switchover.Begin}},
		"nothing is known of QEMU":                              {func(f *switchover.SourceFacts) { f.Process = switchover.ProcessUnknown }, sourceWaits},
		"QEMU has not been started":                             {func(f *switchover.SourceFacts) { f.Process = switchover.ProcessNotStarted }, sourceWaits},
		"the VMI says nothing of this migration":                {func(f *switchover.SourceFacts) { f.Record = switchover.Record{} }, sourceWaits},
		"the migration has failed":                              {started(func(f *switchover.SourceFacts) { f.Record.Failed = true }), sourceWaits},
		"the migration is completed":                            {started(func(f *switchover.SourceFacts) { f.Record.Completed = true }), sourceWaits},
		"the VMI has ended":                                     {started(func(f *switchover.SourceFacts) { f.Record.Final = true }), sourceWaits},
		"the target has no address yet":                         {func(f *switchover.SourceFacts) { f.Record.Addressed = false }, sourceWaits},
		"a disk is being plugged":                               {func(f *switchover.SourceFacts) { f.Settled = false }, sourceWaits},
		"the target can't be reached":                           {func(f *switchover.SourceFacts) { f.Connected = false }, sourceWaits},
		"the target has not said that it is ready":              {func(f *switchover.SourceFacts) { f.Ready = false }, sourceWaits},
		"QEMU is in a state that passes":                        {func(f *switchover.SourceFacts) { f.RunState = "save-vm" }, sourceWaits},
		"an abort before the start is virt-controller's":        {func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }, sourceWaits},
		"an abort after the start":                              {started(func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }), recordsFailed(aborted)},
		"the VMI is deleted after the start":                    {started(func(f *switchover.SourceFacts) { f.Record.Deleting = true }), recordsFailed(isEnding)},
		"the target ends after the start":                       {started(func(f *switchover.SourceFacts) { f.Never = true }), recordsFailed(targetGone)},
		"virt-controller has dropped the target":                {started(func(f *switchover.SourceFacts) { f.Record.TargetNamed = false }), recordsFailed(targetGone)},
		"the guest is paused": {func(f *switchover.SourceFacts) { f.RunState = "paused" },
			recordsFailed(`the guest does not run (QEMU's run state is "paused"), so it cannot be migrated`)},
		"QEMU is in a state that nobody knows": {func(f *switchover.SourceFacts) { f.RunState = "\x1bhibernating" },
			recordsFailed(`the guest does not run (QEMU's run state is "\x1bhibernating"), so it cannot be migrated`)},
	})
}

func TestSourceWhileItCopies(t *testing.T) {
	tooSlow := func(f *switchover.SourceFacts) {
		f.Convergence = switchover.Convergence{Action: switchover.GiveUp, Reason: "it is too slow"}
	}
	postCopy := func(f *switchover.SourceFacts) { f.Convergence.Action = switchover.ConvergeByPostCopy }
	pause := func(f *switchover.SourceFacts) { f.Convergence.Action = switchover.ConvergeByPause }
	testSource(t, asIs, map[string]sourceTest{
		"all is well":                    {asIs, sourceWaits},
		"setting up":                     {func(f *switchover.SourceFacts) { f.Status, f.Streams = migrationstatus.Setup, false }, cancels(restarted)},
		"waiting for a device to unplug": {func(f *switchover.SourceFacts) { f.Status, f.Streams = migrationstatus.WaitUnplug, false }, cancels(restarted)},
		"the connection to the target is lost: the stream says it": {func(f *switchover.SourceFacts) { f.Connected = false }, sourceWaits},
		"the migration has failed":                                 {func(f *switchover.SourceFacts) { f.Record.Failed = true }, cancels("the migration has failed")},
		"an abort":                                                 {func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }, cancels(aborted)},
		"the VMI is deleted":                                       {func(f *switchover.SourceFacts) { f.Record.Deleting = true }, cancels(isEnding)},
		"the VMI has ended":                                        {func(f *switchover.SourceFacts) { f.Record.Final = true }, cancels(isEnding)},
		"the target ends":                                          {func(f *switchover.SourceFacts) { f.Never = true }, cancels(targetGone)},
		"the target is dropped":                                    {func(f *switchover.SourceFacts) { f.Record.TargetNamed = false }, cancels(targetGone)},
		"virt-handler was restarted":                               {func(f *switchover.SourceFacts) { f.Streams = false }, cancels(restarted)},
		"it is too slow":                                           {tooSlow, cancels("it is too slow")},
		"post-copy is recorded first":                              {postCopy, switchover.SourceStep{Action: switchover.RecordPostCopy}},
		"post-copy is recorded":                                    {func(f *switchover.SourceFacts) { postCopy(f); f.Record.PostCopy = true }, switchover.SourceStep{Action: switchover.SwitchToPostCopy}},
		"the guest is stopped to switch, almost for too long":      {func(f *switchover.SourceFacts) { f.Switching = time.Minute - 1 }, sourceWaits},
		"the guest is stopped to switch for too long":              {func(f *switchover.SourceFacts) { f.Switching = time.Minute }, cancels("the guest stood still for 1m0s, and QEMU at the target did not read its memory")},
		"the guest is to be paused":                                {pause, switchover.SourceStep{Action: switchover.PauseGuest}},
		"the guest is paused":                                      {func(f *switchover.SourceFacts) { pause(f); f.RunState = "paused" }, sourceWaits},
		"QEMU cancels":                                             {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Canceling }, sourceWaits},
		"a status that nobody knows":                               {func(f *switchover.SourceFacts) { f.Status = "teleporting" }, sourceWaits},
		"an old Never of a record that is gone":                    {func(f *switchover.SourceFacts) { f.Record = switchover.Record{} }, sourceWaits},
	})
}

func TestSourceBeforeTheSwitchover(t *testing.T) {
	const limit = migrationstatus.Unattended
	base := func(f *switchover.SourceFacts) {
		f.RunState, f.Status = "finish-migrate", migrationstatus.PreSwitchover
	}
	at := func(stopped time.Duration, edit func(*switchover.SourceFacts)) func(*switchover.SourceFacts) {
		return func(f *switchover.SourceFacts) {
			f.Stopped = stopped
			edit(f)
		}
	}
	plugging := func(f *switchover.SourceFacts) { f.Settled = false }
	apart := func(f *switchover.SourceFacts) { f.Connected = false }
	unready := func(f *switchover.SourceFacts) { f.Ready = false }
	const unreachable = "virt-handler at the target could not be reached"
	testSource(t, base, map[string]sourceTest{
		"all is there":                             {asIs, switchover.SourceStep{Action: switchover.ContinueSwitchover}},
		"all is there at last":                     {at(time.Hour, asIs), switchover.SourceStep{Action: switchover.ContinueSwitchover}},
		"a disk is being plugged":                  {plugging, sourceWaits},
		"a disk is being plugged, almost too long": {at(limit-1, plugging), sourceWaits},
		"a disk is being plugged for too long":     {at(limit, plugging), cancels("a disk of the guest was being plugged or unplugged")},
		"no connection":                            {at(limit-1, apart), sourceWaits},
		"no connection for too long":               {at(limit, apart), cancels(unreachable)},
		"the target has not said Ready":            {at(limit-1, unready), sourceWaits},
		"the target never says Ready":              {at(limit, unready), cancels(unreachable)},
		"an abort":                                 {func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }, cancels(aborted)},
		"the VMI is deleted":                       {func(f *switchover.SourceFacts) { f.Record.Deleting = true }, cancels(isEnding)},
		"the target ends":                          {func(f *switchover.SourceFacts) { f.Never = true }, cancels(targetGone)},
		"virt-handler was restarted":               {func(f *switchover.SourceFacts) { f.Streams = false }, cancels(restarted)},
		"QEMU was told to go on":                   {func(f *switchover.SourceFacts) { f.Continued = true }, sourceWaits},
		"QEMU was told to go on, and does not answer": {func(f *switchover.SourceFacts) { f.Continued, f.Stopped = true, 62*time.Second },
			cancels("the guest stood still for 1m2s, and the last of its memory had not been sent")},
		"QEMU was told to go on, and an abort": {func(f *switchover.SourceFacts) { f.Continued, f.Record.AbortRequested = true, true }, cancels(aborted)},
		"post-copy was asked for too late":     {func(f *switchover.SourceFacts) { f.Convergence.Action = switchover.ConvergeByPostCopy }, switchover.SourceStep{Action: switchover.ContinueSwitchover}},
	})
}

func TestSourceInTheSwitchover(t *testing.T) {
	base := func(f *switchover.SourceFacts) { f.RunState, f.Status = "finish-migrate", migrationstatus.Device }
	testSource(t, base, map[string]sourceTest{
		"QEMU is at it":                                   {asIs, sourceWaits},
		"virt-handler was restarted":                      {func(f *switchover.SourceFacts) { f.Streams = false }, sourceWaits},
		"an abort: QEMU decides":                          {func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }, cancels(aborted)},
		"the target ends":                                 {func(f *switchover.SourceFacts) { f.Never = true }, cancels(targetGone)},
		"it takes almost too long":                        {func(f *switchover.SourceFacts) { f.Stopped, f.Downtime = 62*time.Second-1, 2*time.Second }, sourceWaits},
		"it takes too long":                               {func(f *switchover.SourceFacts) { f.Stopped, f.Downtime = 62*time.Second, 2*time.Second }, cancels("the guest stood still for 1m2s, and the last of its memory had not been sent")},
		"completed, and the run state is about to follow": {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Completed }, sourceWaits},
		"failed, and the guest is about to go on":         {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Failed }, sourceWaits},
		"canceled, and the guest is about to go on":       {func(f *switchover.SourceFacts) { f.Status = migrationstatus.Canceled }, sourceWaits},
		"sent, in a migration that did not complete":      {func(f *switchover.SourceFacts) { f.RunState = "postmigrate"; f.Status = migrationstatus.Failed }, sourceWaits},
	})
}

func TestSourceThatHasSentTheGuest(t *testing.T) {
	base := func(f *switchover.SourceFacts) { f.RunState, f.Status = "postmigrate", migrationstatus.Completed }
	released := switchover.SourceStep{Action: switchover.SourceWait, Tell: switchover.Released}
	quits := switchover.SourceStep{Action: switchover.Quit, Tell: switchover.Released}
	resumes := switchover.SourceStep{Action: switchover.Resume}
	testSource(t, base, map[string]sourceTest{
		"nothing is heard":                                       {asIs, released},
		"nothing is heard for an hour":                           {func(f *switchover.SourceFacts) { f.Stopped = time.Hour }, released},
		"nobody can be reached":                                  {func(f *switchover.SourceFacts) { f.Connected, f.Ready, f.Streams = false, false, false }, released},
		"the target has run the guest":                           {func(f *switchover.SourceFacts) { f.Ran = true }, quits},
		"the target's record says so":                            {func(f *switchover.SourceFacts) { f.Record.Completed = true }, quits},
		"the target never ran the guest: the record comes first": {func(f *switchover.SourceFacts) { f.Never = true }, recordsFailed(targetGone)},
		"the target is dropped":                                  {func(f *switchover.SourceFacts) { f.Record.TargetNamed = false }, recordsFailed(targetGone)},
		"the target never ran the guest, for an abort":           {func(f *switchover.SourceFacts) { f.Never = true; f.Record.AbortRequested = true }, recordsFailed(aborted)},
		"the failure is recorded":                                {func(f *switchover.SourceFacts) { f.Never = true; f.Record.Failed = true }, resumes},
		"the failure was recorded by an earlier virt-handler":    {func(f *switchover.SourceFacts) { f.Record.Failed = true }, resumes},
		"a target that says both has run":                        {func(f *switchover.SourceFacts) { f.Ran, f.Never = true, true }, quits},
		"a record of another migration drops nothing":            {func(f *switchover.SourceFacts) { f.Record = switchover.Record{} }, released},
		"an abort comes too late":                                {func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }, switchover.SourceStep{Action: switchover.RecordAbortFailed, Tell: switchover.Released}},
		"the abort is answered":                                  {func(f *switchover.SourceFacts) { f.Record.AbortRequested, f.Record.AbortFailed = true, true }, released},
		"the VMI is deleted":                                     {func(f *switchover.SourceFacts) { f.Record.Deleting = true }, released},
		"the VMI has ended":                                      {func(f *switchover.SourceFacts) { f.Record.Final, f.Record.AbortRequested = true, true }, sourceWaits},
		"the VMI has ended, and the migration with it":           {func(f *switchover.SourceFacts) { f.Record.Final, f.Record.Failed, f.Never = true, true, true }, sourceWaits},
		"the VMI has ended, and the target never ran":            {func(f *switchover.SourceFacts) { f.Record.Final, f.Never = true, true }, sourceWaits},
	})
}

func TestSourceWhoseGuestIsBack(t *testing.T) {
	base := func(f *switchover.SourceFacts) { f.Status = migrationstatus.Failed }
	testSource(t, base, map[string]sourceTest{
		"the stream broke":             {asIs, recordsFailed("the connection to the target has ended")},
		"virt-handler has canceled it": {func(f *switchover.SourceFacts) { f.Status, f.Cause = migrationstatus.Canceled, "it was too slow" }, recordsFailed("it was too slow")},
		"virt-handler has canceled it because the target has ended": {func(f *switchover.SourceFacts) {
			f.Status, f.Cause = migrationstatus.Canceled, "the target's QEMU has ended"
		}, recordsFailed("the target's QEMU has ended")},
		"an abort has ended the target before it was heard of here": {func(f *switchover.SourceFacts) {
			f.Status, f.Cause, f.Record.AbortRequested = migrationstatus.Canceled, "the target's QEMU has ended", true
		}, recordsFailed("the migration was aborted")},
		"it was too slow, and then aborted": {func(f *switchover.SourceFacts) {
			f.Status, f.Cause, f.Record.AbortRequested = migrationstatus.Canceled, "it was too slow", true
		}, recordsFailed("it was too slow")},
		"QEMU says why":                {func(f *switchover.SourceFacts) { f.Error = "no\x1b[2J memory" }, recordsFailed(`QEMU reports: "no\x1b[2J memory"`)},
		"QEMU says too much":           {func(f *switchover.SourceFacts) { f.Error = strings.Repeat("x", 1<<20) }, recordsFailed(`QEMU reports: "` + strings.Repeat("x", 512) + `"`)},
		"virt-handler was restarted":   {func(f *switchover.SourceFacts) { f.Streams = false }, recordsFailed(restarted)},
		"it was aborted":               {func(f *switchover.SourceFacts) { f.Record.AbortRequested, f.Error = true, "canceled" }, recordsFailed(aborted)},
		"the target has ended":         {func(f *switchover.SourceFacts) { f.Never, f.Error = true, "broken pipe" }, recordsFailed(targetGone)},
		"begun, and never started":     {func(f *switchover.SourceFacts) { f.Status, f.Streams = "", false }, recordsFailed(restarted)},
		"begun, and QEMU says none":    {func(f *switchover.SourceFacts) { f.Status, f.Streams = migrationstatus.None, false }, recordsFailed(restarted)},
		"resumed after it was sent":    {func(f *switchover.SourceFacts) { f.Status, f.Never = migrationstatus.Completed, true }, recordsFailed(targetGone)},
		"stopped by an I/O error":      {func(f *switchover.SourceFacts) { f.RunState = "io-error" }, recordsFailed("the connection to the target has ended")},
		"it has panicked":              {func(f *switchover.SourceFacts) { f.RunState = "guest-panicked" }, recordsFailed("the connection to the target has ended")},
		"in a state that nobody knows": {func(f *switchover.SourceFacts) { f.RunState = "hibernating" }, sourceWaits},
		"the failure is recorded":      {func(f *switchover.SourceFacts) { f.Record.Failed = true }, sourceWaits},
		"the VMI has ended":            {func(f *switchover.SourceFacts) { f.Record.Final = true }, sourceWaits},
	})
}

func TestSourceInPostCopy(t *testing.T) {
	base := func(f *switchover.SourceFacts) {
		f.RunState, f.Status, f.PostCopyBytes, f.Record.PostCopy = "finish-migrate", migrationstatus.PostCopyActive, 1, true
		f.Left = true
	}
	marks := switchover.SourceStep{Action: switchover.MarkLeft}
	released := switchover.SourceStep{Action: switchover.SourceWait, Tell: switchover.Released}
	const streamLost = "the connection to the target has ended"
	const notLoaded = "the guest stood still for 1m2s, and QEMU at the target had not loaded it"
	testSource(t, base, map[string]sourceTest{
		"a page was sent":                         {asIs, released},
		"a page was sent, and QEMU is not marked": {func(f *switchover.SourceFacts) { f.Left = false }, marks},
		"the stream breaks before QEMU is marked": {func(f *switchover.SourceFacts) { f.Left, f.Status = false, migrationstatus.PostCopyPaused }, marks},
		"it is being canceled, after it stood still for long": {func(f *switchover.SourceFacts) {
			f.Left, f.Status, f.Stopped, f.Canceling = false, migrationstatus.Canceling, time.Hour, time.Minute-1
		}, sourceWaits},
		"it was canceled by an older version when its stream broke": {func(f *switchover.SourceFacts) {
			f.Left, f.Status, f.Canceling = false, migrationstatus.Canceling, time.Minute
		}, switchover.SourceStep{Action: switchover.EndLost, Reason: "the stream of the post-copy broke while it was canceled, and QEMU does not give the guest back"}},
		"it is being canceled for long, and the guest runs": {func(f *switchover.SourceFacts) {
			f.Left, f.Status, f.RunState, f.Canceling = false, migrationstatus.Canceling, runstate.Running, time.Hour
		}, sourceWaits},
		"it fails before QEMU is marked": {func(f *switchover.SourceFacts) {
			f.Left, f.Status, f.RunState = false, migrationstatus.Failed, runstate.PausedToMigrate
		}, recordsFailed("the connection to the target has ended")},
		"it fails at its end": {func(f *switchover.SourceFacts) { f.Status, f.RunState = migrationstatus.Failed, runstate.PostMigrate }, released},
		"it fails at its end, and the target has all": {func(f *switchover.SourceFacts) {
			f.Status, f.RunState, f.Record.Completed = migrationstatus.Failed, runstate.PostMigrate, true
		}, switchover.SourceStep{Action: switchover.Quit, Tell: switchover.Released}},
		"the guest goes on here after it was sent": {func(f *switchover.SourceFacts) {
			f.Status, f.RunState = migrationstatus.None, runstate.Running
		}, recordsFailed("the connection to the target has ended")},
		"it is sent": {func(f *switchover.SourceFacts) {
			f.Status, f.RunState = migrationstatus.Completed, runstate.PostMigrate
		}, released},
		"no page was sent":                    {func(f *switchover.SourceFacts) { f.PostCopyBytes, f.Left = 0, false }, sourceWaits},
		"the target has not loaded the guest": {func(f *switchover.SourceFacts) { f.Loaded, f.Left = false, false }, sourceWaits},
		"the target is being started": {func(f *switchover.SourceFacts) {
			f.Status, f.PostCopyBytes, f.Left = migrationstatus.PostCopyDevice, 0, false
		}, sourceWaits},
		"no page was sent, almost for too long": {func(f *switchover.SourceFacts) {
			f.PostCopyBytes, f.Left, f.Stopped, f.Downtime = 0, false, 62*time.Second-1, 2*time.Second
		}, sourceWaits},
		"no page was sent for too long": {func(f *switchover.SourceFacts) {
			f.PostCopyBytes, f.Left, f.Stopped, f.Downtime = 0, false, 62*time.Second, 2*time.Second
		}, withdraws(notLoaded)},
		"the target does not load the guest": {func(f *switchover.SourceFacts) { f.Loaded, f.Left, f.Stopped = false, false, 62*time.Second }, withdraws(notLoaded)},
		"an abort before QEMU is marked":     {func(f *switchover.SourceFacts) { f.Left, f.Record.AbortRequested = false, true }, withdraws(aborted)},
		"an abort before QEMU is marked, and another virt-handler began": {func(f *switchover.SourceFacts) {
			f.Left, f.Record.AbortRequested, f.Streams = false, true, false
		}, marks},
		"the stream is lost":                       {func(f *switchover.SourceFacts) { f.Left, f.StreamLost = false, true }, withdraws(streamLost)},
		"the stream is lost before the first page": {func(f *switchover.SourceFacts) { f.Left, f.StreamLost, f.PostCopyBytes = false, true, 0 }, withdraws(streamLost)},
		"the stream is lost after QEMU was marked": {func(f *switchover.SourceFacts) { f.StreamLost = true }, released},
		"the target ends before QEMU is marked":    {func(f *switchover.SourceFacts) { f.Left, f.Never = false, true }, withdraws(targetGone)},
		"an abort when the stream has broken": {func(f *switchover.SourceFacts) {
			f.Left, f.Status, f.Record.AbortRequested = false, migrationstatus.PostCopyPaused, true
		}, marks},
		"marked, and it takes long":                       {func(f *switchover.SourceFacts) { f.Stopped = time.Hour }, released},
		"the target runs the guest, whose memory is here": {func(f *switchover.SourceFacts) { f.Ran = true }, released},
		"the target has all of it":                        {func(f *switchover.SourceFacts) { f.Record.Completed = true }, switchover.SourceStep{Action: switchover.Quit, Tell: switchover.Released}},
		"an abort comes too late":                         {func(f *switchover.SourceFacts) { f.Record.AbortRequested = true }, switchover.SourceStep{Action: switchover.RecordAbortFailed, Tell: switchover.Released}},
		"the stream breaks": {func(f *switchover.SourceFacts) { f.Status, f.PostCopyBytes = migrationstatus.PostCopyPaused, 0 },
			switchover.SourceStep{Action: switchover.Recover, Tell: switchover.Released}},
		"a new stream is being opened": {func(f *switchover.SourceFacts) { f.Status, f.PostCopyBytes = migrationstatus.PostCopyRecover, 0 }, released},
		"the target has ended": {func(f *switchover.SourceFacts) { f.Never = true }, switchover.SourceStep{Action: switchover.EndLost, Tell: switchover.Released,
			Reason: "the target ended during the post-copy, from which the guest cannot go back"}},
	})
}

func TestSourceWhoseQEMUHasEnded(t *testing.T) {
	base := func(f *switchover.SourceFacts) {
		f.Process, f.Exit = switchover.ProcessEnded, switchover.Exit{Known: true, Ran: true}
	}
	released := switchover.SourceStep{Action: switchover.SourceWait, Tell: switchover.Released}
	ends := switchover.SourceStep{Action: switchover.ReportEnd}
	silent := func(f *switchover.SourceFacts) { f.Exit = switchover.Exit{} }
	testSource(t, base, map[string]sourceTest{
		"after it has sent the guest":                           {func(f *switchover.SourceFacts) { f.Exit.Sent = true }, released},
		"after the migration":                                   {func(f *switchover.SourceFacts) { f.Exit.Sent, f.Record.Completed = true, true }, released},
		"before it has sent the guest":                          {asIs, ends},
		"without a word, during the migration":                  {silent, sourceWaits},
		"without a word, before it began":                       {func(f *switchover.SourceFacts) { silent(f); f.Record.Started = false }, ends},
		"without a word, after it failed":                       {func(f *switchover.SourceFacts) { silent(f); f.Record.Failed = true }, ends},
		"without a word, of another migration":                  {func(f *switchover.SourceFacts) { silent(f); f.Record.Current = false }, ends},
		"without a word, after it was completed":                {func(f *switchover.SourceFacts) { silent(f); f.Record.Completed = true }, sourceWaits},
		"the VMI has ended":                                     {func(f *switchover.SourceFacts) { f.Record.Final = true }, sourceWaits},
		"a word that is not virt-launcher's counts for nothing": {func(f *switchover.SourceFacts) { f.Exit = switchover.Exit{Sent: true} }, sourceWaits},
	})
}
