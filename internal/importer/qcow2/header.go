package qcow2

import (
	"encoding/binary"

	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/transfer"
)

// HeaderSize is how much of the file Parse wants to see.
const HeaderSize = 112

// Magic is what an image begins with.
const Magic = "QFI\xfb"

// Features that an image may have and a reader must know.
const (
	featureDirty       = 1 << 0 // reference counts may be wrong, which no reader needs
	featureCorrupt     = 1 << 1
	featureDataFile    = 1 << 2
	featureCompression = 1 << 3
	featureExtendedL2  = 1 << 4
	featuresKnown      = featureDirty | featureCorrupt | featureDataFile | featureCompression | featureExtendedL2
)

// maxL1 is the longest L1 table in bytes, which is QEMU's limit, too.
const maxL1 = 32 << 20

// Header is what an image says of itself.
type Header struct {
	// Size is the size of the disk in bytes.
	Size        int64
	version     uint32
	clusterBits uint32
	zstd        bool
	extended    bool
	l1Offset    int64
	// l1Entries is how many entries of the L1 table the disk needs.
	l1Entries int64
}

func invalid(format string, args ...any) error {
	return job.Faultf(transfer.ReasonInvalidImage, "the qcow2 image is damaged: "+format, args...)
}

func unsafe(format string, args ...any) error {
	return job.Faultf(transfer.ReasonUnsafeImage, "the qcow2 image "+format, args...)
}

// Parse reads an image's header.
func Parse(head []byte) (*Header, error) {
	if len(head) < 72 || string(head[:4]) != Magic {
		return nil, invalid("it has no whole header")
	}
	h := &Header{version: u32(head, 4), clusterBits: u32(head, 20), Size: int64(u64(head, 24)), l1Offset: int64(u64(head, 40))}
	if u64(head, 8) != 0 {
		return nil, unsafe("has a backing file, which is not part of it: make one image of both by qemu-img convert")
	}
	if u32(head, 32) != 0 {
		return nil, unsafe("is encrypted, and no key was given: decrypt it by qemu-img convert")
	}
	if err := h.parseFeatures(head); err != nil {
		return nil, err
	}
	if h.clusterBits < 9 || h.clusterBits > 21 || h.extended && h.clusterBits < 14 {
		return nil, invalid("clusters of 2^%d bytes", h.clusterBits)
	}
	if h.Size < 0 || h.Size > 1<<62 {
		return nil, invalid("a disk of %d bytes", uint64(h.Size))
	}
	return h, h.checkL1(int64(u32(head, 36)))
}

func (h *Header) parseFeatures(head []byte) error {
	switch {
	case h.version == 2:
		return nil
	case h.version != 3:
		return job.Faultf(transfer.ReasonInvalidImage, "the qcow image has version %d, and only 2 and 3 can be read: convert it by qemu-img", h.version)
	case len(head) < 104:
		return invalid("it has no whole header")
	}
	features := u64(head, 72)
	h.extended = features&featureExtendedL2 != 0
	switch {
	case features&featureDataFile != 0:
		return unsafe("keeps its data in another file: make one image of both by qemu-img convert")
	case features&featureCorrupt != 0:
		return invalid("it is marked so: repair it by qemu-img check -r all")
	case features&^uint64(featuresKnown) != 0:
		return job.Faultf(transfer.ReasonInvalidImage, "the qcow2 image has features (%#x) that Drydock does not know: convert it by qemu-img", features&^uint64(featuresKnown))
	case features&featureCompression == 0:
		return nil
	}
	if length := u32(head, 100); length <= 104 || len(head) <= 104 {
		return invalid("it names no compression")
	}
	if kind := head[104]; kind > 1 {
		return invalid("compression of kind %d", kind)
	}
	h.zstd = head[104] == 1
	return nil
}

func (h *Header) checkL1(entries int64) error {
	perTable := h.cluster() * h.tableEntries()
	h.l1Entries = h.Size / perTable
	if h.Size%perTable > 0 {
		h.l1Entries++
	}
	switch {
	case h.l1Entries*8 > maxL1:
		return invalid("an L1 table of %d entries", h.l1Entries)
	case entries < h.l1Entries:
		return invalid("its L1 table has %d entries, and the disk needs %d", entries, h.l1Entries)
	case h.l1Entries > 0 && !h.aligned(h.l1Offset):
		return invalid("its L1 table is at %d", h.l1Offset)
	}
	return nil
}

// aligned reports whether something may be at a place: no cluster begins elsewhere,
// none replaces the header, and none lies where no file reaches.
func (h *Header) aligned(at int64) bool {
	return at >= h.cluster() && at < 1<<56 && at&(h.cluster()-1) == 0
}

// cluster is the size of a cluster in bytes.
func (h *Header) cluster() int64 { return 1 << h.clusterBits }

func (h *Header) entrySize() int64 {
	if h.extended {
		return 16
	}
	return 8
}

func (h *Header) tableEntries() int64 { return h.cluster() / h.entrySize() }

func u32(p []byte, at int) uint32 { return binary.BigEndian.Uint32(p[at:]) }

func u64(p []byte, at int) uint64 { return binary.BigEndian.Uint64(p[at:]) }
