// Package findings names the faults in the objects of a diagnosis. Examine is a function of the objects and of the
// time; a table has its checks. A check reports the conditions, reasons and figures that the API already has: it must not
// make a component's decision.
package findings

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"drydock.dev/drydock/internal/virtctl/obstacle"
)

// Finding is one thing that is wrong, or worth knowing.
type Finding struct {
	// Check is the check's name.
	Check string
	// About is the object, as in 'VM lab/web'.
	About string
	// Says is text of the cluster, which may have any characters.
	Says string
	// Since is zero if it is not known.
	Since time.Time
	// Runbook is the name of a page in docs/runbooks, "" for none.
	Runbook string
	// Notice means that nothing is wrong.
	Notice bool
}

// said is a check's answer about an object.
type said struct {
	text  string
	since time.Time
}

func says(since time.Time, parts ...string) []said {
	return []said{{obstacle.Sentence(parts...), since}}
}

// check looks at each object of its kinds.
type check struct {
	name    string
	kinds   []string
	runbook string
	notice  bool
	find    func(o *Object, now time.Time) []said
}

// slow is how long a step may take before it is worth a word.
const slow = 2 * time.Minute

func isSlow(since, now time.Time) bool { return now.Sub(since) >= slow }

// maxOfOne bounds the findings of one check; the others are counted.
const maxOfOne = 25

// Examine returns the checks' findings, faults before notices.
func Examine(objects iter.Seq[Object], now time.Time) []Finding {
	e := examination{now: now, counts: map[string]int{}, others: map[string]Finding{}}
	for o := range objects {
		for i := range checks {
			if c := &checks[i]; slices.Contains(c.kinds, o.Kind) {
				e.add(c, &o, c.find(&o, now))
			}
		}
		e.related.see(&o)
	}
	for _, found := range e.related.ended(now) {
		e.count(found)
	}
	return e.sorted()
}

type examination struct {
	now   time.Time
	found []Finding
	// counts has the findings of each check, others the last one beyond the bound.
	counts  map[string]int
	others  map[string]Finding
	related related
}

func (e *examination) add(c *check, o *Object, answers []said) {
	for _, a := range answers {
		e.count(Finding{Check: c.name, About: o.about(), Says: a.text, Since: a.since, Runbook: c.runbook, Notice: c.notice})
	}
}

func (e *examination) count(f Finding) {
	if e.counts[f.Check]++; e.counts[f.Check] <= maxOfOne {
		e.found = append(e.found, f)
		return
	}
	e.others[f.Check] = f
}

func (e *examination) sorted() []Finding {
	for name, f := range e.others {
		f.Says, f.About, f.Since = fmt.Sprintf("%d more like it", e.counts[name]-maxOfOne), "others", time.Time{}
		e.found = append(e.found, f)
	}
	slices.SortStableFunc(e.found, func(a, b Finding) int {
		return cmp.Or(compareBool(a.Notice, b.Notice), strings.Compare(a.Check, b.Check),
			compareBool(a.About == "others", b.About == "others"), strings.Compare(a.About, b.About), strings.Compare(a.Says, b.Says))
	})
	return e.found
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
