package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"

	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/transfer"
)

// incoming is the content of one request, as a source that can be read once.
type incoming struct {
	from io.Reader
	size int64
	raw  bool
	// interrupt makes a Read of from end.
	interrupt func() error
	// check says at the end whether from brought what it should.
	check func() error
	// read is closed when the content was read to its end.
	read chan struct{}
}

func newIncoming(w http.ResponseWriter, from io.Reader, size int64) *incoming {
	return &incoming{
		from: from, size: size, read: make(chan struct{}),
		interrupt: func() error { return http.NewResponseController(w).SetReadDeadline(time.Now()) },
		check:     func() error { return nil },
	}
}

// body takes the request's body.
func body(w http.ResponseWriter, r *http.Request) (*incoming, error) {
	return newIncoming(w, r.Body, r.ContentLength), nil
}

// form takes the first file of a form.
func form(w http.ResponseWriter, r *http.Request) (*incoming, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, fmt.Errorf("reading the form: %w", err)
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the form has no file")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the form: %w", err)
		}
		if part.FileName() != "" || part.FormName() == "file" {
			return newIncoming(w, part, -1), nil
		}
	}
}

// clone takes a raw disk that is compressed by zstd. What a guest wrote to the
// beginning of the disk must not make it an image of another format.
func clone(w http.ResponseWriter, r *http.Request) (*incoming, error) {
	size, err := strconv.ParseInt(r.Header.Get(transfer.CloneSizeHeader), 10, 64)
	if err != nil || size <= 0 {
		return nil, fmt.Errorf("the header %s is %q; it must be the size of the disk", transfer.CloneSizeHeader,
			r.Header.Get(transfer.CloneSizeHeader))
	}
	summed := &summing{from: r.Body, sum: sha256.New()}
	decoder, err := zstd.NewReader(summed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(transfer.CloneWindow))
	if err != nil {
		return nil, fmt.Errorf("reading the clone: %w", err)
	}
	in := newIncoming(w, decoder, size)
	in.raw = true
	in.check = func() error {
		decoder.Close()
		if want := r.Trailer.Get(transfer.CloneSumTrailer); want == "" || want != summed.hex() {
			return job.Faultf(transfer.ReasonCut, "the clone was not sent to its end")
		}
		return nil
	}
	return in, nil
}

// summing sums what is read.
type summing struct {
	from io.Reader
	sum  hash.Hash
}

func (s *summing) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

func (s *summing) hex() string { return hex.EncodeToString(s.sum.Sum(nil)) }

// Open implements job.Source.
func (i *incoming) Open(ctx context.Context, _ int64) (*job.Stream, error) {
	stop := context.AfterFunc(ctx, func() { _ = i.interrupt() })
	return &job.Stream{Body: &content{incoming: i, stop: stop}, Size: i.size, Raw: i.raw}, nil
}

// Verify implements job.Source.
func (i *incoming) Verify(context.Context) error { return i.check() }

// content is what is read of a request; nothing after its end, when the answer may be
// given and the request be gone.
type content struct {
	*incoming
	stop func() bool
	err  error
}

func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p)
	if err != nil {
		c.err = err
		c.stop()
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		close(c.read)
	}
	return n, err
}

// Close implements io.Closer.
func (c *content) Close() error { return nil }
