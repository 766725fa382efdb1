package job

import (
	"context"
	"io"
)

// Source is the origin of a disk's content: a disk image of any format, possibly compressed, or (Task.Archive) a tar
// file.
type Source interface {
	// Open begins to read the content at an offset, first at 0. Other offsets need a Stream with Ranges, repetitions one
	// with Ranges or Rewindable. If the content has changed, the source returns it from 0, with the new Version.
	Open(ctx context.Context, offset int64) (*Stream, error)
	// Verify is called when the content was read to its end, before the disk counts as complete. Its error ends the work.
	Verify(ctx context.Context) error
}

// Ranger is a Source that can also read pieces at any offset. Its streams, or Stat, have Ranges.
type Ranger interface {
	Source
	// Stat returns Open's result without the Body.
	Stat(ctx context.Context) (Stream, error)
	// ReadRange fills p with the content at an offset, of the version of the last Open or Stat.
	ReadRange(ctx context.Context, p []byte, offset int64) error
}

// Stream is content that is being read. A Read of its Body ends with the context of Open, by the source if necessary.
// Body's errors are Faults if the source knows the cause; others count as a broken connection.
type Stream struct {
	Body io.ReadCloser
	// Offset is the offset of Body in the content.
	Offset int64
	// Size is the size in bytes of the whole content, -1 if unknown.
	Size int64
	// Version identifies exactly this content: a strong ETag, a digest. A killed worker's successor continues
	// with the same version, and begins again if it is empty.
	Version string
	// Ranges means that Open accepts every offset.
	Ranges bool
	// Rewindable means that Open can be called again, with offset 0.
	Rewindable bool
	// Raw means that the content is the disk itself. Its format is not detected: a guest's data at the beginning of its
	// disk must not make it an image.
	Raw bool
}
