package pulse

import (
	"fmt"
	"strings"
	"testing"
)

type heard struct {
	asked    uint64
	pod      string
	question uint64
	boot     string
	beats    uint64
}

func TestAGuestLivesInOnePlace(t *testing.T) {
	tests := map[string]struct {
		heard []heard
		wrong string
	}{
		"it counts in one pod":                        {heard: []heard{{1, "a", 1, "x", 1}, {2, "a", 2, "x", 1}, {3, "a", 3, "x", 2}}},
		"it goes to another pod":                      {heard: []heard{{1, "a", 1, "x", 5}, {2, "b", 2, "x", 6}, {3, "b", 3, "x", 7}}},
		"an answer was under way":                     {heard: []heard{{2, "b", 2, "x", 6}, {2, "b", 1, "x", 5}, {3, "b", 3, "x", 6}}},
		"an answer from where it was was under way":   {heard: []heard{{1, "a", 1, "x", 5}, {3, "b", 3, "x", 6}, {3, "a", 2, "x", 5}, {3, "a", 3, "x", 5}}},
		"a question waited until the guest was there": {heard: []heard{{1, "a", 1, "x", 5}, {9, "a", 9, "x", 9}, {9, "b", 2, "x", 9}, {10, "b", 10, "x", 9}}},
		"it is started again":                         {heard: []heard{{1, "a", 1, "x", 5}, {2, "b", 2, "y", 1}, {3, "c", 3, "y", 2}}},
		"it is started again in its pod":              {heard: []heard{{1, "a", 1, "x", 5}, {2, "a", 2, "y", 1}, {2, "a", 1, "x", 5}}},
		"it lives where it was, too": {
			heard: []heard{{1, "a", 1, "x", 5}, {2, "b", 2, "x", 6}, {3, "a", 3, "x", 6}}, wrong: "two live guests of g: pod a (boot x, beat 6) answers question 3, and pod b",
		},
		"it returns in a later answer only": {
			heard: []heard{{1, "a", 1, "x", 5}, {3, "b", 3, "x", 6}, {4, "a", 2, "x", 5}, {5, "a", 5, "x", 6}}, wrong: "two live guests",
		},
		"the one before lives on": {
			heard: []heard{{1, "a", 1, "x", 5}, {2, "b", 2, "y", 1}, {3, "a", 3, "x", 6}}, wrong: "two live guests",
		},
		"the one before has migrated meanwhile": {
			heard: []heard{{1, "a", 1, "x", 5}, {2, "b", 2, "y", 1}, {3, "c", 3, "x", 6}}, wrong: "two live guests",
		},
		"it has forgotten": {
			heard: []heard{{1, "a", 1, "x", 5}, {2, "a", 2, "x", 4}}, wrong: "g in pod a has forgotten what it had counted: beat 4 after beat 5",
		},
		"it has forgotten on the way": {
			heard: []heard{{1, "a", 1, "x", 5}, {2, "b", 2, "x", 4}}, wrong: "has forgotten",
		},
		"what an answer under way said is not forgotten": {
			heard: []heard{{1, "a", 1, "x", 5}, {3, "a", 3, "x", 7}, {3, "a", 2, "x", 6}, {4, "a", 4, "x", 6}}, wrong: "beat 6 after beat 7",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var r Record
			for _, h := range test.heard {
				for r.Asked() < h.asked {
					r.Ask()
				}
				r.Answered(h.pod, Answer{Question: h.question, Guest: "g", Boot: h.boot, Beats: h.beats})
			}
			if err := r.Err(); test.wrong == "" && err != nil || test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
				t.Errorf("got %v, want %q", err, test.wrong)
			}
		})
	}
}

func TestTheLastThatWasHeard(t *testing.T) {
	var r Record
	if got := r.Last("g"); got != (Sighting{}) {
		t.Errorf("of a guest that has never answered: %+v", got)
	}
	r.Answered("a", Answer{Question: r.Ask(), Guest: "g", Boot: "x", Beats: 5})
	r.Answered("b", Answer{Question: r.Ask(), Guest: "g", Boot: "x", Beats: 6})
	r.Answered("c", Answer{Question: r.Ask(), Guest: "another", Boot: "z", Beats: 1})
	if got, want := r.Last("g"), (Sighting{Pod: "b", Boot: "x", Beats: 6, Asked: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.Answered("d", Answer{Question: r.Ask(), Guest: "g", Boot: "y", Beats: 1})
	if got, want := r.Last("g"), (Sighting{Pod: "d", Boot: "y", Beats: 1, Asked: 4}); got != want {
		t.Errorf("started again: got %+v, want %+v", got, want)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestTheFirstTroubleIsKept(t *testing.T) {
	var r Record
	for i := range 2 {
		r.Answered("a", Answer{Question: r.Ask(), Guest: "g", Boot: "x", Beats: 1, Trouble: fmt.Sprintf("trouble %d", i)})
	}
	if err := r.Err(); err == nil || err.Error() != "g says in pod a: trouble 0" {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Answer{
		"3 g x 7":                {Question: 3, Guest: "g", Boot: "x", Beats: 7},
		"3 g x 7 a disk is lost": {Question: 3, Guest: "g", Boot: "x", Beats: 7, Trouble: "a disk is lost"},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "3 g x", "x g x 7", "3 g x -7"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}
