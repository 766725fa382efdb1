// Package unpack decompresses a stream under a limit on the memory that the compressed content can demand: gzip needs
// little, and zstd's window and xz's dictionary are limited. The reader must limit the output.
package unpack

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
)

// maxWindow limits zstd's window, which is held in memory: that of `zstd --ultra -21`.
const maxWindow = 64 << 20

// Open returns a reader of the decompressed content.
func Open(ctx context.Context, compression sniff.Compression, from io.Reader) (io.ReadCloser, error) {
	source := &source{Reader: from}
	switch compression {
	case sniff.Gzip:
		r, err := gzip.NewReader(bufio.NewReaderSize(source, 256<<10))
		if err != nil {
			return nil, source.damaged(compression, err)
		}
		return &reader{ReadCloser: r, source: source, compression: compression}, nil
	case sniff.Zstd:
		r, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, source.damaged(compression, err)
		}
		return &reader{ReadCloser: r.IOReadCloser(), source: source, compression: compression}, nil
	case sniff.XZ:
		return openXZ(ctx, source)
	}
	return nil, errors.New("decompressing content: it is not compressed")
}

// source records its own error, which decompressors treat as damaged content.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (s *source) damaged(compression sniff.Compression, err error) error {
	switch {
	case s.err != nil:
		return s.err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return job.Faultf(transfer.ReasonLimit, "decompressing the content takes a window of more than %s: compress it by zstd without --ultra and --long", job.Bytes(maxWindow))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return job.Faultf(transfer.ReasonInvalidImage, "the %s content ends too early: it is truncated", compression)
	}
	return job.Faultf(transfer.ReasonInvalidImage, "the %s content is damaged: %w", compression, err)
}

type reader struct {
	io.ReadCloser
	source      *source
	compression sniff.Compression
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && r.source.err == nil {
		return n, err
	}
	return n, r.source.damaged(r.compression, err)
}
