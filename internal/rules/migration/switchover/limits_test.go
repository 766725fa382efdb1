package switchover_test

import (
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func TestLimitsOfAMigration(t *testing.T) {
	defaults := switchover.Limits{Completion: 150 * time.Second, Stall: 150 * time.Second, Downtime: 100 * time.Millisecond}
	with := func(edit func(*switchover.Limits)) switchover.Limits {
		l := defaults
		edit(&l)
		return l
	}
	within := func(completion, stall time.Duration) switchover.Limits {
		return with(func(l *switchover.Limits) { l.Completion, l.Stall = completion, stall })
	}
	const forever = math.MaxInt64 / time.Second * time.Second
	tests := map[string]struct {
		config *v1.VMIMConfigurationOptions
		size   int64
		want   switchover.Limits
	}{
		"nothing is set":                 {nil, gib, defaults},
		"an empty configuration":         {&v1.VMIMConfigurationOptions{}, gib, defaults},
		"next to nothing moves":          {nil, 1, defaults},
		"nothing moves":                  {nil, 0, defaults},
		"one byte more than a GiB":       {nil, gib + 1, with(func(l *switchover.Limits) { l.Completion = 300 * time.Second })},
		"two GiB":                        {nil, 2 * gib, with(func(l *switchover.Limits) { l.Completion = 300 * time.Second })},
		"limits of their own":            {&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(10)), ProgressTimeout: new(int64(20))}, 4 * gib, within(40*time.Second, 20*time.Second)},
		"no limits":                      {&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(0)), ProgressTimeout: new(int64(0))}, gib, within(0, 0)},
		"negative limits are none":       {&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(-1)), ProgressTimeout: new(int64(-1))}, gib, within(0, 0)},
		"limits beyond all time":         {&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(int64(math.MaxInt64)), ProgressTimeout: new(int64(math.MaxInt64))}, 8 * gib, within(forever, forever)},
		"the largest that fits":          {&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(math.MaxInt64 / int64(time.Second) / 5)}, 5 * gib, with(func(l *switchover.Limits) { l.Completion = forever - time.Second })},
		"the smallest that does not fit": {&v1.VMIMConfigurationOptions{CompletionTimeoutPerGiB: new(math.MaxInt64/int64(time.Second)/5 + 1)}, 5 * gib, with(func(l *switchover.Limits) { l.Completion = forever })},
		"a bandwidth":                    {&v1.VMIMConfigurationOptions{BandwidthPerMigration: new(resource.MustParse("64Mi"))}, gib, with(func(l *switchover.Limits) { l.Bandwidth = 64 * mib })},
		"a negative bandwidth":           {&v1.VMIMConfigurationOptions{BandwidthPerMigration: new(resource.MustParse("-1"))}, gib, defaults},
		"a downtime":                     {&v1.VMIMConfigurationOptions{MaxDowntimeMs: new(uint64(900))}, gib, with(func(l *switchover.Limits) { l.Downtime = 900 * time.Millisecond })},
		"a downtime beyond QEMU's most":  {&v1.VMIMConfigurationOptions{MaxDowntimeMs: new(uint64(math.MaxUint64))}, gib, with(func(l *switchover.Limits) { l.Downtime = 2000 * time.Second })},
		"no downtime":                    {&v1.VMIMConfigurationOptions{MaxDowntimeMs: new(uint64(0))}, gib, with(func(l *switchover.Limits) { l.Downtime = time.Millisecond })},
		"auto-converge":                  {&v1.VMIMConfigurationOptions{AllowAutoConverge: new(true)}, gib, with(func(l *switchover.Limits) { l.AutoConverge = true })},
		"post-copy":                      {&v1.VMIMConfigurationOptions{AllowPostCopy: new(true)}, gib, with(func(l *switchover.Limits) { l.PostCopy, l.Pause = true, true })},
		"post-copy, undisrupted":         {&v1.VMIMConfigurationOptions{AllowPostCopy: new(true), AllowWorkloadDisruption: new(false)}, gib, defaults},
		"disruption only":                {&v1.VMIMConfigurationOptions{AllowWorkloadDisruption: new(true)}, gib, with(func(l *switchover.Limits) { l.Pause = true })},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := switchover.LimitsOf(test.config, test.size); got != test.want {
				t.Errorf("the limits are %+v, expected %+v", got, test.want)
			}
		})
	}
}

func TestHowLongAGuestMayStandStill(t *testing.T) {
	limits := switchover.LimitsOf(nil, gib)
	for round, want := range map[int64]time.Duration{
		-1: 20 * time.Millisecond, 0: 20 * time.Millisecond, 1: 20 * time.Millisecond, 3: 20 * time.Millisecond, 4: 40 * time.Millisecond,
		5: 80 * time.Millisecond, 6: 100 * time.Millisecond, 7: 100 * time.Millisecond, 1 << 60: 100 * time.Millisecond,
	} {
		if got := limits.AllowedDowntime(round); got != want {
			t.Errorf("in round %d: %v, want %v", round, got, want)
		}
	}
}

func TestAGuestMayStandStillForAsLongAsItsPolicySays(t *testing.T) {
	for _, c := range []struct {
		most  uint64
		round int64
		want  time.Duration
	}{
		{900, 1, 20 * time.Millisecond}, {900, 6, 160 * time.Millisecond}, {900, 100, 900 * time.Millisecond}, {5, 1, 5 * time.Millisecond}, {5, 100, 5 * time.Millisecond},
	} {
		limits := switchover.LimitsOf(&v1.VMIMConfigurationOptions{MaxDowntimeMs: &c.most}, gib)
		if got := limits.AllowedDowntime(c.round); got != c.want {
			t.Errorf("at most %d ms, in round %d: %v, want %v", c.most, c.round, got, c.want)
		}
	}
}
