package qcow2

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// Decoder decompresses clusters. Only one goroutine may use it.
type Decoder struct {
	zlib io.ReadCloser
	zstd *zstd.Decoder
}

// NewDecoder returns a decoder for an image.
func (h *Header) NewDecoder() (*Decoder, error) {
	if !h.zstd {
		return &Decoder{zlib: flate.NewReader(bytes.NewReader(nil))}, nil
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, err
	}
	return &Decoder{zstd: decoder}, nil
}

// Decode decompresses data into a cluster. Data may have trailing bytes: its length is known in sectors only.
func (d *Decoder) Decode(cluster, data []byte) error {
	var from io.Reader
	if d.zstd != nil {
		if err := d.zstd.Reset(bytes.NewReader(data)); err != nil {
			return invalid("a compressed cluster: %w", err)
		}
		from = d.zstd
	} else {
		if err := d.zlib.(flate.Resetter).Reset(bytes.NewReader(data), nil); err != nil {
			return invalid("a compressed cluster: %w", err)
		}
		from = d.zlib
	}
	if _, err := io.ReadFull(from, cluster); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("a compressed cluster is cut short")
	} else if err != nil {
		return invalid("a compressed cluster: %w", err)
	}
	return nil
}

// Close releases the decoder's memory.
func (d *Decoder) Close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}
