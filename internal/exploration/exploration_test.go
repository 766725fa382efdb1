package exploration

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// A step leads from one number to another, beginning with 0.
func walk(steps map[int][]int, disturbances map[int][]int) *Model[int, [2]int] {
	return &Model[int, [2]int]{
		Most: 100,
		Next: func(s *int, emit func([2]int, int)) {
			for _, to := range steps[*s] {
				emit([2]int{to, 1}, to)
			}
			for _, to := range disturbances[*s] {
				emit([2]int{to, 0}, to)
			}
		},
		Check:    func(*int) error { return nil },
		Progress: func(step [2]int) (uint8, bool) { return uint8(step[0]), step[1] == 1 },
		Name:     func(step [2]int, from *int) string { return "from " + strconv.Itoa(*from) },
		Text:     func(s *int) string { return strconv.Itoa(*s) },
	}
}

var errWanted = errors.New("what is wanted")

func trace(t *testing.T, err error) string {
	t.Helper()
	var v *Violation
	if !errors.As(err, &v) || !errors.Is(err, errWanted) {
		t.Fatalf("the exploration finds %v, not a violation of what is wanted", err)
	}
	var ends []string
	for _, line := range v.Trace {
		fields := strings.Fields(line)
		ends = append(ends, fields[len(fields)-1])
	}
	return strings.Join(ends, " ")
}

func TestEveryStateIsVisitedOnce(t *testing.T) {
	g, err := Explore(walk(map[int][]int{0: {1, 2}, 1: {3}, 2: {3}}, map[int][]int{3: {4, 0}}))
	if err != nil || g.States() != 5 || g.Transitions != 6 {
		t.Errorf("%d states, %d transitions (%v); the model has 5 and 6", g.States(), g.Transitions, err)
	}
}

func TestTheShortestWayIsShown(t *testing.T) {
	m := walk(map[int][]int{0: {1, 5}, 1: {2}, 2: {9}, 5: {9}}, nil)
	m.Check = func(s *int) error {
		if *s == 9 {
			return errWanted
		}
		return nil
	}
	_, err := Explore(m)
	if got := trace(t, err); got != "0 5 9" {
		t.Errorf("the way is %s; the shortest is 0 5 9", got)
	}
}

func TestAStepThatIsWrongItselfIsFound(t *testing.T) {
	m := walk(map[int][]int{0: {1}, 1: {2}}, nil)
	m.Broken = func(step [2]int) error {
		if step[0] == 2 {
			return errWanted
		}
		return nil
	}
	_, err := Explore(m)
	if got := trace(t, err); got != "0 1" {
		t.Errorf("the way to the step is %s; it can be taken in 1", got)
	}
}

func TestTooManyStatesAreNotExplored(t *testing.T) {
	m := walk(nil, nil)
	m.Next = func(s *int, emit func([2]int, int)) { emit([2]int{0, 1}, *s+1) }
	if _, err := Explore(m); err == nil || !strings.Contains(err.Error(), "more than 100 states") {
		t.Errorf("a model without end gives %v", err)
	}
}

func TestProgressMustReachWhatIsGood(t *testing.T) {
	tests := map[string]struct {
		steps, disturbances map[int][]int
		want                string
	}{
		"every state leads to 7":              {map[int][]int{0: {1}, 1: {7}, 7: {0}}, nil, ""},
		"a disturbance leads to a dead end":   {map[int][]int{0: {7}}, map[int][]int{0: {3}}, "0 3"},
		"only a disturbance leads to 7 again": {map[int][]int{0: {7}, 7: {2}}, map[int][]int{2: {7}}, "0 7 2"},
		"a round without a way out":           {map[int][]int{0: {7, 1}, 1: {2}, 2: {1}}, nil, "0 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := walk(test.steps, test.disturbances)
			m.Good = func(s *int) bool { return *s == 7 }
			g, err := Explore(m)
			if err != nil {
				t.Fatal(err)
			}
			err = g.AlwaysReaches(errWanted)
			if test.want == "" {
				if err != nil {
					t.Errorf("it finds %v", err)
				}
			} else if got := trace(t, err); got != test.want {
				t.Errorf("the way to where 7 can't be reached is %s, not %s", got, test.want)
			}
		})
	}
}

func TestEveryRunMustComeToRest(t *testing.T) {
	tests := map[string]struct {
		steps map[int][]int
		fair  []uint8
		want  string
	}{
		"it rests where it may":                  {map[int][]int{0: {1}, 1: {2}}, nil, ""},
		"it rests where it must not":             {map[int][]int{0: {1, 13}}, nil, "0 13"},
		"it goes round for ever":                 {map[int][]int{0: {1}, 1: {2, 9}, 2: {3}, 3: {1}}, nil, "0 1 2 3 1"},
		"what leads out of a round is fair":      {map[int][]int{0: {1}, 1: {2, 9}, 2: {1, 9}}, []uint8{9}, ""},
		"what is fair can't happen in each":      {map[int][]int{0: {1}, 1: {2, 9}, 2: {1}}, []uint8{9}, "0 1 2 1"},
		"what is fair does not lead out":         {map[int][]int{0: {1}, 1: {2}, 2: {1}}, []uint8{1, 2}, "0 1 2 1"},
		"a step that changes nothing is no step": {map[int][]int{0: {0, 1}, 1: {1}}, nil, ""},
		"two rounds, the nearer one is shown":    {map[int][]int{0: {1, 4}, 1: {2}, 2: {1, 4}, 4: {5}, 5: {4}}, nil, "0 1 2 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := walk(test.steps, nil)
			m.Rest = func(s *int) error {
				if *s == 13 {
					return errWanted
				}
				return nil
			}
			g, err := Explore(m)
			if err != nil {
				t.Fatal(err)
			}
			err = g.AlwaysRests(errWanted, test.fair...)
			if test.want == "" {
				if err != nil {
					t.Errorf("it finds %v", err)
				}
			} else if got := trace(t, err); got != test.want {
				t.Errorf("the way is %s, not %s", got, test.want)
			}
		})
	}
}
