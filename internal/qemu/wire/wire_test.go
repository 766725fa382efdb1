package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestALineIsReadUpToItsLimit(t *testing.T) {
	l := Limits{Bytes: 5000}
	for what, tc := range map[string]struct {
		text string
		want int
		bad  bool
	}{
		"a short line":           {"abc\nrest", 4, false},
		"the longest":            {strings.Repeat("x", 4999) + "\n", 5000, false},
		"one that is longer":     {strings.Repeat("x", 5000) + "\n", 0, true},
		"one that does not end":  {strings.Repeat("x", 1<<20), 0, true},
		"the end amid a message": {"abc", 3, true},
	} {
		line, err := l.ReadLine(bufio.NewReader(strings.NewReader(tc.text)))
		if len(line) != tc.want || (err != nil) != tc.bad {
			t.Errorf("%s: %d bytes, %v", what, len(line), err)
		}
	}
	if _, err := l.ReadLine(bufio.NewReader(strings.NewReader("abc"))); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the stream: %v", err)
	}
}

func TestWhatDecodesToMuchIsRefused(t *testing.T) {
	l := Limits{Values: 10, Depth: 3}
	for text, ok := range map[string]bool{
		`{"return": {"a": 1, "b": [1, 2, 3]}}`:   true,
		`{"return": [1,2,3,4,5,6,7]}`:            true,
		`{"return": [1,2,3,4,5,6,7,8,9]}`:        false,
		`[{},{},{},{},{},{},{}]`:                 false,
		`[[[1]]]`:                                true,
		`[[[[1]]]]`:                              false,
		`{"a": "[[[[[[{{{{,,,,,,,,,,,,,,,,,,,"}`: true,
		`{"a": "\"[[[[[[[[\\\"[[[["}`:            true,
		`{"a": "\\", "b": [[[[1]]]]}`:            false,
	} {
		if err := l.Check([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzCheckCountsAtLeastWhatDecodes(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"\"],[{"}]}`, `[[],[[]],{}]`, `"\\"`, `[1,2]`, `null`} {
		f.Add([]byte(seed))
	}
	l := Limits{Values: 20, Depth: 4}
	f.Fuzz(func(t *testing.T, text []byte) {
		var decoded any
		if json.Unmarshal(text, &decoded) != nil || l.Check(text) != nil {
			return
		}
		if values, depth := measure(decoded); values > l.Values || depth > l.Depth {
			t.Errorf("%q passed with %d values, %d deep", text, values, depth)
		}
	})
}

// measure counts the values of decoded data.
func measure(decoded any) (values, depth int) {
	var inside []any
	switch v := decoded.(type) {
	case []any:
		inside = v
	case map[string]any:
		for _, member := range v {
			inside = append(inside, member)
		}
	default:
		return 1, 0
	}
	values = 1
	for _, v := range inside {
		n, d := measure(v)
		values, depth = values+n, max(depth, d)
	}
	return values, depth + 1
}
