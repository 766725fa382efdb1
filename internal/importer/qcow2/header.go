package qcow2

import (
	"encoding/binary"
	"errors"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/qemu/qcow2"
)

// HeaderSize is the number of bytes for Parse.
const HeaderSize = qcow2.HeaderSize

// maxL1 limits the L1 table in bytes, as QEMU does.
const maxL1 = 32 << 20

// Header is the header of an image.
type Header struct {
	Size        int64
	version     int
	clusterBits uint32
	zstd        bool
	extended    bool
	l1Offset    int64
	l1Entries   int64
}

func invalid(format string, args ...any) error {
	return job.Faultf(transfer.ReasonInvalidImage, "the qcow2 image is damaged: "+format, args...)
}

func unsafe(format string, args ...any) error {
	return job.Faultf(transfer.ReasonUnsafeImage, "the qcow2 image "+format, args...)
}

// Parse parses an image's header.
func Parse(head []byte) (*Header, error) {
	said, err := qcow2.Parse(head)
	if err != nil {
		return nil, unreadable(err)
	}
	if err := refusal(said); err != nil {
		return nil, err
	}
	switch said.Compression {
	case qcow2.CompressionUnnamed:
		return nil, invalid("it names no compression")
	case qcow2.CompressionDeflate, qcow2.CompressionZstd:
	default:
		return nil, invalid("compression of kind %d", said.Compression)
	}
	h := &Header{
		Size: said.VirtualSize, version: said.Version, clusterBits: said.ClusterBits, l1Offset: int64(said.L1Offset),
		extended: said.ExtendedL2(), zstd: said.Compression == qcow2.CompressionZstd,
	}
	if h.clusterBits < 9 || h.clusterBits > 21 || h.extended && h.clusterBits < 14 {
		return nil, invalid("clusters of 2^%d bytes", h.clusterBits)
	}
	return h, h.checkL1(int64(said.L1Entries))
}

func unreadable(err error) error {
	var version qcow2.VersionError
	var size qcow2.SizeError
	switch {
	case errors.As(err, &version):
		return job.Faultf(transfer.ReasonInvalidImage, "the qcow image has version %d, and only 2 and 3 can be read: convert it by qemu-img", uint32(version))
	case errors.As(err, &size):
		return invalid("a disk of %d bytes", uint64(size))
	}
	return invalid("it has no whole header")
}

func refusal(said qcow2.Header) error {
	switch said.Obstacle() {
	case qcow2.BackingFile:
		return unsafe("has a backing file, which is not part of it: make one image of both by qemu-img convert")
	case qcow2.Encrypted:
		return unsafe("is encrypted, and no key was given: decrypt it by qemu-img convert")
	case qcow2.DataFile:
		return unsafe("keeps its data in another file: make one image of both by qemu-img convert")
	case qcow2.Corrupt:
		return invalid("it is marked so: repair it by qemu-img check -r all")
	case qcow2.Unknown:
		return job.Faultf(transfer.ReasonInvalidImage, "the qcow2 image has features (%#x) that Drydock does not know: convert it by qemu-img", said.UnknownFeatures())
	}
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

// aligned reports whether a cluster or table may begin at an offset: aligned, after the header, and within the range
// of offsets.
func (h *Header) aligned(at int64) bool {
	return at >= h.cluster() && at < 1<<56 && at&(h.cluster()-1) == 0
}

func (h *Header) cluster() int64 { return 1 << h.clusterBits }

func (h *Header) entrySize() int64 {
	if h.extended {
		return 16
	}
	return 8
}

func (h *Header) tableEntries() int64 { return h.cluster() / h.entrySize() }

func u64(p []byte, at int) uint64 { return binary.BigEndian.Uint64(p[at:]) }
