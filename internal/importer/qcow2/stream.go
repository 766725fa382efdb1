package qcow2

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// maxAhead limits the known tables and extents that are still ahead.
const maxAhead = 1 << 20

// Streamed walks an image and reads its tables as they pass. Data that passes before its table waits in stash, at its
// offset.
func (h *Header) Streamed(feed Feed, stash *os.File, sink Sink) error {
	s := streamed{header: h, feed: feed, sink: sink, stash: stash}
	for first := int64(0); first < h.l1Entries; first += piece1 {
		if err := s.learn(item{host: h.l1Offset + first*8, guest: first, kind: l1Piece}); err != nil {
			return err
		}
	}
	for len(s.items) > 0 {
		next := s.items[0]
		if err := s.passTo(next.host); err != nil {
			return err
		}
		heap.Pop(&s.items)
		data, err := feed.Peek(int(next.length(h)))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := s.handle(next, data); err != nil {
			return err
		}
		s.covered = max(s.covered, next.end(h))
	}
	return nil
}

// piece1 is in L1 entries.
const piece1 = 8 << 10

type kind uint8

const (
	l1Piece kind = iota
	l2Table
	data
	compressedData
)

// item has a known place in the file: a piece of the L1 table (guest is its first entry), an L2 table, or an extent.
type item struct {
	host, guest int64
	size        int32
	kind        kind
}

func (i item) length(h *Header) int64 {
	switch i.kind {
	case l1Piece:
		return 8 * min(piece1, h.l1Entries-i.guest)
	case l2Table:
		return h.cluster()
	}
	return int64(i.size)
}

// end returns the end of the item's own bytes: the next compressed cluster may begin in the last sector of one.
func (i item) end(h *Header) int64 {
	if i.kind == compressedData {
		return i.host + int64(i.size) - 512
	}
	return i.host + i.length(h)
}

type streamed struct {
	header *Header
	feed   Feed
	sink   Sink
	// items are not behind the feed.
	items  items
	unread int
	// covered is the end of the passed items' bytes.
	covered int64
	stash   *os.File
	// kept are the ranges of the file in the stash, in order.
	kept []span
}

type span struct{ from, to int64 }

// learn adds an item, which is handled when it arrives, or now if it has passed.
func (s *streamed) learn(i item) error {
	if i.kind == l1Piece || i.kind == l2Table {
		s.unread++
	}
	if i.host >= s.feed.Place() {
		if len(s.items) >= maxAhead {
			return job.Faultf(transfer.ReasonLimit, "the tables of the qcow2 image are too scattered to be read from a stream: "+
				"convert it by qemu-img convert, or serve it uncompressed from a server that takes ranges")
		}
		heap.Push(&s.items, i)
		return nil
	}
	data, err := s.passed(i)
	if err != nil {
		return err
	}
	return s.handle(i, data)
}

// handle copies a table first, since reading its items moves the feed's view.
func (s *streamed) handle(i item, bytes []byte) error {
	h := s.header
	switch i.kind {
	case l1Piece:
		s.unread--
		if int64(len(bytes)) < i.length(h) {
			return missing(io.EOF)
		}
		return h.tables(slices.Clone(bytes), i.guest, func(t table) error {
			return s.learn(item{host: t.host, guest: t.guest, kind: l2Table})
		})
	case l2Table:
		s.unread--
		if int64(len(bytes)) < i.length(h) {
			return missing(io.EOF)
		}
		return h.extents(table{host: i.host, guest: i.guest}, slices.Clone(bytes), func(e Extent) error {
			kind := data
			if e.Compressed {
				kind = compressedData
			}
			return s.learn(item{host: e.Host, guest: e.Guest, size: e.Size, kind: kind})
		})
	}
	return h.pass(Extent{Host: i.host, Guest: i.guest, Size: i.size, Compressed: i.kind == compressedData}, bytes, s.sink)
}

func (s *streamed) passTo(host int64) error {
	for at := s.feed.Place(); at < host; at = s.feed.Place() {
		n := min(host-at, maxExtent)
		if s.unread > 0 && s.covered < at+n {
			bytes, err := s.feed.Peek(int(n))
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if err := s.keep(bytes[max(0, min(s.covered-at, int64(len(bytes)))):], max(at, s.covered)); err != nil {
				return err
			}
		}
		if err := s.feed.Discard(n); err != nil {
			return missing(err)
		}
	}
	return nil
}

func (s *streamed) keep(bytes []byte, at int64) error {
	if len(bytes) == 0 {
		return nil
	}
	if _, err := s.stash.WriteAt(bytes, at); err != nil {
		return fmt.Errorf("putting a piece of the image aside: %w", err)
	}
	end := at + int64(len(bytes))
	if last := len(s.kept) - 1; last >= 0 && s.kept[last].to == at {
		s.kept[last].to = end
	} else {
		s.kept = append(s.kept, span{from: at, to: end})
	}
	return nil
}

// passed returns the bytes of an item that has passed: from the stash, and the rest from the feed.
func (s *streamed) passed(i item) ([]byte, error) {
	length := i.length(s.header)
	found, _ := slices.BinarySearchFunc(s.kept, i.host, func(k span, at int64) int {
		if k.to <= at {
			return -1
		}
		return 1
	})
	if found == len(s.kept) || s.kept[found].from > i.host {
		return nil, invalid("what is at %d has two meanings", i.host)
	}
	bytes := make([]byte, min(length, s.kept[found].to-i.host))
	if _, err := s.stash.ReadAt(bytes, i.host); err != nil {
		return nil, fmt.Errorf("reading a piece of the image that was put aside: %w", err)
	}
	if int64(len(bytes)) == length || s.kept[found].to < s.feed.Place() && i.kind == compressedData {
		return bytes, nil
	}
	if s.kept[found].to < s.feed.Place() {
		return nil, invalid("what is at %d has two meanings", i.host)
	}
	more, err := s.feed.Peek(int(length - int64(len(bytes))))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return append(bytes, more...), nil
}

type items []item

func (s items) Len() int           { return len(s) }
func (s items) Less(a, b int) bool { return s[a].host < s[b].host }
func (s items) Swap(a, b int)      { s[a], s[b] = s[b], s[a] }
func (s *items) Push(x any)        { *s = append(*s, x.(item)) }
func (s *items) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}
