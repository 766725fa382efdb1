// Package looptest awaits for tests that loop devices are free. It must not look for devices itself.
package looptest

import (
	"testing"
	"time"
)

// AwaitNone fails the test if left still names devices after a minute. A program that lists all devices has each open
// for a moment, and a device is free with its last user.
func AwaitNone(t *testing.T, left func() ([]string, error)) {
	t.Helper()
	for deadline, tick := time.Now().Add(time.Minute), time.Tick(time.Millisecond); ; <-tick {
		devices, err := left()
		if err == nil && len(devices) == 0 {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("these loop devices are left: %q, %v", devices, err)
		}
	}
}
