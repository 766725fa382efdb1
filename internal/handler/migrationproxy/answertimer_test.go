package migrationproxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// A disk's target must answer each write: the guest waits for it.
func TestAnAnswerThatIsOwed(t *testing.T) {
	const after = 20 * time.Second
	for name, test := range map[string]struct {
		happen func(*answerTimer)
		late   bool
	}{
		"nothing was said": {func(*answerTimer) { time.Sleep(10 * after) }, false},
		"it is answered, and nothing follows": {func(d *answerTimer) {
			d.begin()
			time.Sleep(after / 2)
			d.stop()
			time.Sleep(10 * after)
		}, false},
		"each is answered in time": {func(d *answerTimer) {
			for range 10 {
				d.begin()
				time.Sleep(after / 2)
				d.stop()
			}
		}, false},
		"it is not answered": {func(d *answerTimer) {
			d.begin()
			time.Sleep(after + 1)
		}, true},
		"more is said meanwhile": {func(d *answerTimer) {
			for range 5 {
				d.begin()
				time.Sleep(after/5 + 1)
			}
		}, true},
		"only the second is not answered": {func(d *answerTimer) {
			d.begin()
			d.stop()
			d.begin()
			time.Sleep(after + 1)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d answerTimer
				late := false
				d.limit(after, func() { late = true })
				test.happen(&d)
				d.stop()
				synctest.Wait()
				if late != test.late {
					t.Errorf("the answer is late: %v, want %v", late, test.late)
				}
			})
		})
	}
}
