package migrationproxy

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestATargetHasToBeOpenInTime(t *testing.T) {
	const wait = 5 * time.Second
	for name, c := range map[string]struct {
		happens func(f *Forward)
		late    bool
	}{
		"QEMU is slow to connect":    {func(*Forward) { time.Sleep(time.Minute) }, false},
		"QEMU waits less than that":  {func(f *Forward) { f.startOpeningTimer(); time.Sleep(wait - 1) }, false},
		"QEMU waits as long as that": {func(f *Forward) { f.startOpeningTimer(); time.Sleep(wait) }, true},
		"another connection adds none": {func(f *Forward) {
			f.startOpeningTimer()
			time.Sleep(wait - time.Second)
			f.startOpeningTimer()
			time.Sleep(time.Second)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late atomic.Bool
				f := &Forward{}
				opened := f.Opening(wait, func() { late.Store(true) })
				c.happens(f)
				synctest.Wait()
				if late.Load() != c.late {
					t.Errorf("late: %v", late.Load())
				}
				opened()
				late.Store(false)
				f.startOpeningTimer()
				time.Sleep(time.Minute)
				if late.Load() {
					t.Error("what is open is ended")
				}
			})
		})
	}
}
