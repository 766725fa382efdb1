package switchover_test

import (
	"slices"
	"testing"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestSeveralConnectionsAreOfferedWhereOneIsTheLimit(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		bandwidth, memory int64
		cpus, want        int
	}{
		"a large guest and many processors":    {0, 4096 * mib, 64, 4},
		"processors for four":                  {0, 4096 * mib, 8, 4},
		"processors for three":                 {0, 4096 * mib, 7, 3},
		"processors for two":                   {0, 4096 * mib, 4, 2},
		"processors for one":                   {0, 4096 * mib, 3, 0},
		"a small guest":                        {0, 512 * mib, 64, 0},
		"a guest that is not small":            {0, 512*mib + 1, 64, 4},
		"a bandwidth that one reaches":         {512 * mib, 4096 * mib, 64, 0},
		"a bandwidth that one does not reach":  {512*mib + 1, 4096 * mib, 64, 4},
		"nobody knows how many processors are": {0, 4096 * mib, 0, 0},
	} {
		if got := switchover.OfferOf(switchover.Limits{Bandwidth: c.bandwidth}, c.memory, c.cpus); got.Channels != c.want {
			t.Errorf("%s: %d channels are offered, want %d", name, got.Channels, c.want)
		}
	}
}

func TestPostCopyIsOfferedWhereItIsAllowed(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		offer := switchover.OfferOf(switchover.Limits{PostCopy: allowed}, 1<<32, 64)
		if offer != (switchover.Transport{Channels: 4, PostCopy: allowed}) || offer.Accepted(64) != offer {
			t.Errorf("allowed is %v, offered %+v, and accepted %+v", allowed, offer, offer.Accepted(64))
		}
	}
}

func TestATargetWithoutPostCopyTakesTheRest(t *testing.T) {
	several, both := switchover.Transport{Channels: 4}, switchover.Transport{Channels: 4, PostCopy: true}
	if got := several.Tries(); !slices.Equal(got, []switchover.Transport{several}) {
		t.Errorf("of several connections, QEMU is set to %+v", got)
	}
	if got := both.Tries(); !slices.Equal(got, []switchover.Transport{{PostCopy: true}, several}) {
		t.Errorf("of both, QEMU is set to %+v", got)
	}
}

func TestATargetTakesNoMoreThanIsOffered(t *testing.T) {
	for name, c := range map[string]struct{ offered, cpus, want int }{
		"nothing is offered":         {0, 64, 0},
		"one is no more than none":   {1, 64, 0},
		"less than it could":         {2, 64, 2},
		"what it can":                {4, 64, 4},
		"more than its processors":   {4, 6, 3},
		"more than it has for two":   {4, 3, 0},
		"more than anybody offers":   {16, 64, 4},
		"a number that is no number": {-1, 64, 0},
	} {
		if got := (switchover.Transport{Channels: c.offered}).Accepted(c.cpus); got.Channels != c.want {
			t.Errorf("%s: %d channels are taken, want %d", name, got.Channels, c.want)
		}
	}
}
