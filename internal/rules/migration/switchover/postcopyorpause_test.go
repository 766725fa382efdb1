package switchover_test

import (
	"testing"
	"time"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestProgressOfAMigration(t *testing.T) {
	var p switchover.Progress
	for _, step := range []struct {
		at, moved   time.Duration
		transferred int64
	}{{1, 1, 10}, {2, 1, 10}, {3, 3, 11}, {4, 3, 11}, {5, 3, 5}, {6, 6, 6}} {
		p = p.Add(switchover.Sample{Elapsed: step.at, Transferred: step.transferred})
		if p.Moved != step.moved || p.Last.Elapsed != step.at {
			t.Errorf("at %d, with %d transferred, it moved last at %d, expected %d", step.at, step.transferred, p.Moved, step.moved)
		}
	}
}

func TestConvergence(t *testing.T) {
	limits := switchover.Limits{Completion: 150 * time.Second, Stall: 20 * time.Second}
	limited := func(edit func(*switchover.Limits)) switchover.Limits {
		l := limits
		edit(&l)
		return l
	}
	at := func(elapsed, moved time.Duration) switchover.Progress {
		return switchover.Progress{Moved: moved, Last: switchover.Sample{
			Elapsed: elapsed, Transferred: 3 * gib, Remaining: 3 * gib / 2, DirtyRate: 120 * mib, Throughput: 64 * mib}}
	}
	now := at(150*time.Second, 150*time.Second)
	slow := now
	slow.Last.DirtyRate = 64*mib - 1
	even := now
	even.Last.DirtyRate = 64 * mib
	small := slow
	small.Last.Remaining = mib + 1
	gives := func(reason string) switchover.Convergence {
		return switchover.Convergence{Action: switchover.GiveUp, Reason: "the migration has been aborted: " + reason}
	}
	goesOn := switchover.Convergence{}
	const busy = "the guest dirties memory at 120 MiB/s, and the migration transfers 64 MiB/s, so it has not ended after 2m30s; "
	tests := map[string]struct {
		progress switchover.Progress
		limits   switchover.Limits
		stopped  time.Duration
		want     switchover.Convergence
	}{
		"it has just begun":           {switchover.Progress{}, limits, 0, goesOn},
		"almost out of time":          {at(150*time.Second-1, 149*time.Second), limits, 0, goesOn},
		"almost stalled":              {at(30*time.Second, 10*time.Second+1), limits, 0, goesOn},
		"stalled":                     {at(30*time.Second, 10*time.Second), limits, 0, gives("nothing was transferred for 20s; check the network between the nodes")},
		"stalled, with post-copy":     {at(200*time.Second, 10*time.Second), limited(func(l *switchover.Limits) { l.PostCopy, l.Pause = true, true }), 0, gives("nothing was transferred for 3m10s; check the network between the nodes")},
		"stalled without a limit":     {at(100*time.Second, 0), limited(func(l *switchover.Limits) { l.Stall = 0 }), 0, goesOn},
		"out of time without a limit": {now, limited(func(l *switchover.Limits) { l.Completion = 0 }), 0, goesOn},
		"out of time, with post-copy": {now, limited(func(l *switchover.Limits) { l.PostCopy, l.Pause = true, true }), 0, switchover.Convergence{Action: switchover.ConvergeByPostCopy}},
		"out of time, with a pause":   {now, limited(func(l *switchover.Limits) { l.Pause = true }), 0, switchover.Convergence{Action: switchover.ConvergeByPause}},
		"stopped almost for too long": {now, limited(func(l *switchover.Limits) { l.Pause = true }), 150*time.Second - 1, switchover.Convergence{Action: switchover.ConvergeByPause}},
		"stopped for too long": {now, limited(func(l *switchover.Limits) { l.Pause = true }), 150 * time.Second,
			gives("the guest was stopped for 2m30s to be sent, and 1.5 GiB are left at 64 MiB/s; raise completionTimeoutPerGiB")},
		"stopped for too long, with a bandwidth": {now, limited(func(l *switchover.Limits) { l.Pause, l.Bandwidth = true, 64*mib }), 151 * time.Second,
			gives("the guest was stopped for 2m31s to be sent, and 1.5 GiB are left at 64 MiB/s; raise completionTimeoutPerGiB or bandwidthPerMigration, which is 64 MiB/s")},
		"stopped for too long, with post-copy": {now, limited(func(l *switchover.Limits) { l.PostCopy, l.Pause = true, true }), 150 * time.Second,
			gives("the guest was stopped for 2m30s to be sent, and 1.5 GiB are left at 64 MiB/s; raise completionTimeoutPerGiB")},
		"stopped after a short time, almost for too long": {at(152*time.Second, 151*time.Second), limited(func(l *switchover.Limits) { l.Completion, l.Pause = 2*time.Second, true }), 150*time.Second - 1,
			switchover.Convergence{Action: switchover.ConvergeByPause}},
		"stopped for as long as a large guest may be copied": {at(900*time.Second, 899*time.Second), limited(func(l *switchover.Limits) { l.Completion, l.Pause = 400*time.Second, true }), 400*time.Second - 1,
			switchover.Convergence{Action: switchover.ConvergeByPause}},
		"a guest that has not been stopped, long after its time": {at(time.Hour, time.Hour), limited(func(l *switchover.Limits) { l.Pause = true }), 0, switchover.Convergence{Action: switchover.ConvergeByPause}},
		"stopped, without a limit":                               {now, limited(func(l *switchover.Limits) { l.Completion = 0 }), time.Hour, goesOn},
		"stopped and stalled":                                    {at(30*time.Second, 10*time.Second), limits, time.Hour, gives("nothing was transferred for 20s; check the network between the nodes")},
		"the guest is too busy":                                  {now, limits, 0, gives(busy + "allow auto-converge or allow post-copy")},
		"too busy with auto-converge":                            {now, limited(func(l *switchover.Limits) { l.AutoConverge = true }), 0, gives(busy + "allow post-copy")},
		"too busy for the bandwidth":                             {now, limited(func(l *switchover.Limits) { l.Bandwidth = 64 * mib }), 0, gives(busy + "allow auto-converge or allow post-copy or raise bandwidthPerMigration, which is 64 MiB/s")},
		"as busy as the connection":                              {even, limits, 0, gives("the guest dirties memory at 64 MiB/s, and the migration transfers 64 MiB/s, so it has not ended after 2m30s; allow auto-converge or allow post-copy")},
		"there is too much of it":                                {slow, limits, 0, gives("1.5 GiB are left after 2m30s at 64 MiB/s; raise completionTimeoutPerGiB")},
		"too much for the bandwidth":                             {slow, limited(func(l *switchover.Limits) { l.Bandwidth = gib }), 0, gives("1.5 GiB are left after 2m30s at 64 MiB/s; raise completionTimeoutPerGiB or raise bandwidthPerMigration, which is 1.0 GiB/s")},
		"a begun MiB counts as one":                              {small, limits, 0, gives("2 MiB are left after 2m30s at 64 MiB/s; raise completionTimeoutPerGiB")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := switchover.DecideConvergence(test.progress, test.limits, test.stopped); got != test.want {
				t.Errorf("it decides %+v, expected %+v", got, test.want)
			}
		})
	}
}
