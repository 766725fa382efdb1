package clone

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// piece is the size of a read, and of the smallest hole.
const piece = 1 << 20

// zeroes are zero bytes as complete zstd frames, the largest first. A zstd stream may have many frames.
var zeroes = sync.OnceValues(func() ([]frame, error) {
	var frames []frame
	encoder, err := newEncoder(nil)
	if err != nil {
		return nil, err
	}
	for _, size := range []int64{64 << 20, piece} {
		var text bytes.Buffer
		encoder.Reset(&text)
		for range size / piece {
			if _, err := encoder.Write(none); err != nil {
				return nil, err
			}
		}
		if err := encoder.Close(); err != nil {
			return nil, err
		}
		frames = append(frames, frame{size, text.Bytes()})
	}
	return frames, nil
})

type frame struct {
	size int64
	text []byte
}

func newEncoder(w io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(transfer.CloneWindow))
}

type stream struct {
	disk  *os.File
	size  int64
	meter *job.Meter
	read  int64

	to      io.Writer
	encoder *zstd.Encoder
	open    bool
}

func (s *stream) copyTo(ctx context.Context, w io.Writer) (string, error) {
	sum := sha256.New()
	s.to = io.MultiWriter(w, sum)
	var err error
	if s.encoder, err = newEncoder(nil); err != nil {
		return "", fmt.Errorf("compressing the disk: %w", err)
	}
	buffer := make([]byte, piece)
	for at := int64(0); at < s.size; {
		begin, end, err := s.data(at)
		if err != nil {
			return "", err
		}
		if err := s.hole(begin - at); err != nil {
			return "", err
		}
		for at = begin; at < end; {
			n, err := s.copyPiece(buffer, at, end)
			if err != nil {
				return "", err
			}
			at += n
			s.meter.Advance(at, s.size)
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
		}
		s.meter.Advance(at, s.size)
	}
	// The checksum includes the end of the last frame.
	if err := s.close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// data returns the next range of data, empty at the end of the disk. A device does not report holes.
func (s *stream) data(at int64) (begin, end int64, err error) {
	begin, err = unix.Seek(int(s.disk.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return s.size, s.size, nil
	case errors.Is(err, unix.EINVAL):
		return at, s.size, nil
	case err != nil:
		return 0, 0, fmt.Errorf("looking for data on the disk to be cloned: %w", err)
	}
	end, err = unix.Seek(int(s.disk.Fd()), begin, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("looking for holes on the disk to be cloned: %w", err)
	}
	// If the disk grows, the announced size counts.
	return min(begin, s.size), min(end, s.size), nil
}

func (s *stream) copyPiece(buffer []byte, at, end int64) (int64, error) {
	p := buffer[:min(piece, end-at)]
	if n, err := s.disk.ReadAt(p, at); n < len(p) {
		return 0, fmt.Errorf("reading the disk to be cloned at %d: %w", at, err)
	}
	s.read += int64(len(p))
	if bytes.Equal(p, none) {
		return piece, s.hole(piece)
	}
	return int64(len(p)), s.write(p)
}

func (s *stream) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if !s.open {
		s.encoder.Reset(s.to)
		s.open = true
	}
	if _, err := s.encoder.Write(p); err != nil {
		return fmt.Errorf("sending the disk: %w", err)
	}
	return nil
}

func (s *stream) hole(size int64) error {
	if size < piece {
		return s.write(none[:size])
	}
	if err := s.close(); err != nil {
		return err
	}
	frames, err := zeroes()
	if err != nil {
		return fmt.Errorf("compressing a hole: %w", err)
	}
	for _, f := range frames {
		for ; size >= f.size; size -= f.size {
			if _, err := s.to.Write(f.text); err != nil {
				return fmt.Errorf("sending the disk: %w", err)
			}
		}
	}
	return s.write(none[:size])
}

func (s *stream) close() error {
	if !s.open {
		return nil
	}
	s.open = false
	if err := s.encoder.Close(); err != nil {
		return fmt.Errorf("sending the disk: %w", err)
	}
	return nil
}

var none = make([]byte, piece)
