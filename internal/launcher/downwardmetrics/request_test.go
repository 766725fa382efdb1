package downwardmetrics

import (
	"slices"
	"strings"
	"testing"
)

func TestRequests(t *testing.T) {
	long := strings.Repeat("x", 10*MaxRequest)
	for written, want := range map[string][]Verdict{
		"GET /metrics/XML\n\n":                     {Asked},
		"GET /metrics/XML\r\n\r\n":                 {Asked},
		"GET /metrics/XML\n\nGET /metrics/XML\n\n": {Asked, Asked},
		"GET /metrics/XML\n":                       nil,
		"GET /metrics/XML":                         nil,
		"":                                         nil,
		"\n\n":                                     {Unknown},
		"\n\n\n":                                   {Unknown},
		"PUT /metrics/XML\n\n":                     {Unknown},
		"GET /metrics/JSON\n\n":                    {Unknown},
		" GET /metrics/XML\n\n":                    {Unknown},
		"GET /metrics/XML\nHost: x\n\n":            {Unknown},
		"GET /metrics/XML\x00\n\n":                 {Unknown},
		long:                                       nil,
		long + "\n\n":                              {Unknown},
		long + "\n\nGET /metrics/XML\n\n":          {Unknown, Asked},
		"GET /metrics/XML\n" + long + "\n\n":       {Unknown},
		strings.Repeat("\r", 1000) + "GET /metrics/XML\n\n": {Asked},
	} {
		var requests Requests
		var got []Verdict
		for i := range len(written) {
			if v := requests.Read([]byte{written[i]}); v != Incomplete {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.40q: %v, want %v", written, got, want)
		}
	}
}

func TestRequestsThatComeTogetherHaveOneVerdict(t *testing.T) {
	for written, want := range map[string]Verdict{
		"": Incomplete, "GET": Incomplete, "what?\n\n\n\n": Unknown,
		"what?\n\nGET /metrics/XML\n\nwhat?\n\n": Asked, "GET /metrics/XML\n\nGET": Asked,
	} {
		var requests Requests
		if got := requests.Read([]byte(written)); got != want {
			t.Errorf("%q: %v, want %v", written, got, want)
		}
	}
}
