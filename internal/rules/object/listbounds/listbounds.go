// Package listbounds bounds the values of an object that admission validates, and the entries of each of its lists.
//
// It runs before any rule that compares entries with each other. It must not know the meaning of a list.
package listbounds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// Devices bounds lists whose entries become devices or volumes of a guest; KubeVirt's bound is the same.
	Devices = 256
	// Any bounds other lists. The longest that people write are node names in an affinity.
	Any = 2048
	// Values bounds all values of an object together, for nested lists. A guest with the maximum of devices has some
	// 10,000 in its spec and status, and as many in its managed fields.
	Values = 40_000
)

// Rules compare the entries of these lists with each other.
var devices = map[string]bool{
	"dataVolumeTemplates": true,
	"disks":               true,
	"filesystems":         true,
	"gpus":                true,
	"hostDevices":         true,
	"interfaces":          true,
	"networks":            true,
	"volumes":             true,
}

// Of returns the bound of a list by its key.
func Of(key string) int {
	if devices[key] {
		return Devices
	}
	return Any
}

type level struct {
	list    bool
	path    *field.Path
	key     string // key belongs to the list, or to the object's next value.
	entries int
	// value means that the next token in an object is a value.
	value bool
}

// Count returns the number of values in a JSON text: objects, lists and their content. It allocates nothing, and
// returns some number for an invalid text.
func Count(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || (c == '{' || c == '[') && !closes(text[i+1:])):
			n++
		}
	}
	return n
}

func closes(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '}' || text[0] == ']')
}

// Exceeded returns an error for the first list that is too long, or for the whole object, nil for none.
func Exceeded(text []byte) (*field.Error, error) {
	if n := Count(text); n > Values {
		return field.Forbidden(field.NewPath("object"), fmt.Sprintf("has %d values in its fields and lists, and may have %d", n, Values)), nil
	}
	if bytes.Count(text, []byte(",")) < Devices {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var levels []level
	for {
		token, err := decoder.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("looking for lists that are too long: %w", err)
		}
		if delim, is := token.(json.Delim); is && (delim == ']' || delim == '}') {
			levels = levels[:len(levels)-1]
			continue
		}
		if isKey := note(levels, token); isKey {
			continue
		}
		if len(levels) > 0 {
			in := levels[len(levels)-1]
			if limit := Of(in.key); in.list && in.entries > limit {
				return field.TooMany(in.path, -1, limit), nil
			}
		}
		if delim, is := token.(json.Delim); is {
			levels = append(levels, below(levels, delim == '['))
		}
	}
}

// note counts a token in the innermost level. It reports whether the token is a key.
func note(levels []level, token json.Token) (isKey bool) {
	if len(levels) == 0 {
		return false
	}
	in := &levels[len(levels)-1]
	if in.list {
		in.entries++
		return false
	}
	if key, is := token.(string); is && !in.value {
		in.key, in.value = key, true
		return true
	}
	in.value = false
	return false
}

func below(levels []level, list bool) level {
	if len(levels) == 0 {
		return level{list: list}
	}
	in := levels[len(levels)-1]
	if in.list {
		return level{list: list, path: in.path.Index(in.entries - 1)}
	}
	path := field.NewPath(in.key)
	if in.path != nil {
		path = in.path.Child(in.key)
	}
	return level{list: list, path: path, key: in.key}
}
