package switchover

import (
	"fmt"
	"math"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// Limits are what a migration may take, and what may be done to make it end.
type Limits struct {
	// Completion is how long memory may be copied, Stall how long nothing may be transferred;
	// 0 for no limit.
	Completion, Stall time.Duration
	// Bandwidth is in bytes a second, 0 for no limit. Bandwidth and AutoConverge are parameters
	// of the migration from its beginning.
	Bandwidth    int64
	AutoConverge bool
	// Downtime is how long QEMU may expect to stop the guest for the last of its memory, at most (AllowedDowntime).
	Downtime time.Duration
	// PostCopy and Pause are what may be done when Completion is over, in this order.
	PostCopy, Pause bool
}

// The limits of KubeVirt's API where nothing is set.
const (
	secondsPerGiB = 150
	secondsStall  = 150
)

// mostDowntime is how long guests stand still for the last of their memory where no limit is set (decision 305).
// KubeVirt's own limit is 900 ms.
const mostDowntime = 100 * time.Millisecond

const (
	mib = 1 << 20
	gib = 1 << 30
)

// LimitsOf returns the limits of a migration that moves so many bytes of memory and disks.
// What post-copy needs of the nodes is for the caller to know.
func LimitsOf(config *v1.VMIMConfigurationOptions, size int64) Limits {
	if config == nil {
		config = &v1.VMIMConfigurationOptions{}
	}
	l := Limits{
		Completion:   seconds(value(config.CompletionTimeoutPerGiB, secondsPerGiB), max(1, (size+gib-1)/gib)),
		Stall:        seconds(value(config.ProgressTimeout, secondsStall), 1),
		AutoConverge: value(config.AllowAutoConverge, false),
		Downtime:     mostDowntime,
	}
	if config.BandwidthPerMigration != nil {
		l.Bandwidth = max(0, config.BandwidthPerMigration.Value())
	}
	if limit := config.MaxDowntimeMs; limit != nil {
		l.Downtime = time.Duration(min(max(1, *limit), mostMilliseconds)) * time.Millisecond
	}
	postCopy := value(config.AllowPostCopy, false)
	disrupt := value(config.AllowWorkloadDisruption, postCopy)
	l.PostCopy, l.Pause = postCopy && disrupt, disrupt
	return l
}

func value[T any](set *T, otherwise T) T {
	if set == nil {
		return otherwise
	}
	return *set
}

// seconds is n times a number of seconds that a user has chosen, as far as a Duration goes.
func seconds(each, n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	each = max(0, each)
	if each > most/n {
		return time.Duration(most) * time.Second
	}
	return time.Duration(each*n) * time.Second
}

// Sample is what query-migrate says while memory is copied.
type Sample struct {
	// Elapsed is the time since the migration's beginning.
	Elapsed time.Duration
	// Transferred and Remaining are in bytes, DirtyRate and Throughput in bytes a second.
	Transferred, Remaining, DirtyRate, Throughput int64
}

// Progress is what a row of samples has shown. The zero value is that of a migration that has
// just begun.
type Progress struct {
	Last Sample
	// Moved is when something was transferred last.
	Moved time.Duration
}

// Add returns the progress with one more sample.
func (p Progress) Add(s Sample) Progress {
	if s.Transferred > p.Last.Transferred {
		p.Moved = s.Elapsed
	}
	p.Last = s
	return p
}

const (
	// firstDowntime is how long QEMU may expect to stop a guest for the last of its memory at first.
	firstDowntime = 20 * time.Millisecond
	// mostMilliseconds is the most that QEMU takes (downtime-limit of migrate-set-parameters).
	mostMilliseconds = 2_000_000
	// patientRounds are how many rounds a guest gets before it is to stand still for longer.
	patientRounds = 3
)

// AllowedDowntime returns how long QEMU may expect to stop a guest for the last of its memory, in the given round through
// it (dirty-sync-count of query-migrate, 1 for the first). A guest that changes little comes to
// the shortest stop with a round more. One that changes much would not come to it ever, and stands still for longer.
func (l *Limits) AllowedDowntime(round int64) time.Duration {
	limit := firstDowntime
	for r := int64(patientRounds); r < round && limit < l.Downtime; r++ {
		limit *= 2
	}
	return min(limit, l.Downtime)
}

// ConvergenceAction is what is done so that a migration ends.
type ConvergenceAction string

const (
	// LetCopy means that the migration goes on as it is.
	LetCopy ConvergenceAction = ""
	// ConvergeByPostCopy means that the guest moves now, and its memory follows.
	ConvergeByPostCopy ConvergenceAction = "post-copy"
	// ConvergeByPause means that the guest is stopped while its memory is copied.
	ConvergeByPause ConvergenceAction = "pause"
	// GiveUp means that the migration is canceled.
	GiveUp ConvergenceAction = "give up"
)

// Convergence is what DecideConvergence decides.
type Convergence struct {
	Action ConvergenceAction
	// Reason goes with GiveUp: what happened, and what would help.
	Reason string
}

// DecideConvergence decides whether a migration that copies memory goes on.
func DecideConvergence(p Progress, l Limits) Convergence {
	stalled := p.Last.Elapsed - p.Moved
	switch {
	case l.Stall > 0 && stalled >= l.Stall:
		return Convergence{Action: GiveUp, Reason: fmt.Sprintf(
			"the migration has transferred nothing for %s; check the network between the nodes", stalled.Round(time.Second))}
	case l.Completion == 0, p.Last.Elapsed < l.Completion:
		return Convergence{}
	case l.PostCopy:
		return Convergence{Action: ConvergeByPostCopy}
	case l.Pause:
		return Convergence{Action: ConvergeByPause}
	}
	return Convergence{Action: GiveUp, Reason: tooSlow(p.Last, l)}
}

// tooSlow says why a migration has not ended in its time.
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

func amount(bytes int64) string {
	if bytes >= gib {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	}
	return fmt.Sprintf("%d MiB", (bytes+mib-1)/mib)
}

func rate(bytes int64) string { return amount(bytes) + "/s" }
