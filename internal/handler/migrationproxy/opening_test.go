package migrationproxy

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestATargetHasToAnswerWhileQEMUOpensItsDisks(t *testing.T) {
	const wait = 5 * time.Second
	for name, c := range map[string]struct {
		happens func(f *Forward)
		late    bool
	}{
		"QEMU is slow to connect":      {func(*Forward) {}, false},
		"nothing comes":                {func(f *Forward) { f.asked() }, true},
		"the target speaks first":      {func(f *Forward) { f.asked(); f.answered() }, false},
		"and owes an answer afterward": {func(f *Forward) { f.asked(); f.answered(); f.asked() }, true},
		"each answer has its time": {func(f *Forward) {
			for range 3 {
				f.asked()
				time.Sleep(wait - time.Second)
				f.answered()
			}
		}, false},
		"QEMU asks again and again": {func(f *Forward) {
			for range 3 {
				f.asked()
				time.Sleep(wait - time.Second)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late atomic.Bool
				f := &Forward{}
				opened := f.Opening(wait, func() { late.Store(true) })
				c.happens(f)
				time.Sleep(time.Minute)
				if late.Load() != c.late {
					t.Errorf("late: %v", late.Load())
				}
				opened()
				late.Store(false)
				f.asked()
				time.Sleep(time.Minute)
				if late.Load() {
					t.Error("what is open has to answer in time, too")
				}
			})
		})
	}
}
