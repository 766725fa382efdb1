package qcow2

import (
	"encoding/binary"
	"fmt"
	"os"
)

// Layout of a new image: clusters of 64 KiB, which are the header, the refcount table, one refcount block and the L1
// table. Nothing is allocated for the guest's data.
const (
	clusterBits   = 16
	clusterSize   = 1 << clusterBits
	refcountOrder = 4 // 16 bits for each cluster
	sectorSize    = 512

	tableCluster = 1
	blockCluster = 2
	l1Cluster    = 3

	// One L1 entry maps an L2 table, whose 8-byte entries map one cluster each.
	l1Reach       = clusterSize / 8 * clusterSize
	refcountReach = clusterSize / 2

	maxBackingName       = 1023
	extensionBackingFile = 0xE2792ACA
)

// Image describes a new image.
type Image struct {
	// VirtualSize is in bytes, rounded up to a whole sector.
	VirtualSize int64
	// Backing is the path of the backing file, BackingFormat its format. Both are empty without one.
	Backing, BackingFormat string
}

// Create writes a new image to an empty file.
func Create(f *os.File, image Image) error {
	if image.VirtualSize < 0 || len(image.Backing) > maxBackingName {
		return fmt.Errorf("a qcow2 image of %d bytes over %q cannot be made", image.VirtualSize, image.Backing)
	}
	size := (uint64(image.VirtualSize) + sectorSize - 1) / sectorSize * sectorSize
	entries := (size + l1Reach - 1) / l1Reach
	clusters := l1Cluster + (entries*8+clusterSize-1)/clusterSize
	if clusters > refcountReach {
		return fmt.Errorf("a qcow2 image of %d bytes cannot be made", image.VirtualSize)
	}
	// The L1 table is all zero: the file's length suffices.
	if err := f.Truncate(int64(clusters) * clusterSize); err != nil {
		return fmt.Errorf("sizing the image: %w", err)
	}
	table := binary.BigEndian.AppendUint64(nil, blockCluster*clusterSize)
	counts := make([]byte, 0, 2*clusters)
	for range clusters {
		counts = binary.BigEndian.AppendUint16(counts, 1)
	}
	for _, part := range []struct {
		cluster int64
		data    []byte
	}{{tableCluster, table}, {blockCluster, counts}, {0, header(image, size, entries)}} {
		if _, err := f.WriteAt(part.data, part.cluster*clusterSize); err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
	}
	return nil
}

func header(image Image, size, l1Entries uint64) []byte {
	h := make([]byte, headerV3)
	copy(h, Magic)
	be := binary.BigEndian
	be.PutUint32(h[offVersion:], 3)
	be.PutUint32(h[offClusterBits:], clusterBits)
	be.PutUint64(h[offSize:], size)
	be.PutUint32(h[offL1Size:], uint32(l1Entries))
	be.PutUint64(h[offL1Offset:], l1Cluster*clusterSize)
	be.PutUint64(h[offTableOffset:], tableCluster*clusterSize)
	be.PutUint32(h[offTableClusters:], 1)
	be.PutUint32(h[offRefcountOrder:], refcountOrder)
	be.PutUint32(h[offHeaderLength:], headerV3)
	if image.Backing == "" {
		return h
	}
	h = be.AppendUint32(h, extensionBackingFile)
	h = be.AppendUint32(h, uint32(len(image.BackingFormat)))
	h = append(h, image.BackingFormat...)
	for len(h)%8 != 0 {
		h = append(h, 0)
	}
	h = be.AppendUint64(h, 0) // no more extensions
	be.PutUint64(h[offBackingOffset:], uint64(len(h)))
	be.PutUint32(h[offBackingSize:], uint32(len(image.Backing)))
	return append(h, image.Backing...)
}
