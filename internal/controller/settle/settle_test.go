package settle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

type needs struct {
	questions, asked []string
	fails            string
	// forgetful repeats questions that were answered.
	forgetful bool
}

func (n *needs) decide() (string, string) {
	for _, q := range n.questions {
		if n.forgetful || !slices.Contains(n.asked, q) {
			return "not yet", q
		}
	}
	return "done", ""
}

func (n *needs) ask(_ context.Context, question string) error {
	n.asked = append(n.asked, question)
	if question == n.fails {
		return errors.New("the API server is away")
	}
	return nil
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		n     needs
		plan  string
		err   string
		asked []string
	}{
		"nothing has to be asked":        {needs{}, "done", "", nil},
		"each question is asked in turn": {needs{questions: []string{"pod", "node"}}, "done", "", []string{"pod", "node"}},
		"an answer that can't be had":    {needs{questions: []string{"pod", "node"}, fails: "pod"}, "not yet", "the API server is away", []string{"pod"}},
		"a question that comes up again": {needs{questions: []string{"pod"}, forgetful: true}, "not yet", "the decision still depends on pod, which has been asked for", []string{"pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := Plan(t.Context(), c.n.decide, c.n.ask)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if plan != c.plan || message != c.err || !slices.Equal(c.n.asked, c.asked) {
				t.Errorf("got %q, %q after asking for %v", plan, message, c.n.asked)
			}
		})
	}
}

func TestRounds(t *testing.T) {
	for name, c := range map[string]struct {
		// fails is the round that fails, or 0.
		rounds, fails int
		rests         bool
		taken         int
	}{
		"one is enough":                  {rounds: 1, rests: true, taken: 1},
		"each is followed by another":    {rounds: 3, rests: true, taken: 3},
		"the last one that there may be": {rounds: 5, rests: true, taken: 5},
		"it never comes to rest":         {rounds: 99, rests: false, taken: 5},
		"one fails":                      {rounds: 3, fails: 2, rests: false, taken: 2},
	} {
		t.Run(name, func(t *testing.T) {
			taken := 0
			rests, err := Rounds(t.Context(), 5, func(context.Context) (bool, error) {
				if taken++; taken == c.fails {
					return true, errors.New("the API server is away")
				}
				return taken < c.rounds, nil
			})
			if rests != c.rests || taken != c.taken || (err != nil) != (c.fails > 0) {
				t.Errorf("rests %v after %d rounds, with the error %v", rests, taken, err)
			}
		})
	}
}

func TestTurns(t *testing.T) {
	for name, c := range map[string]struct {
		again int
		fails error
		after time.Duration
	}{
		"the last round says when to look again": {again: 2, after: time.Minute},
		"a loop that does not rest goes on soon": {again: 99, after: time.Millisecond},
		"what fails is tried again by the queue": {fails: errors.New("the API server is away")},
	} {
		t.Run(name, func(t *testing.T) {
			rounds := 0
			after, err := Turns(t.Context(), 4, func(context.Context) (bool, time.Duration, error) {
				rounds++
				if rounds <= c.again {
					return true, time.Second, nil
				}
				return false, c.after, c.fails
			})
			if after != c.after || !errors.Is(err, c.fails) || rounds != min(c.again+1, 4) {
				t.Errorf("after %d rounds got %s, %v", rounds, after, err)
			}
		})
	}
}
