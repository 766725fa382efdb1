package switchover

import (
	"fmt"
	"strings"
	"time"
)

// Sample is a result of query-migrate.
type Sample struct {
	Elapsed                time.Duration // since the migration began
	Transferred, Remaining int64         // in bytes
	DirtyRate, Throughput  int64         // in bytes a second
}

// Progress summarizes a series of samples. The zero value is a migration that has just begun.
type Progress struct {
	Last  Sample
	Moved time.Duration // Elapsed at the last transfer
}

// Add returns the progress with one more sample.
func (p Progress) Add(s Sample) Progress {
	if s.Transferred > p.Last.Transferred {
		p.Moved = s.Elapsed
	}
	p.Last = s
	return p
}

// ConvergenceAction is a means to make a migration converge.
type ConvergenceAction string

// The means to converge.
const (
	LetCopy            ConvergenceAction = ""
	ConvergeByPostCopy ConvergenceAction = "post-copy" // moves the guest before its memory
	ConvergeByPause    ConvergenceAction = "pause"     // stops the guest while its memory is copied
	GiveUp             ConvergenceAction = "give up"   // cancels the migration
)

// Convergence is the result of DecideConvergence.
type Convergence struct {
	Action ConvergenceAction
	Reason string // the cause and the remedy, for GiveUp
}

// DecideConvergence decides how a migration that copies memory continues. stopped is how long the guest has been stopped
// for it, 0 if it runs.
func DecideConvergence(p Progress, l Limits, stopped time.Duration) Convergence {
	stalled := p.Last.Elapsed - p.Moved
	switch {
	case l.Stall > 0 && stalled >= l.Stall:
		return giveUp(fmt.Sprintf("nothing was transferred for %s; check the network between the nodes", stalled.Round(time.Second)))
	case l.Completion > 0 && stopped >= max(l.Completion, leastStop):
		reason := fmt.Sprintf("the guest was stopped for %s to be sent, and %s are left at %s; raise completionTimeoutPerGiB",
			stopped.Round(time.Second), amount(p.Last.Remaining), rate(p.Last.Throughput))
		if l.Bandwidth > 0 {
			reason += fmt.Sprintf(" or bandwidthPerMigration, which is %s", rate(l.Bandwidth))
		}
		return giveUp(reason)
	case l.Completion == 0, p.Last.Elapsed < l.Completion:
		return Convergence{}
	case l.PostCopy:
		return Convergence{Action: ConvergeByPostCopy}
	case l.Pause:
		return Convergence{Action: ConvergeByPause}
	}
	return giveUp(tooSlow(p.Last, l))
}

// Clients of KubeVirt match 'has been aborted'.
func giveUp(why string) Convergence {
	return Convergence{Action: GiveUp, Reason: "the migration has been aborted: " + why}
}

// A guest may be stopped as long as it may be copied while it runs, and at least for leastStop (decision 362).
const leastStop = secondsPerGiB * time.Second

func tooSlow(s Sample, l Limits) string {
	cause := fmt.Sprintf("%s are left after %s at %s", amount(s.Remaining), s.Elapsed.Round(time.Second), rate(s.Throughput))
	help := []string{"raise completionTimeoutPerGiB"}
	if s.DirtyRate >= s.Throughput {
		cause = fmt.Sprintf("the guest dirties memory at %s, and the migration transfers %s, so it has not ended after %s",
			rate(s.DirtyRate), rate(s.Throughput), s.Elapsed.Round(time.Second))
		help = nil
		if !l.AutoConverge {
			help = append(help, "allow auto-converge")
		}
		help = append(help, "allow post-copy")
	}
	if l.Bandwidth > 0 {
		help = append(help, fmt.Sprintf("raise bandwidthPerMigration, which is %s", rate(l.Bandwidth)))
	}
	return cause + "; " + strings.Join(help, " or ")
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

func amount(bytes int64) string {
	if bytes >= gib {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	}
	return fmt.Sprintf("%d MiB", (bytes+mib-1)/mib)
}

func rate(bytes int64) string { return amount(bytes) + "/s" }
