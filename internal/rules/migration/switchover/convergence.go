package switchover

import (
	"fmt"
	"math"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// Limits are a migration's limits, and its means to converge.
type Limits struct {
	// Completion limits the copying of memory, Stall the time without a transfer; 0 means no limit.
	Completion, Stall time.Duration
	// Bandwidth is in bytes a second, 0 for no limit. It and AutoConverge are fixed at the beginning.
	Bandwidth       int64
	AutoConverge    bool
	Downtime        time.Duration // the maximum of AllowedDowntime
	PostCopy, Pause bool          // allowed after Completion, in this order
}

// The defaults of KubeVirt's API.
const (
	secondsPerGiB = 150
	secondsStall  = 150
)

// mostDowntime is the default limit for the last of the guest's memory (decision 305). KubeVirt's own is 900 ms.
const mostDowntime = 100 * time.Millisecond

const (
	mib = 1 << 20
	gib = 1 << 30
)

// LimitsOf returns the limits for size bytes of memory and disks. Whether the nodes can do post-copy is the caller's
// check.
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

func seconds(each, n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	each = max(0, each)
	if each > most/n {
		return time.Duration(most) * time.Second
	}
	return time.Duration(each*n) * time.Second
}

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

const (
	firstDowntime    = 20 * time.Millisecond
	mostMilliseconds = 2_000_000 // QEMU's maximum of downtime-limit
	patientRounds    = 3         // before the downtime is raised
)

// AllowedDowntime returns QEMU's downtime-limit for the given round (dirty-sync-count of
// query-migrate, 1 for the first). A guest that writes much would never reach the shortest one.
func (l *Limits) AllowedDowntime(round int64) time.Duration {
	limit := firstDowntime
	for r := int64(patientRounds); r < round && limit < l.Downtime; r++ {
		limit *= 2
	}
	return min(limit, l.Downtime)
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

// DecideConvergence decides how a migration that copies memory continues. stopped is the time for which the guest has
// been seen stopped for it, 0 if it runs.
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

func amount(bytes int64) string {
	if bytes >= gib {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	}
	return fmt.Sprintf("%d MiB", (bytes+mib-1)/mib)
}

func rate(bytes int64) string { return amount(bytes) + "/s" }
