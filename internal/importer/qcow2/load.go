package qcow2

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// maxTables is for reading by ranges: the L2 tables of 8 TiB in clusters of 64 KiB. An image with more is read as a
// stream.
const maxTables = 1 << 14

// ReadRange reads a piece of the file.
type ReadRange func(ctx context.Context, p []byte, offset int64) error

// Load reads an image's tables, or returns nil if there are too many to read by ranges. dir is for data that exceeds
// the memory; the caller must close the Map.
func (h *Header) Load(ctx context.Context, read ReadRange, dir string) (*Map, error) {
	tables, err := h.loadTables(ctx, read)
	if err != nil || tables == nil {
		return nil, err
	}
	m := newMap(dir)
	if err := h.loadExtents(ctx, read, tables, m); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// loadTables returns nil if the L1 table has too many entries.
func (h *Header) loadTables(ctx context.Context, read ReadRange) ([]table, error) {
	const step = 64 << 10
	all := []table{}
	piece := make([]byte, min(step, h.l1Entries*8))
	for first := int64(0); first < h.l1Entries; first += step / 8 {
		piece = piece[:min(step, (h.l1Entries-first)*8)]
		if err := read(ctx, piece, h.l1Offset+first*8); err != nil {
			return nil, err
		}
		if err := h.tables(piece, first, func(t table) error { all = append(all, t); return nil }); err != nil {
			return nil, err
		}
		if len(all) > maxTables {
			return nil, nil
		}
	}
	slices.SortFunc(all, func(a, b table) int { return cmp.Compare(a.host, b.host) })
	return all, nil
}

// loadExtents reads the L2 tables, adjacent ones together and several at a time.
func (h *Header) loadExtents(ctx context.Context, read ReadRange, tables []table, m *Map) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	var mu sync.Mutex // guards m
	add := func(e Extent) error { return m.add(e, h.cluster()) }
	for len(tables) > 0 && ctx.Err() == nil {
		const most = 1 << 20
		n := 1
		for n < len(tables) && tables[n].host == tables[n-1].host+h.cluster() && int64(n+1)*h.cluster() <= most {
			n++
		}
		together := tables[:n]
		tables = tables[n:]
		group.Go(func() error {
			data := make([]byte, int64(len(together))*h.cluster())
			if err := read(ctx, data, together[0].host); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i, t := range together {
				if err := h.extents(t, data[int64(i)*h.cluster():int64(i+1)*h.cluster()], add); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
