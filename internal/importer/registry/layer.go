package registry

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
	"drydock.dev/drydock/internal/importer/unpack"
)

// maxScan limits the bytes of a layer in addition to the disk, so that an endless layer ends.
const maxScan = 64 << 30

const folder = "/disk"

// removed are the paths that upper layers have removed; "/*" marks the lower layers' content of an opaque folder.
type removed map[string]bool

// whiteout reports whether the entry was one, and records it.
func (r removed) whiteout(name string) bool {
	dir, base := path.Split(name)
	switch {
	case base == ".wh..wh..opq":
		r[path.Clean(dir)+"/*"] = true
	case strings.HasPrefix(base, ".wh."):
		r[path.Join(dir, strings.TrimPrefix(base, ".wh."))] = true
	default:
		return false
	}
	return true
}

func (r removed) hides(name string) bool {
	if r[name] {
		return true
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if r[dir] || r[dir+"/*"] {
			return true
		}
		if dir == "/" {
			return false
		}
	}
}

type layer struct {
	version    string
	compressed io.ReadCloser
	buffered   *bufio.Reader
	unpacked   io.Reader
	entries    *tar.Reader
	disk       string
	cancel     context.CancelCauseFunc
}

func openLayer(ctx context.Context, from v1.Layer, most int64) (*layer, error) {
	digest, err := from.Digest()
	if err != nil {
		return nil, err
	}
	compressed, err := from.Compressed()
	if err != nil {
		return nil, err
	}
	l := &layer{compressed: compressed, buffered: bufio.NewReaderSize(compressed, 256<<10), version: digest.String()}
	head, err := l.buffered.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, compressed.Close())
	}
	l.unpacked = l.buffered
	if compression := sniff.CompressionOf(head); compression != sniff.None {
		if l.unpacked, err = unpack.Open(ctx, compression, l.buffered); err != nil {
			return nil, errors.Join(err, compressed.Close())
		}
	}
	l.unpacked = &endless{from: l.unpacked, left: most}
	l.entries = tar.NewReader(l.unpacked)
	return l, nil
}

type endless struct {
	from io.Reader
	left int64
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if e.left -= int64(n); e.left < 0 {
		return 0, job.Faultf(transfer.ReasonLimit, "a layer of the container image is larger than the disk and %s: it is not read further", job.Bytes(maxScan))
	}
	return n, err
}

// seek advances to the disk and returns its size, -1 if the layer has none. It adds the layer's whiteouts to gone.
func (l *layer) seek(gone removed) (int64, error) {
	own := removed{}
	for {
		header, err := l.next(own)
		if errors.Is(err, io.EOF) {
			for name := range own {
				gone[name] = true
			}
			return -1, l.drain()
		}
		if err != nil {
			return 0, err
		}
		name := path.Clean("/" + header.Name)
		if !strings.HasPrefix(name, folder+"/") || header.Typeflag == tar.TypeDir || gone.hides(name) {
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return 0, job.Faultf(transfer.ReasonInvalidImage, "the container image's %s is no file but a link or a device: put the disk itself there", name)
		}
		l.disk = name
		l.version += name
		return header.Size, nil
	}
}

func (l *layer) next(gone removed) (*tar.Header, error) {
	for {
		header, err := l.entries.Next()
		if err != nil {
			return nil, err
		}
		if !gone.whiteout(path.Clean("/" + header.Name)) {
			return header, nil
		}
	}
}

func (l *layer) finish() error {
	watch := time.AfterFunc(stall, func() {
		l.cancel(job.Faultf(transfer.ReasonCut, "the registry stalled: no byte came for %s", stall))
	})
	defer watch.Stop()
	for {
		watch.Reset(stall)
		header, err := l.next(removed{})
		if errors.Is(err, io.EOF) {
			return l.drain()
		}
		if err != nil {
			return err
		}
		name := path.Clean("/" + header.Name)
		if header.Typeflag != tar.TypeDir && strings.HasPrefix(name, folder+"/") {
			return severalDisks(l.disk, name)
		}
	}
}

func severalDisks(one, other string) error {
	return job.Faultf(transfer.ReasonInvalidImage,
		"the container image has several files in its folder /disk (%s and %s): there must be one", path.Base(one), path.Base(other))
}

// drain reads the layer to its end, where its digest is compared.
func (l *layer) drain() error {
	if _, err := io.Copy(io.Discard, l.unpacked); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, l.buffered)
	return err
}

func (l *layer) close() error { return l.compressed.Close() }

type body struct {
	*layer
	explain func(error) error
	stop    func() bool
	ended   bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.entries.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		// Verify reads the rest of the layer.
		b.ended = true
		b.stop()
	case err != nil:
		err = b.explain(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.ended {
		return nil
	}
	b.stop()
	b.cancel(nil)
	return b.close()
}
