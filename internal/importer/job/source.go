package job

import (
	"context"
	"io"
)

// Source is where the content of a disk comes from: a disk image in any format,
// or compressed, or (Task.Archive) a tar file.
type Source interface {
	// Open begins to read the content at an offset. The engine opens at 0 first; at
	// another offset only when a Stream of this source said Ranges, and a second
	// time at all only when it said Ranges or Rewindable. The source that finds the
	// content changed meanwhile answers from 0, with the new Version.
	Open(ctx context.Context, offset int64) (*Stream, error)
	// Verify is asked after the content was read to its end and before the disk
	// counts as whole: an error of it, a wrong digest say, ends the work.
	Verify(ctx context.Context) error
}

// Ranger is a Source of which pieces can be read besides, at any place. Its
// streams say Ranges, or Stat does.
type Ranger interface {
	Source
	// Stat says what Open would, without the Body.
	Stat(ctx context.Context) (Stream, error)
	// ReadRange fills p with the content at an offset. The content must be of the
	// version that Open or Stat named last.
	ReadRange(ctx context.Context, p []byte, offset int64) error
}

// Stream is content that is being read. A Read of its Body ends when the context
// of Open does; where it can't, the source sees to it that it ends. Body's errors are Faults where the
// source can tell what happened; others are taken for a cut connection.
type Stream struct {
	Body io.ReadCloser
	// Offset is where Body begins.
	Offset int64
	// Size is the size in bytes of the whole content, -1 while nobody knows.
	Size int64
	// Version names this very content: a strong ETag, a digest. What was written
	// from one version is kept when a worker that was killed finds the same one;
	// empty, the next worker begins again.
	Version string
	// Ranges says that Open takes every offset.
	Ranges bool
	// Rewindable says that Open can be called again, with offset 0.
	Rewindable bool
	// Raw says that the content is the disk itself, byte for byte. It is not looked
	// into: what a guest wrote to the beginning of its disk must not make it an image.
	Raw bool
}
