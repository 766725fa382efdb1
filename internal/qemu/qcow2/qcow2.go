// Package qcow2 reads the header of a qcow2 image and writes new, empty ones.
//
// It checks a header, which anyone may have written, before QEMU or the import worker reads the image. It must not know an
// image's contents, and must import the standard library only: virt-launcher links it.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

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
	offCompression   = 104

	headerV2 = 72
	headerV3 = 104
)

// HeaderSize is the number of bytes that Parse needs.
const HeaderSize = 112

// Magic starts every image.
const Magic = "QFI\xfb"

// Incompatible feature bits.
const (
	featureDirty       = 1 << 0 // reference counts may be wrong; readers don't need them
	featureCorrupt     = 1 << 1
	featureDataFile    = 1 << 2
	featureCompression = 1 << 3
	featureExtendedL2  = 1 << 4

	featuresHarmless = featureDirty | featureCompression | featureExtendedL2
	featuresKnown    = featuresHarmless | featureCorrupt | featureDataFile
)

// Compression methods.
const (
	CompressionDeflate = 0
	CompressionZstd    = 1
	// CompressionUnnamed is for the feature bit without the method.
	CompressionUnnamed = -1
)

const maxSize = 1 << 62 // bytes

var (
	// ErrNotQCOW2 means that the file is not a qcow2 image.
	ErrNotQCOW2 = errors.New("not a qcow2 image")
	// ErrCut means that the header is truncated.
	ErrCut = errors.New("the header is not whole")
)

// VersionError is an unknown version of the format.
type VersionError uint32

func (e VersionError) Error() string { return fmt.Sprintf("version %d is unknown", uint32(e)) }

// SizeError is an impossible virtual size.
type SizeError uint64

func (e SizeError) Error() string {
	return fmt.Sprintf("a virtual size of %d bytes is impossible", uint64(e))
}

// Header has the used fields of an image's header.
type Header struct {
	Version      int
	VirtualSize  int64
	ClusterBits  uint32
	Encrypted    bool
	Incompatible uint64
	Backing      bool
	// L1Entries is the number of entries of the L1 table, L1Offset its position.
	L1Entries   uint32
	L1Offset    uint64
	Compression int
}

// ExtendedL2 reports whether L2 entries have subclusters.
func (h Header) ExtendedL2() bool { return h.Incompatible&featureExtendedL2 != 0 }

// UnknownFeatures returns the incompatible features that this package does not know.
func (h Header) UnknownFeatures() uint64 { return h.Incompatible &^ uint64(featuresKnown) }

// Read reads the header of an image.
func Read(r io.ReaderAt) (Header, error) {
	head := make([]byte, HeaderSize)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Header{}, fmt.Errorf("reading the image's header: %w", err)
	}
	h, err := Parse(head[:n])
	if err != nil && !errors.Is(err, ErrNotQCOW2) {
		err = fmt.Errorf("reading the image's header: %w", err)
	}
	return h, err
}

// Parse parses a header from the first HeaderSize bytes of an image, or fewer if it is smaller. Its errors are
// ErrNotQCOW2, ErrCut, a VersionError or a SizeError.
func Parse(head []byte) (Header, error) {
	if len(head) < headerV2 || string(head[:len(Magic)]) != Magic {
		return Header{}, ErrNotQCOW2
	}
	be := binary.BigEndian
	switch version := be.Uint32(head[offVersion:]); {
	case version != 2 && version != 3:
		return Header{}, VersionError(version)
	case version == 3 && len(head) < headerV3:
		return Header{}, ErrCut
	}
	h := Header{
		Version:     int(be.Uint32(head[offVersion:])),
		ClusterBits: be.Uint32(head[offClusterBits:]),
		Encrypted:   be.Uint32(head[offCrypt:]) != 0,
		Backing:     be.Uint64(head[offBackingOffset:]) != 0 || be.Uint32(head[offBackingSize:]) != 0,
		L1Entries:   be.Uint32(head[offL1Size:]),
		L1Offset:    be.Uint64(head[offL1Offset:]),
	}
	size := be.Uint64(head[offSize:])
	if size > maxSize {
		return Header{}, SizeError(size)
	}
	h.VirtualSize = int64(size)
	if h.Version == 3 {
		h.Incompatible = be.Uint64(head[offIncompatible:])
		h.Compression = compression(head, h.Incompatible)
	}
	return h, nil
}

func compression(head []byte, features uint64) int {
	switch {
	case features&featureCompression == 0:
		return CompressionDeflate
	case binary.BigEndian.Uint32(head[offHeaderLength:]) <= offCompression || len(head) <= offCompression:
		return CompressionUnnamed
	}
	return int(head[offCompression])
}

// Obstacle is why an untrusted image must not be opened.
type Obstacle int

// QEMU would open a backing or data file, whose path the author chose, with the pod's rights.
const (
	None Obstacle = iota
	BackingFile
	DataFile
	Encrypted
	Corrupt
	Unknown // unknown features
)

// Obstacle returns the first obstacle, or None.
func (h Header) Obstacle() Obstacle {
	switch {
	case h.Backing:
		return BackingFile
	case h.Incompatible&featureDataFile != 0:
		return DataFile
	case h.Encrypted:
		return Encrypted
	case h.Incompatible&featureCorrupt != 0:
		return Corrupt
	case h.UnknownFeatures() != 0:
		return Unknown
	}
	return None
}

// Check returns an error for an untrusted image that must not be opened.
func (h Header) Check() error {
	switch h.Obstacle() {
	case BackingFile:
		return errors.New("the image needs a backing file; flatten it with qemu-img convert")
	case DataFile:
		return errors.New("the image keeps its data in another file; flatten it with qemu-img convert")
	case Encrypted:
		return errors.New("the image is encrypted")
	case Corrupt:
		return errors.New("the image is marked as corrupt; repair it with qemu-img check -r all")
	case Unknown:
		return fmt.Errorf("the image has unknown features (%#x)", h.UnknownFeatures())
	}
	return nil
}
