// Package qcow2 reads the header of a qcow2 image and writes new, empty ones.
//
// It owns the check of a header that may come from anyone, before QEMU opens the
// image, and it creates images without starting qemu-img (decision 032).
// It knows nothing of an image's contents and must import the standard library
// only: virt-launcher links it.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Offsets of the header's fields.
const (
	offVersion       = 4
	offBackingOffset = 8
	offBackingSize   = 16
	offClusterBits   = 20
	offSize          = 24
	offCrypt         = 32
	offL1Size        = 36
	offL1Offset      = 40
	offTableOffset   = 48
	offTableClusters = 56
	offIncompatible  = 72
	offRefcountOrder = 96
	offHeaderLength  = 100

	headerV2 = 72
	headerV3 = 104
)

const magic = "QFI\xfb"

// Incompatible feature bits.
const (
	incompatDirty       = 1 << 0
	incompatCorrupt     = 1 << 1
	incompatDataFile    = 1 << 2
	incompatCompression = 1 << 3
	incompatExtendedL2  = 1 << 4

	incompatHarmless = incompatDirty | incompatCompression | incompatExtendedL2
)

// ErrNotQCOW2 says that a file is something else.
var ErrNotQCOW2 = errors.New("not a qcow2 image")

// Header is what matters of an image's header.
type Header struct {
	Version      int
	VirtualSize  int64
	ClusterBits  uint32
	Encrypted    bool
	Incompatible uint64
	// Backing says that the image names a backing file.
	Backing bool
}

// Read reads the header of an image.
func Read(r io.ReaderAt) (Header, error) {
	raw := make([]byte, headerV3)
	n, err := r.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Header{}, fmt.Errorf("reading the image's header: %w", err)
	}
	if n < headerV2 || string(raw[:len(magic)]) != magic {
		return Header{}, ErrNotQCOW2
	}
	be := binary.BigEndian
	h := Header{
		Version:     int(be.Uint32(raw[offVersion:])),
		ClusterBits: be.Uint32(raw[offClusterBits:]),
		Encrypted:   be.Uint32(raw[offCrypt:]) != 0,
		Backing:     be.Uint64(raw[offBackingOffset:]) != 0 || be.Uint32(raw[offBackingSize:]) != 0,
	}
	size := be.Uint64(raw[offSize:])
	if size > 1<<62 {
		return Header{}, fmt.Errorf("reading the image's header: a virtual size of %d bytes is impossible", size)
	}
	h.VirtualSize = int64(size)
	switch {
	case h.Version == 2:
	case h.Version == 3 && n == headerV3:
		h.Incompatible = be.Uint64(raw[offIncompatible:])
	default:
		return Header{}, fmt.Errorf("reading the image's header: version %d is unknown", h.Version)
	}
	return h, nil
}

// Check returns why an image from elsewhere must not be opened; nil when it may.
// A backing or data file is a path of the image author's choice, which QEMU
// would open with the rights of the pod.
func (h Header) Check() error {
	switch {
	case h.Backing:
		return errors.New("the image needs a backing file; flatten it with qemu-img convert")
	case h.Incompatible&incompatDataFile != 0:
		return errors.New("the image keeps its data in another file; flatten it with qemu-img convert")
	case h.Encrypted:
		return errors.New("the image is encrypted")
	case h.Incompatible&incompatCorrupt != 0:
		return errors.New("the image is marked as corrupt; repair it with qemu-img check -r all")
	case h.Incompatible&^incompatHarmless != 0:
		return fmt.Errorf("the image has unknown features (%#x)", h.Incompatible&^uint64(incompatHarmless))
	}
	return nil
}
