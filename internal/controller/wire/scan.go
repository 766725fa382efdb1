package wire

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventOf takes a watch's event apart, in the form that the API server writes it.
func eventOf(line []byte) (name string, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"type":"`))
	if !ok {
		return "", nil, false
	}
	word, rest, ok := plainText(rest)
	if !ok {
		return "", nil, false
	}
	rest, ok = bytes.CutPrefix(rest, []byte(`,"object":`))
	if !ok {
		return "", nil, false
	}
	// Nothing may follow the object.
	end, ok := skipValue(rest, 0)
	if !ok || string(rest[end:]) != "}" {
		return "", nil, false
	}
	return eventName(word), rest[:end], true
}

// eventName is the text, without a new string for what is in every event.
func eventName(word []byte) string {
	switch string(word) {
	case "ADDED":
		return "ADDED"
	case "MODIFIED":
		return "MODIFIED"
	case "DELETED":
		return "DELETED"
	}
	return string(word)
}

// kindOf reads the kind at an object's beginning, where the API server writes a
// custom resource's, since it sorts the fields.
func kindOf(object []byte) (schema.GroupVersionKind, bool) {
	rest, ok := bytes.CutPrefix(object, []byte(`{"apiVersion":"`))
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	version, rest, ok := plainText(rest)
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	rest, ok = bytes.CutPrefix(rest, []byte(`,"kind":"`))
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	kind, _, ok := plainText(rest)
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	return schema.FromAPIVersionAndKind(string(version), string(kind)), true
}

// plainText reads to the end of a string that has no escapes.
func plainText(data []byte) (text, rest []byte, ok bool) {
	end := bytes.IndexByte(data, '"')
	if end < 0 || bytes.IndexByte(data[:end], '\\') >= 0 {
		return nil, nil, false
	}
	return data[:end], data[end+1:], true
}

// withoutManagedFields cuts metadata.managedFields out of an object. What it does
// not understand it leaves as it is; data is not changed.
func withoutManagedFields(data []byte) []byte {
	from, to, ok := member(data, 0, "metadata")
	if !ok || from >= to || data[from] != '{' {
		return data
	}
	from, to, ok = member(data, from, "managedFields")
	if !ok || data[from] != '[' {
		return data
	}
	// A null in its place spares a look at the commas.
	out := make([]byte, 0, from+len("null")+len(data)-to)
	return append(append(append(out, data[:from]...), "null"...), data[to:]...)
}

// member finds the value of an object's member: the object begins at the
// position, the value is data[from:to]. It knows only JSON without spaces,
// which is what the API server writes, and gives up on a name that is there
// with an escape.
func member(data []byte, at int, name string) (from, to int, ok bool) {
	if at >= len(data) || data[at] != '{' {
		return 0, 0, false
	}
	for at++; at < len(data) && data[at] == '"'; at++ {
		end, ok := skipString(data, at)
		if !ok || end >= len(data) || data[end] != ':' {
			return 0, 0, false
		}
		key := data[at+1 : end-1]
		value := end + 1
		if at, ok = skipValue(data, value); !ok {
			return 0, 0, false
		}
		if string(key) == name {
			return value, at, true
		}
		if at >= len(data) || data[at] != ',' {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// skipValue gives the position after the value at a position. It counts braces
// and jumps over strings; whether the value is right JSON is not its to judge.
func skipValue(data []byte, at int) (int, bool) {
	depth := 0
	for at < len(data) {
		switch data[at] {
		case '"':
			end, ok := skipString(data, at)
			if !ok || depth == 0 {
				return end, ok
			}
			at = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at, true
			}
			if depth--; depth == 0 {
				return at + 1, true
			}
		case ',':
			if depth == 0 {
				return at, true
			}
		}
		at++
	}
	return 0, false
}

// skipString gives the position after the string that begins at a position.
func skipString(data []byte, at int) (int, bool) {
	for at++; at < len(data); at++ {
		end := bytes.IndexByte(data[at:], '"')
		if end < 0 {
			return 0, false
		}
		end += at
		slashes := 0
		for end-slashes > at && data[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1, true
		}
		at = end
	}
	return 0, false
}
