package qcow2

import (
	"errors"
	"io"
)

// MaxPeek is how much of the file a Feed must be able to show at once: the
// longest cluster, compressed to twice its size.
const MaxPeek = 4 << 20

// Feed is the file, from wherever the walk is to begin.
type Feed interface {
	// Place is where in the file the next byte is.
	Place() int64
	// Peek shows the next n bytes without passing them; fewer at the end of the file.
	Peek(n int) ([]byte, error)
	// Discard passes n bytes.
	Discard(n int64) error
}

// Sink takes an extent and its data, which is its own only until it returns.
type Sink func(e Extent, data []byte) error

// Ordered walks the file by its map from the feed's place on: every extent that
// begins there or later is given to the sink, in order. Before each of them it calls
// at: whatever begins earlier in the file has been given.
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
		if err := h.give(feed, e, sink); err != nil {
			return err
		}
	}
	return nil
}

// give gives the extent at the feed's place to the sink.
func (h *Header) give(feed Feed, e Extent, sink Sink) error {
	data, err := feed.Peek(int(e.Size))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return h.pass(e, data, sink)
}

// pass gives an extent to the sink. A file may end within its last cluster, what is
// missing reads as zero; it may not end before one.
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

// missing makes the end of the file what it means here.
func missing(err error) error {
	if errors.Is(err, io.EOF) {
		return invalid("the file ends before its data does: it is truncated")
	}
	return err
}

// Length is how much of the disk a compressed extent's cluster is.
func (h *Header) Length(e Extent) int { return int(min(h.cluster(), h.Size-e.Guest)) }
