package listbounds

import (
	"strings"
	"testing"
)

// list returns a JSON list of a length.
func list(of string, length int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(of+",", length), ",") + "]"
}

func TestWhichListsAreTooLong(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                           {``, ""},
		"as many disks as may be":           {`{"spec":{"disks":` + list(`{"name":"a","x":[1,2]}`, 256) + `}}`, ""},
		"one disk more":                     {`{"spec":{"disks":` + list(`{"name":"a"}`, 257) + `}}`, "spec.disks: Too many: must have at most 256 items"},
		"after another value":               {`{"a":"disks","b":{"c":[1,{"volumes":` + list(`null`, 257) + `}]}}`, "b.c[1].volumes: Too many: must have at most 256 items"},
		"a string that is no key":           {`{"a":["disks",` + strings.Repeat("1,", 300) + `2]}`, ""},
		"as many of anything else":          {`{"values":` + list(`"n"`, 2048) + `}`, ""},
		"one more":                          {`{"values":` + list(`"n"`, 2049) + `}`, "values: Too many: must have at most 2048 items"},
		"lists in lists":                    {`{"disks":[` + list(`1`, 257) + `]}`, ""},
		"many lists, none of them too long": {`{"a":` + list(list(`1`, 3), 2000) + `}`, ""},
		"lists in lists, together too many": {`{"terms":` + list(`{"matchExpressions":`+list(`{}`, 500)+`}`, 2000) + `}`,
			"object: Forbidden: has 1004002 values in its fields and lists, and may have 40000"},
		"the second of a key": {`{"disks":[],"disks":` + list(`{}`, 257) + `}`, "disks: Too many: must have at most 256 items"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			problem, err := Exceeded([]byte(c.text))
			if problem != nil {
				got = problem.Error()
			}
			if err != nil || got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

// Text that is not JSON must not pass as if it had been counted.
func TestTextThatIsNoJSON(t *testing.T) {
	for _, text := range []string{`{"disks":` + strings.Repeat("1,", 300), strings.Repeat("[1,", 300) + "}", strings.Repeat(",", 300)} {
		if problem, err := Exceeded([]byte(text)); err == nil || problem != nil {
			t.Errorf("%.20s…: %v, %v", text, problem, err)
		}
	}
}

func TestHowManyValuesATextHas(t *testing.T) {
	for text, want := range map[string]int{
		`{}`: 1, `[]`: 1, `7`: 1, ` [ ] `: 1, `{"a":1}`: 2, `{"a":{},"b":[]}`: 3, `[1,[2,3],{"a":{"b":4}}]`: 8,
		`{"a,[{":"b,[{\\\",["}`: 2, `["\\",1]`: 3, `[`: 2, `"`: 1, ``: 1,
	} {
		if got := Count([]byte(text)); got != want {
			t.Errorf("%s has %d values, want %d", text, got, want)
		}
	}
}
