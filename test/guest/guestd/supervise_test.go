package main

import (
	"slices"
	"testing"
	"time"
)

func TestAProgramThatFailsAgainAndAgainIsStartedLessAndLessOften(t *testing.T) {
	for name, test := range map[string]struct{ ran, want []time.Duration }{
		"one that ends soon": {
			ran: []time.Duration{0, time.Second, 0, 0, 0, 0, 0},
			want: []time.Duration{
				500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second,
			},
		},
		"one that runs": {
			ran:  []time.Duration{time.Hour, 2 * time.Second, time.Minute},
			want: []time.Duration{respawnDelay, respawnDelay, respawnDelay},
		},
		"one that runs after it has failed": {
			ran:  []time.Duration{0, 0, 0, time.Minute, 0},
			want: []time.Duration{respawnDelay, 2 * respawnDelay, 4 * respawnDelay, respawnDelay, 2 * respawnDelay},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b backoff
			var got []time.Duration
			for _, ran := range test.ran {
				got = append(got, b.next(ran))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the delays are %v, want %v", got, test.want)
			}
		})
	}
}
