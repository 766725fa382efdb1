package switchover

import (
	"math"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// Limits are a migration's limits, and its means to converge.
type Limits struct {
	// Completion bounds the copying of memory, Stall the time without a transfer; 0 means no limit.
	Completion, Stall time.Duration
	// Bandwidth is in bytes per second, 0 for no limit. It and AutoConverge are fixed at the beginning.
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

// LimitsOf returns the limits for size bytes of memory and disks. The caller checks whether the nodes support post-copy.
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

const (
	firstDowntime    = 20 * time.Millisecond
	mostMilliseconds = 2_000_000 // QEMU's maximum of downtime-limit
	patientRounds    = 3         // before the downtime is raised
)

// AllowedDowntime returns QEMU's downtime-limit for a round (dirty-sync-count of query-migrate, 1 for the first). A guest
// that writes much would never reach the shortest limit.
func (l *Limits) AllowedDowntime(round int64) time.Duration {
	limit := firstDowntime
	for r := int64(patientRounds); r < round && limit < l.Downtime; r++ {
		limit *= 2
	}
	return min(limit, l.Downtime)
}
