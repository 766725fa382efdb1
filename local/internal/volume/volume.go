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

// Kind is what a volume's data is.
type Kind string

const (
	// Block is a sparse file that becomes a block device.
	Block Kind = "block"
	// Ext4 is a sparse file with a filesystem in it, so that its size is a limit.
	Ext4 Kind = "ext4"
	// Folder is a folder that any number of nodes mount at once. No filesystem
	// in a file can be mounted twice, so that here the size is only a promise.
	Folder Kind = "folder"
)

// Shared is the name of the disk that all nodes have.
const Shared = layout.SharedDisk

// Volume is a volume's record, or that of a snapshot.
type Volume struct {
	Name string `json:"name"`
	// Disk is a node's name, or Shared.
	Disk  string `json:"disk"`
	Kind  Kind   `json:"kind"`
	Bytes int64  `json:"bytes"`
	// Source is what it was made from: nothing, a volume or a snapshot.
	Source  string    `json:"source,omitempty"`
	Created time.Time `json:"created"`
}

// ID is what the volume is called outside: it says where the volume is.
func (v Volume) ID() string { return v.Disk + "." + v.Name }

// Errors that a caller distinguishes.
var (
	// ErrNotFound says that there is no such volume or snapshot.
	ErrNotFound = errors.New("there is none of that name")
	// ErrConflict says that one of that name exists and is different.
	ErrConflict = errors.New("one of that name exists and is different")
	// ErrNoSpace says that the disk is too small.
	ErrNoSpace = errors.New("the disk has not enough space left")
	// ErrUnfit says that a source can't become what is asked for.
	ErrUnfit = errors.New("the source does not fit")
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// ParseID takes an identifier apart; ok is false for one that we never gave.
func ParseID(id string) (disk, name string, ok bool) {
	disk, name, ok = strings.Cut(id, ".")
	return disk, name, ok && validName.MatchString(disk) && validName.MatchString(name)
}

// Key is a name for a volume that no snapshot has; names are unique over all disks.
func Key(name string) string { return filepath.Join(volumes, name) }

// SnapshotKey is a name for a snapshot that no volume has.
func SnapshotKey(name string) string { return filepath.Join(snapshots, name) }

// Data is the path of a volume's file or folder on a disk.
func Data(root, name string) string { return filepath.Join(root, volumes, name, dataName) }

const (
	volumes    = "volumes"
	snapshots  = "snapshots"
	dataName   = "data"
	recordName = "volume.json"
)

// The granularity of sizes, and the least that a filesystem fits in.
const (
	unit    = 1 << 20
	minExt4 = 16 << 20
)

// fileBytes is how long a volume's file is. In one with a filesystem, as much as the volume's size can be written: the
// filesystem's own data come on top.
func (v Volume) fileBytes() int64 {
	if v.Kind != Ext4 {
		return v.Bytes
	}
	// Inodes, bitmaps and descriptors of groups take less than a fortieth. The kernel keeps a fiftieth back, and not more
	// than 4096 blocks.
	own := v.Bytes/40 + min(v.Bytes/50, 4096*blockSize) + journalBytes(v.Bytes) + 3*unit
	return (v.Bytes + own + unit - 1) / unit * unit
}

// blockSize is that of filesystems: a page.
const blockSize = 4096

// journalBytes is how long the journal of a filesystem is that is made for so much data.
func journalBytes(bytes int64) int64 {
	return min(max(bytes/32, 4*unit), 64*unit) / unit * unit
}

// Size is what a volume gets for what is asked. limit 0 is no limit.
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
