package exploration

import (
	"os"
	"testing"
	"time"
)

// Explorations with larger bounds take many minutes and some GiB of memory.
const longRun = "DRYDOCK_EXPLORE"

// EachScenario explores each scenario in a subtest. Those in long are skipped if DRYDOCK_EXPLORE is empty.
func EachScenario[C any, S comparable, T any](t *testing.T, usual, long []C, name func(C) string,
	explore func(*testing.T, C) (*Graph[S, T], error),
) {
	t.Helper()
	list := usual
	if os.Getenv(longRun) != "" {
		list = append(list[:len(list):len(list)], long...)
	}
	states, transitions := 0, 0
	for _, scenario := range list {
		t.Run(name(scenario), func(t *testing.T) {
			begin := time.Now()
			g, err := explore(t, scenario)
			t.Logf("%d states, %d transitions in %s", g.States(), g.Transitions, time.Since(begin).Round(time.Millisecond))
			states, transitions = states+g.States(), transitions+g.Transitions
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("in all %d states, %d transitions", states, transitions)
}
