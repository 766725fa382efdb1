// Package wire bounds the messages of QEMU and of guest agents, which a hostile guest can control: a message's bytes, and
// the memory for decoding it. A few bytes of JSON ("{},") become a struct of a hundred and more, so that a bound of the
// bytes is not enough (decision 219).
//
// It must not know the meaning of a message, and must import the standard library only.
package wire

import (
	"bufio"
	"errors"
	"fmt"
)

// Limits are for one message: its length, the number of its values (members and elements, at all depths), and its deepest
// nesting.
type Limits struct{ Bytes, Values, Depth int }

// ReadLine reads a message, which is one line. An error that is not the reader's means that the message is too long: read
// nothing after it.
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

// Check checks a JSON text before it is decoded. It does not check that the text is valid.
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
