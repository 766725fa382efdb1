package power

import (
	"fmt"
	"strings"
	"testing"
)

// run applies steps to a queue: a request adds it, "-N" drops ticket N, "take" takes all, "=N" finishes ticket N, "close"
// closes it. It returns the answers.
func run(steps string) string {
	var q Queue
	var said []string
	byNumber := map[string]Ticket{}
	for step := range strings.FieldsSeq(steps) {
		switch {
		case step == "take":
			var turn []Ticket
			q, turn = q.Take()
			names := make([]string, 0, len(turn))
			for _, t := range turn {
				names = append(names, fmt.Sprintf("%s#%d", t.Request, t.Number))
			}
			said = append(said, "["+strings.Join(names, " ")+"]")
		case step == "close":
			q = q.Close("QEMU has ended")
		case strings.HasPrefix(step, "-"):
			q, _ = q.Drop(byNumber[step[1:]])
		case strings.HasPrefix(step, "="):
			q = q.Finish(byNumber[step[1:]])
		default:
			next, of, answer, reason := q.Add(Request(step))
			q, byNumber[fmt.Sprint(of.Number)] = next, of
			said = append(said, strings.TrimSpace(fmt.Sprintf("%s#%d %s", answer, of.Number, reason)))
		}
	}
	return strings.Join(said, ", ")
}

func TestRequestsWaitForTheirTurn(t *testing.T) {
	for name, c := range map[string]struct{ steps, want string }{
		"nobody asks":                       {"take", "[]"},
		"requests keep their order":         {"pause reset unpause take take", "accepted#1, accepted#2, accepted#3, [pause#1 reset#2 unpause#3], []"},
		"a second reset":                    {"reset reset take", "accepted#1, ignored#1, [reset#1]"},
		"a second reboot":                   {"reboot reboot take", "accepted#1, ignored#1, [reboot#1]"},
		"a second pause":                    {"pause pause take", "accepted#1, accepted#2, [pause#1 pause#2]"},
		"a reset after something else":      {"reset pause reset take", "accepted#1, accepted#2, accepted#3, [reset#1 pause#2 reset#3]"},
		"a reset after the turn of another": {"reset take reset take", "accepted#1, [reset#1], accepted#2, [reset#2]"},
		"a reboot while the agent is asked": {"reboot take reboot take =1 reboot take", "accepted#1, [reboot#1], ignored#1, [], accepted#2, [reboot#2]"},
		"a reboot later, after others":      {"reboot take pause reboot take", "accepted#1, [reboot#1], accepted#2, ignored#1, [pause#2]"},
		"a reboot after a user has gone":    {"reboot take -1 reboot take", "accepted#1, [reboot#1], ignored#1, []"},
		"two reboots in one turn":           {"reboot pause reboot take =1 reboot =3 reboot", "accepted#1, accepted#2, accepted#3, [reboot#1 pause#2 reboot#3], ignored#3, accepted#4"},
		"a user has gone":                   {"pause reset -1 take", "accepted#1, accepted#2, [reset#2]"},
		"one of two users has gone":         {"reset reset -1 take", "accepted#1, ignored#1, [reset#1]"},
		"both users have gone":              {"reset reset -1 -1 take", "accepted#1, ignored#1, []"},
		"a user has gone too late":          {"pause take -1 reset take", "accepted#1, [pause#1], accepted#2, [reset#2]"},
		"the guest has ended":               {"pause close reset take", "accepted#1, refused#0 QEMU has ended, [pause#1]"},
	} {
		if got := run(c.steps); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Anybody may ask for a pause again and again, each of which waits for an answer of its own.
func TestOnlySoManyRequestsWait(t *testing.T) {
	fill := func(q Queue, r Request) Queue {
		t.Helper()
		for i := range most {
			var answer Answer
			if q, _, answer, _ = q.Add(r); answer == Refused {
				t.Errorf("%s %d is refused", r, i+1)
			}
		}
		if _, _, answer, reason := q.Add(r); answer != Refused || reason == "" {
			t.Errorf("one more %s is %s (%q)", r, answer, reason)
		}
		return q
	}
	fill(Queue{}, Pause)
	fill(Queue{}, Reset)
	taken, turn := fill(Queue{}, Reboot).Take()
	if len(turn) != 1 {
		t.Fatalf("%d turns, want 1", len(turn))
	}
	if _, _, answer, _ := taken.Add(Pause); answer != Refused {
		t.Errorf("while so many wait for a reboot, a pause is %s", answer)
	}
	for range most {
		taken, _ = taken.Drop(turn[0])
	}
	if got := taken.load(); got != 1 {
		t.Errorf("a reboot for which nobody waits counts as %d", got)
	}
	taken, _, _, _ = taken.Add(Reboot)
	fill(taken.Finish(turn[0]), Pause)
}

// The last part of a reboot has its place.
func TestKeysArePressedInAFullQueue(t *testing.T) {
	var q Queue
	for range most {
		q, _, _, _ = q.Add(Pause)
	}
	if _, _, answer, _ := q.Add(PressKeys); answer != Accepted {
		t.Errorf("pressing keys is %s", answer)
	}
}

// Each of them would wait for an agent that does not answer.
func TestUsersWhoComeAndGoLeaveOneReboot(t *testing.T) {
	var q Queue
	for range 10 * most {
		for _, r := range []Request{Reboot, Pause, Reboot, Pause} {
			next, of, _, _ := q.Add(r)
			if q, _ = next.Take(); r == Pause {
				q = q.Finish(of)
			} else {
				q, _ = q.Drop(of)
			}
		}
	}
	if len(q.taken) != 1 {
		t.Errorf("%d reboots wait for the agent", len(q.taken))
	}
}

// A queue is a value: a change returns another one.
func TestAQueueIsAValue(t *testing.T) {
	var empty Queue
	one, of, _, _ := empty.Add(Reboot)
	two, _, _, _ := one.Add(Reboot)
	three, _, _, _ := one.Add(Pause)
	if dropped, is := one.Drop(of); !is || len(dropped.waiting) != 0 || len(one.waiting) != 1 || one.waiting[0].users != 1 {
		t.Errorf("after Drop: %+v, %+v", one, dropped)
	}
	if len(empty.waiting) != 0 || two.waiting[0].users != 2 || len(three.waiting) != 2 {
		t.Errorf("after Add: %+v, %+v, %+v", empty, two, three)
	}
	taken, _ := one.Take()
	joined, _, _, _ := taken.Add(Reboot)
	left, _ := taken.Drop(of)
	if finished := taken.Finish(of); len(one.taken) != 0 || len(taken.taken) != 1 || len(finished.taken) != 0 {
		t.Errorf("after Take and Finish: %+v, %+v, %+v", one, taken, finished)
	}
	if taken.taken[0].users != 1 || joined.taken[0].users != 2 || left.taken[0].users != 0 {
		t.Errorf("after Take: %+v, %+v, %+v", taken, joined, left)
	}
}
