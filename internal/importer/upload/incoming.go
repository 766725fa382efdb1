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

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const (
	// linger is the time for a Read whose result is no longer wanted: it ends at once if the sender is sending, and a
	// stalled sender is cut off.
	linger = 2 * time.Second
	// drainTimeout and drainSize limit how much of refused content is still read: a sender that is cut off while
	// sending does not read the response.
	drainTimeout = 10 * time.Second
	// settleTimeout is the time in which an asynchronous upload should end after its last byte.
	settleTimeout = 3 * time.Second
	drainSize     = 1 << 30
)

type incoming struct {
	from  io.Reader
	size  int64
	raw   bool
	conn  *http.ResponseController
	check func() error
	// read is closed when all content was read.
	read chan struct{}
	// opened is the engine's stream, closed when the engine ends.
	opened *content
}

func newIncoming(w http.ResponseWriter, from io.Reader, size int64) *incoming {
	return &incoming{
		from: from, size: size, conn: http.NewResponseController(w),
		read: make(chan struct{}), check: func() error { return nil },
	}
}

func body(w http.ResponseWriter, r *http.Request) (*incoming, error) {
	return newIncoming(w, r.Body, r.ContentLength), nil
}

func refuse(w http.ResponseWriter, r *http.Request, message string, code int) {
	w.Header().Set("Connection", "close")
	conn := http.NewResponseController(w)
	full := conn.EnableFullDuplex()
	http.Error(w, message, code)
	if full != nil {
		return
	}
	// A sender that is gone needs no response.
	_ = conn.Flush()
	_ = conn.SetReadDeadline(time.Now().Add(drainTimeout))
	_, _ = io.CopyN(io.Discard, r.Body, drainSize)
}

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

// clone returns a raw disk that is compressed by zstd. Its format is not detected: a guest's own data at the
// beginning of the disk must not make it another image.
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
	c := &content{incoming: i, closed: make(chan struct{}), interrupted: make(chan struct{})}
	c.stop = context.AfterFunc(ctx, func() {
		defer close(c.interrupted)
		_ = i.conn.SetReadDeadline(time.Now().Add(linger))
	})
	i.opened = c
	return &job.Stream{Body: c, Size: i.size, Raw: i.raw}, nil
}

// Verify implements job.Source.
func (i *incoming) Verify(context.Context) error { return i.check() }

// content is the stream of a request. It reads nothing after its end, when the request may have ended.
type content struct {
	*incoming
	stop        func() bool
	err         error
	interrupted chan struct{}
	closed      chan struct{}
}

func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p)
	if err != nil {
		c.err = err
		c.settle()
	}
	if errors.Is(err, io.EOF) {
		close(c.read)
	}
	return n, err
}

// settle ensures that the connection's deadline is no longer set.
func (c *content) settle() {
	if !c.stop() {
		<-c.interrupted
	}
}

// Close implements io.Closer.
func (c *content) Close() error {
	if c.err == nil {
		c.settle()
	}
	close(c.closed)
	return nil
}
