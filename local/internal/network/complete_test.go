package network

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestAListThatAChangeInterruptsIsRepeated(t *testing.T) {
	for name, interruptions := range map[string]int{"no change": 0, "two changes": 2, "no end of changes": attempts} {
		lists := 0
		found, err := complete(func() ([]string, error) {
			lists++
			if lists <= interruptions {
				return []string{"a part"}, netlink.ErrDumpInterrupted
			}
			return []string{"one", "two"}, nil
		})
		if interruptions == attempts {
			if !errors.Is(err, netlink.ErrDumpInterrupted) || lists != attempts {
				t.Errorf("%s: %v after %d lists", name, err, lists)
			}
			continue
		}
		if err != nil || !slices.Equal(found, []string{"one", "two"}) || lists != interruptions+1 {
			t.Errorf("%s: found %v, %v after %d lists", name, found, err, lists)
		}
	}
}
