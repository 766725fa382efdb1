package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"drydock.dev/local/internal/layout"
)

// Kind is the form of a volume's data.
type Kind string

const (
	// Block is a sparse file that is attached as a block device.
	Block Kind = "block"
	// Ext4 is a sparse file with a filesystem, which enforces the size.
	Ext4 Kind = "ext4"
	// Folder is a folder that many nodes may mount at once. A filesystem in a file can't be mounted twice, so the
	// size is not enforced.
	Folder Kind = "folder"
)

// Shared is the name of the disk that all nodes share.
const Shared = layout.SharedDisk

// Volume is the record of a volume or snapshot.
type Volume struct {
	Name string `json:"name"`
	// Disk is a node's name, or Shared.
	Disk  string `json:"disk"`
	Kind  Kind   `json:"kind"`
	Bytes int64  `json:"bytes"`
	// Source is the ID of the volume or snapshot that it was made from.
	Source  string    `json:"source,omitempty"`
	Created time.Time `json:"created"`
}

// ID returns the volume's ID, which includes its disk.
func (v Volume) ID() string { return v.Disk + "." + v.Name }

// Errors that callers distinguish.
var (
	// ErrNotFound means that the volume or snapshot does not exist.
	ErrNotFound = errors.New("there is none of that name")
	// ErrConflict means that a different one exists.
	ErrConflict = errors.New("one of that name exists and is different")
	// ErrNoSpace means that the disk has too little space.
	ErrNoSpace = errors.New("the disk has not enough space left")
	// ErrUnfit means that the source does not fit the request.
	ErrUnfit = errors.New("the source does not fit")
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// ParseID splits an ID, ok false for an invalid one.
func ParseID(id string) (disk, name string, ok bool) {
	disk, name, ok = strings.Cut(id, ".")
	return disk, name, ok && validName.MatchString(disk) && validName.MatchString(name)
}

// Key is a volume's name for locks, which no snapshot has.
func Key(name string) string { return filepath.Join(volumes, name) }

// SnapshotKey is a snapshot's name for locks, which no volume has.
func SnapshotKey(name string) string { return filepath.Join(snapshots, name) }

// Data returns the path of a volume's file or folder.
func Data(root, name string) string { return filepath.Join(root, volumes, name, dataName) }

const (
	volumes    = "volumes"
	snapshots  = "snapshots"
	dataName   = "data"
	recordName = "volume.json"
)

const (
	unit    = 1 << 20
	minExt4 = 16 << 20
)

// fileBytes is the length of a volume's file. For a filesystem it includes the filesystem's own data, so that the
// volume's whole size is writable.
func (v Volume) fileBytes() int64 {
	if v.Kind != Ext4 {
		return v.Bytes
	}
	// Inodes, bitmaps and group descriptors take less than a fortieth. The kernel reserves a fiftieth, at most
	// 4096 blocks.
	own := v.Bytes/40 + min(v.Bytes/50, 4096*blockSize) + journalBytes(v.Bytes) + 3*unit
	return (v.Bytes + own + unit - 1) / unit * unit
}

// blockSize is a page.
const blockSize = 4096

func journalBytes(bytes int64) int64 {
	return min(max(bytes/32, 4*unit), 64*unit) / unit * unit
}

// Size rounds a size up. limit 0 means no limit.
func Size(kind Kind, required, limit int64) (int64, error) {
	size := (max(required, 1) + unit - 1) / unit * unit
	if kind == Ext4 {
		size = max(size, minExt4)
	}
	if limit > 0 && size > limit {
		return 0, fmt.Errorf("choosing a size: %d bytes were asked for, of which %d are the least that can be made, but the limit is %d", required, size, limit)
	}
	return size, nil
}
