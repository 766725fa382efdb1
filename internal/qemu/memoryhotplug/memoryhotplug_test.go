package memoryhotplug

import "testing"

func TestWhatQEMUSaysOfMemoryIsBounded(t *testing.T) {
	const mostRoom = 1 << 40
	for name, test := range map[string]struct {
		requested, size, most int64
		valid                 bool
	}{
		"all of it":             {8, 8, 8, true},
		"as much as can be":     {0, 0, mostRoom, true},
		"more than can be":      {0, 0, mostRoom + 1, false},
		"more is given":         {9, 8, 8, false},
		"more is taken":         {8, 9, 8, false},
		"less than nothing":     {-1, 0, 8, false},
		"less than none is had": {0, -1, 8, false},
	} {
		sizes := Sizes{Requested: test.requested, Size: test.size, Most: test.most}
		if err := sizes.check(mostRoom); (err == nil) != test.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
