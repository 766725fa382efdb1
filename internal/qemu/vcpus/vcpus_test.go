package vcpus

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheAnswerIsBounded(t *testing.T) {
	many := strings.Repeat(`{"cpu-index":1,"thread-id":8},`, 100_000)
	for name, test := range map[string]struct {
		text string
		want List
	}{
		"two of one thread":     {`[{"cpu-index":1,"thread-id":7,"qom-path":"/x"},{"cpu-index":0,"thread-id":7}]`, List{{1, 7}, {0, 7}}},
		"the last and the next": {`[{"cpu-index":254,"thread-id":7},{"cpu-index":255,"thread-id":8}]`, List{{254, 7}}},
		"one twice":             {`[{"cpu-index":0,"thread-id":7},{"cpu-index":0,"thread-id":8}]`, List{{0, 7}}},
		"impossible ones":       {`[{"cpu-index":-1,"thread-id":7},{"cpu-index":0},{"cpu-index":0,"thread-id":-7}]`, nil},
		"many":                  {"[" + many + `{"cpu-index":0,"thread-id":9}]`, List{{1, 8}, {0, 9}}},
		"none":                  {"[]", nil},
	} {
		var got List
		if err := json.Unmarshal([]byte(test.text), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	var got List
	if err := json.Unmarshal([]byte(`[{"cpu-index":"0"}]`), &got); err == nil {
		t.Errorf("no list of CPUs is read as %v", got)
	}
}
