package qcow2

import (
	"errors"
	"io"
)

// MaxPeek is the size that a Feed's Peek must support: the largest cluster, at twice its size when compressed.
const MaxPeek = 4 << 20

// Feed is the file from the beginning of the walk.
type Feed interface {
	Place() int64
	// Peek returns the next n bytes without passing them, fewer at the end of the file.
	Peek(n int) ([]byte, error)
	Discard(n int64) error
}

// Sink receives an extent and its data, which is valid only during the call.
type Sink func(e Extent, data []byte) error

// Ordered passes every extent from the feed's place on to the sink, in order. It calls at before each of them, when
// all before it have been passed.
func (h *Header) Ordered(feed Feed, m *Map, sink Sink, at func() error) error {
	for e, err := range m.sorted() {
		switch {
		case err != nil:
			return err
		case e.Host < feed.Place():
			continue
		}
		if err := feed.Discard(e.Host - feed.Place()); err != nil {
			return missing(err)
		}
		if err := at(); err != nil {
			return err
		}
		data, err := feed.Peek(int(e.Size))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := h.pass(e, data, sink); err != nil {
			return err
		}
	}
	return nil
}

// pass passes an extent to the sink. A file may end within its last cluster, whose rest reads as zero, but not before
// a cluster.
func (h *Header) pass(e Extent, data []byte, sink Sink) error {
	if len(data) == 0 || !e.Compressed && int64(e.Size)-int64(len(data)) >= h.cluster() {
		return missing(io.EOF)
	}
	if e.Guest >= h.Size {
		return nil
	}
	if !e.Compressed {
		data = data[:min(int64(len(data)), h.Size-e.Guest)]
	}
	return sink(e, data)
}

func missing(err error) error {
	if errors.Is(err, io.EOF) {
		return invalid("the file ends before its data does: it is truncated")
	}
	return err
}

// Length returns the size of a compressed extent's cluster on the disk.
func (h *Header) Length(e Extent) int { return int(min(h.cluster(), h.Size-e.Guest)) }
