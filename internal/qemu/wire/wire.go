// Package wire limits what is read from QEMU and from guest agents, which a hostile
// guest can control: the bytes of a message, and the memory that decoding it takes.
// A few bytes of JSON ("{},") become a struct of a hundred and more, so a limit of
// the bytes alone is not enough (decision 219).
//
// It knows no message's meaning and imports the standard library only.
package wire

import (
	"bufio"
	"errors"
	"fmt"
)

// Limits are what one message may have.
type Limits struct {
	// Bytes is its length, Values the number of its values (members and elements,
	// at all depths), Depth how deep they may be nested.
	Bytes, Values, Depth int
}

// ReadLine reads a message, which is one line. An error that is not the reader's
// own is about the message's size; nothing can be read after it.
func (l Limits) ReadLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > l.Bytes {
			return nil, fmt.Errorf("it is longer than %d bytes", l.Bytes)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Check looks at a JSON text before it is decoded. It does not say whether the text
// is valid.
func (l Limits) Check(text []byte) error {
	values, depth := 1, 0
	inString, escaped := false, false
	for _, c := range text {
		if inString {
			inString = escaped || c != '"'
			escaped = !escaped && c == '\\'
			continue
		}
		switch c {
		case '"':
			inString = true
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if values > l.Values {
			return fmt.Errorf("it has more than %d values", l.Values)
		}
		if depth > l.Depth {
			return fmt.Errorf("its values are nested more than %d deep", l.Depth)
		}
	}
	return nil
}
