package runstate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func logged(second, running string) string {
	return "2026-11-23T11:46:12.1Z stderr F 25219@" + second + ".500000:vm_state_notify running " + running + " reason 9 (running)\n"
}

func at(second int64) time.Time { return time.Unix(second, 500_000_000) }

func TestSpans(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want []Span
	}{
		"nothing":                   {"virt-launcher: it runs\n", nil},
		"it runs on":                {logged("1", "1"), []Span{{"pod", at(1), time.Time{}}}},
		"it was stopped":            {logged("1", "1") + "qemu: warning\n" + logged("3", "0"), []Span{{"pod", at(1), at(3)}}},
		"it went on":                {logged("1", "1") + logged("3", "0") + logged("4", "1"), []Span{{"pod", at(1), at(3)}, {"pod", at(4), time.Time{}}}},
		"it never ran":              {logged("1", "0"), nil},
		"one line says it again":    {logged("1", "1") + logged("2", "1") + logged("3", "0") + logged("4", "0"), []Span{{"pod", at(1), at(3)}}},
		"a line that is cut is not": {strings.TrimSuffix(logged("1", "1"), "1 reason 9 (running)\n"), nil},
	} {
		got, err := Spans("pod", c.log)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOneAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		spans []Span
		want  string
	}{
		"one":                         {[]Span{{"a", at(1), time.Time{}}}, ""},
		"one after the other":         {[]Span{{"b", at(3), time.Time{}}, {"a", at(1), at(2)}}, ""},
		"at the same moment":          {[]Span{{"a", at(1), at(2)}, {"b", at(2), at(3)}}, ""},
		"there and back":              {[]Span{{"a", at(1), at(2)}, {"b", at(2), at(3)}, {"a", at(3), time.Time{}}}, ""},
		"both":                        {[]Span{{"a", at(1), at(3)}, {"b", at(2), at(4)}}, "in pod b from 00:00:02.500000, and in pod a from 00:00:01.500000 to 00:00:03.500000"},
		"one that was killed, and on": {[]Span{{"a", at(1), time.Time{}}, {"b", at(9), at(10)}}, "in pod a from 00:00:01.500000 to its end"},
		"the same, which went on":     {[]Span{{"a", at(1), at(2)}, {"a", at(3), time.Time{}}}, ""},
	} {
		err := OneAtATime(c.spans)
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
