package qcow2

const (
	placeMask      = 0x00ff_ffff_ffff_fe00
	flagCompressed = 1 << 62
	flagZero       = 1 << 0
)

// maxExtent limits joined extents; a single cluster may be larger.
const maxExtent = 1 << 20

// Extent is a range of the file that is a range of the disk.
type Extent struct {
	// Host is in the file, Guest on the disk.
	Host, Guest int64
	// Size is its size in the file, for a compressed one an upper bound.
	Size int32
	// Compressed means that Size bytes make one cluster of the disk.
	Compressed bool
}

// table is an L2 table: its offset in the file, and the disk offset of its first cluster.
type table struct{ host, guest int64 }

func (h *Header) tables(piece []byte, first int64, add func(table) error) error {
	for i := int64(0); i < int64(len(piece)/8); i++ {
		place := int64(u64(piece, int(i*8)) & placeMask)
		if place == 0 {
			continue
		}
		if !h.aligned(place) {
			return invalid("an L2 table at %d", place)
		}
		if err := add(table{host: place, guest: (first + i) * h.tableEntries() * h.cluster()}); err != nil {
			return err
		}
	}
	return nil
}

func (h *Header) extents(t table, data []byte, add func(Extent) error) error {
	j := joiner{add: add}
	step := int(h.entrySize())
	for i := 0; i+step <= len(data); i += step {
		guest := t.guest + int64(i/step)*h.cluster()
		if guest >= h.Size {
			break
		}
		entry, bitmap := u64(data, i), uint64(0)
		if h.extended {
			bitmap = u64(data, i+8)
		}
		if err := h.entry(entry, bitmap, guest, &j); err != nil {
			return err
		}
	}
	return j.flush()
}

func (h *Header) entry(entry, bitmap uint64, guest int64, j *joiner) error {
	if entry&flagCompressed != 0 {
		return h.compressed(entry, bitmap, guest, j)
	}
	host := int64(entry & placeMask)
	if host != 0 && !h.aligned(host) {
		return invalid("a cluster at %d", host)
	}
	if h.extended {
		return h.subclusters(host, bitmap, guest, j)
	}
	if entry&flagZero != 0 {
		if h.version < 3 {
			return invalid("a zero cluster in an image of version 2")
		}
		return nil
	}
	if host == 0 {
		return nil
	}
	return j.put(Extent{Host: host, Guest: guest, Size: int32(h.cluster())})
}

func (h *Header) compressed(entry, bitmap uint64, guest int64, j *joiner) error {
	if bitmap != 0 {
		return invalid("subclusters in a compressed cluster")
	}
	split := 62 - (h.clusterBits - 8)
	host := int64(entry & (1<<split - 1))
	sectors := int64(entry>>split)&(1<<(h.clusterBits-8)-1) + 1
	if host < h.cluster() || host >= 1<<56 {
		return invalid("a compressed cluster at %d", host)
	}
	return j.put(Extent{Host: host, Guest: guest, Size: int32(sectors*512 - host%512), Compressed: true})
}

// subclusters reads the bitmap of an extended entry: 32 bits for allocated subclusters, 32 for zero ones.
func (h *Header) subclusters(host int64, bitmap uint64, guest int64, j *joiner) error {
	allocated, zero := uint32(bitmap), uint32(bitmap>>32)
	if allocated&zero != 0 || host == 0 && allocated != 0 {
		return invalid("an entry with the subclusters %#x", bitmap)
	}
	size := h.cluster() / 32
	for i := range int64(32) {
		if allocated&(1<<i) == 0 {
			continue
		}
		if err := j.put(Extent{Host: host + i*size, Guest: guest + i*size, Size: int32(size)}); err != nil {
			return err
		}
	}
	return nil
}

type joiner struct {
	add func(Extent) error
	now Extent
}

func (j *joiner) put(e Extent) error {
	follows := j.now.Host+int64(j.now.Size) == e.Host && j.now.Guest+int64(j.now.Size) == e.Guest
	if j.now.Size > 0 && follows && !j.now.Compressed && !e.Compressed && j.now.Size+e.Size <= maxExtent {
		j.now.Size += e.Size
		return nil
	}
	if err := j.flush(); err != nil {
		return err
	}
	j.now = e
	return nil
}

func (j *joiner) flush() error {
	if j.now.Size == 0 {
		return nil
	}
	e := j.now
	j.now = Extent{}
	return j.add(e)
}
