package fill

import (
	"errors"
	"hash"
	"io"
	"sync/atomic"
)

type window struct {
	from io.Reader
	// sum, if not nil, gets every byte that is passed.
	sum hash.Hash
	// A decompressor's goroutine advances place while another one reads it.
	place atomic.Int64
	// buffer[at:] has been read and not passed.
	buffer []byte
	at     int
	err    error
}

const roomy = 2 << 20

func newWindow(from io.Reader, place int64, sum hash.Hash) *window {
	w := &window{from: from, sum: sum}
	w.place.Store(place)
	return w
}

// Place returns the offset in the stream.
func (w *window) Place() int64 { return w.place.Load() }

// Peek returns the next n bytes without passing them, or fewer and the error at the end.
func (w *window) Peek(n int) ([]byte, error) {
	w.reserve(n)
	for len(w.buffer)-w.at < n && w.err == nil {
		w.fill()
	}
	if have := len(w.buffer) - w.at; have < n {
		return w.buffer[w.at:], w.err
	}
	return w.buffer[w.at : w.at+n], nil
}

func (w *window) reserve(n int) {
	if cap(w.buffer)-w.at >= n {
		return
	}
	rest := w.buffer[w.at:]
	if cap(w.buffer) < n || cap(w.buffer) < roomy {
		w.buffer = append(make([]byte, 0, max(n, roomy)), rest...)
	} else {
		w.buffer = append(w.buffer[:0], rest...)
	}
	w.at = 0
}

func (w *window) fill() {
	n, err := w.from.Read(w.buffer[len(w.buffer):cap(w.buffer)])
	w.buffer = w.buffer[:len(w.buffer)+n]
	w.err = err
}

// Discard passes n bytes; io.EOF means that there were fewer.
func (w *window) Discard(n int64) error {
	for n > 0 {
		if w.at == len(w.buffer) {
			if w.err != nil {
				return w.err
			}
			w.buffer, w.at = w.buffer[:0], 0
			w.reserve(1)
			w.fill()
			continue
		}
		step := min(n, int64(len(w.buffer)-w.at))
		w.pass(int(step))
		n -= step
	}
	return nil
}

func (w *window) pass(n int) {
	if w.sum != nil {
		_, _ = w.sum.Write(w.buffer[w.at : w.at+n]) // a hash never fails
	}
	w.at += n
	w.place.Add(int64(n))
}

// Read implements io.Reader and passes the bytes.
func (w *window) Read(p []byte) (int, error) {
	if w.at == len(w.buffer) {
		if w.err != nil {
			return 0, w.err
		}
		w.buffer, w.at = w.buffer[:0], 0
		w.reserve(1)
		w.fill()
	}
	n := min(len(p), len(w.buffer)-w.at)
	copy(p, w.buffer[w.at:w.at+n])
	w.pass(n)
	return n, nil
}

func (w *window) drain() error {
	for {
		if err := w.Discard(roomy); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
