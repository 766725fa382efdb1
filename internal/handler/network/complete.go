package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts exceeds all possible interruptions: a list takes a fraction of a millisecond.
const attempts = 100

// complete repeats a list that the kernel calls inconsistent because of a change.
func complete[T any](list func() (T, error)) (found T, err error) {
	for range attempts {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}
