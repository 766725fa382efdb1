package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader gives a line with each Read, or as much of it as there is room for
// and io.ErrShortBuffer, which asks for the rest. The API server ends every
// event of a watch by a line feed, and JSON has none within a string.
type lineReader struct {
	stream io.Closer
	buffer *bufio.Reader
	// within is set while a line is given in parts.
	within bool
}

func newLineReader(r io.ReadCloser) io.ReadCloser {
	return &lineReader{stream: r, buffer: bufio.NewReaderSize(r, 16<<10)}
}

// Read gives a line, without its line feed.
func (l *lineReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		part, ended, err := l.next(len(p) - n)
		n += copy(p[n:], part)
		begun := n > 0 || l.within
		switch {
		case begun && errors.Is(err, io.EOF):
			return n, io.ErrUnexpectedEOF
		case err != nil:
			return n, err
		case begun && ended:
			l.within = false
			return n, nil
		}
	}
	l.within = true
	return n, io.ErrShortBuffer
}

// next gives what has come of the line, at most so many bytes of it, and whether
// that is its end.
func (l *lineReader) next(most int) (part []byte, ended bool, err error) {
	if _, err := l.buffer.Peek(1); err != nil {
		return nil, false, err
	}
	part, err = l.buffer.Peek(min(most, l.buffer.Buffered()))
	if err != nil {
		return nil, false, err
	}
	length := len(part)
	if end := bytes.IndexByte(part, '\n'); end >= 0 {
		part, length, ended = part[:end], end+1, true
	}
	// Discarding leaves what was peeked at in its place until the next read.
	_, err = l.buffer.Discard(length)
	return part, ended, err
}

// Close ends the stream.
func (l *lineReader) Close() error { return l.stream.Close() }
