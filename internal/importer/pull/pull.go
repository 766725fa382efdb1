package pull

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const (
	chunkSize = 256 << 10
	// readAhead is in chunks.
	readAhead = 8
	// maxAttempts limits successive failures of a connection without one new byte.
	maxAttempts = 4
)

// Reader reads a source's content in order. Only one goroutine may call Read and Close.
type Reader struct {
	source job.Source
	stall  time.Duration
	// pause is the delay before the second attempt; each further one is twice as long.
	pause time.Duration
	// head is the first stream, whose Version all later ones must have.
	head job.Stream
	rate rateGuard

	ctx    context.Context
	cancel context.CancelFunc
	chunks chan chunk
	spare  chan []byte
	now    chunk
	rest   []byte
	total  atomic.Int64
}

type chunk struct {
	data []byte
	err  error
}

// Option configures a Reader.
type Option func(*Reader)

// Stall sets how long a source may send nothing.
func Stall(limit time.Duration) Option { return func(r *Reader) { r.stall = limit } }

// Open opens a source at an offset and begins to read.
func Open(ctx context.Context, source job.Source, offset int64, options ...Option) (*Reader, error) {
	r := &Reader{source: source, stall: time.Minute,
		chunks: make(chan chunk, readAhead), spare: make(chan []byte, readAhead+2)}
	for _, option := range options {
		option(r)
	}
	r.pause = min(time.Second, r.stall/10)
	ctx, cancel := context.WithCancel(ctx)
	r.ctx, r.cancel = ctx, cancel
	first, err := r.connect(ctx, offset, true)
	if err != nil {
		cancel()
		return nil, err
	}
	if first.Offset != offset {
		cancel()
		return nil, errors.Join(first.close(), changed())
	}
	r.head = first.Stream
	go r.run(ctx, first)
	return r, nil
}

// Stream returns the first stream, whose Body must not be used.
func (r *Reader) Stream() job.Stream { return r.head }

// Total counts all bytes from the source, including repeated ones.
func (r *Reader) Total() int64 { return r.total.Load() }

// Read reads the content. Its errors are io.EOF at the true end, and Faults.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		if r.now.data != nil {
			r.spare <- r.now.data[:cap(r.now.data)]
		}
		select {
		case r.now = <-r.chunks:
		case <-r.ctx.Done():
			r.now = chunk{err: context.Cause(r.ctx)}
		}
		r.rest = r.now.data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close does not wait, so that a source that ignores its context can't block the worker.
func (r *Reader) Close() error {
	r.cancel()
	return nil
}

func (r *Reader) run(ctx context.Context, from *connection) {
	at := from.Offset
	failed := 0
	for {
		began := at
		err := r.copyFrom(ctx, from, &at)
		_ = from.close() // its content was read
		if errors.Is(err, io.EOF) {
			r.send(ctx, chunk{err: io.EOF})
			return
		}
		if at > began {
			failed = 0
		}
		failed++
		if next := r.again(ctx, at, failed, &err); next != nil {
			from = next
			continue
		}
		r.send(ctx, chunk{err: err})
		return
	}
}

// copyFrom forwards a connection's content; io.EOF means that it is complete.
func (r *Reader) copyFrom(ctx context.Context, from *connection, at *int64) error {
	for {
		buffer := r.buffer()
		began := time.Now()
		n, err := from.read(buffer)
		r.total.Add(int64(n))
		r.rate.add(int64(n), time.Since(began))
		if n > 0 {
			if !r.send(ctx, chunk{data: buffer[:n]}) {
				return context.Cause(ctx)
			}
			*at += int64(n)
		}
		size := r.head.Size
		switch {
		case size >= 0 && *at > size:
			return job.Faultf(transfer.ReasonCut, "the source sent more than the %s that it announced", job.Bytes(size))
		case errors.Is(err, io.EOF) && size > *at:
			return job.Faultf(transfer.ReasonCut, "the connection ended after %s of %s", job.Bytes(*at), job.Bytes(size))
		case err != nil:
			return err
		case r.rate.tooSlow(r.stall):
			return r.rate.fault()
		}
	}
}

func (r *Reader) buffer() []byte {
	select {
	case buffer := <-r.spare:
		return buffer
	default:
		return make([]byte, chunkSize)
	}
}

func (r *Reader) send(ctx context.Context, c chunk) bool {
	select {
	case r.chunks <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// again reopens the source at the offset where the connection broke, if possible.
func (r *Reader) again(ctx context.Context, at int64, failed int, cause *error) *connection {
	if !r.head.Ranges || failed >= maxAttempts || !worthAnother(*cause) || r.rate.cut || ctx.Err() != nil {
		*cause = cut(*cause, at)
		return nil
	}
	if !r.await(ctx, failed) {
		*cause = context.Cause(ctx)
		return nil
	}
	next, err := r.connect(ctx, at, false)
	if err != nil {
		*cause = err
		return nil
	}
	if next.Version != r.head.Version || next.Size != r.head.Size || next.Offset != at {
		*cause = errors.Join(next.close(), changed())
		return nil
	}
	return next
}

func changed() error {
	return job.Faultf(transfer.ReasonCut, "the source changed while it was read: reading begins again")
}

func cut(err error, at int64) error {
	var fault *job.Fault
	if errors.As(err, &fault) || errors.Is(err, context.Canceled) {
		return err
	}
	return job.Faultf(transfer.ReasonCut, "the connection broke after %s: %w", job.Bytes(at), err)
}

func worthAnother(err error) bool {
	var fault *job.Fault
	if !errors.As(err, &fault) {
		return true
	}
	return fault.Reason == transfer.ReasonCut || fault.Reason == transfer.ReasonSourceUnreachable
}

// await waits after that many failures in a row, unless ctx ends. maxAttempts limits the delays, so the worker needs
// no backoff library.
func (r *Reader) await(ctx context.Context, failed int) bool {
	timer := time.NewTimer(r.pause << (failed - 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *Reader) connect(ctx context.Context, offset int64, first bool) (*connection, error) {
	for failed := 1; ; failed++ {
		attempt, cancel := context.WithCancelCause(ctx)
		stream, err := r.source.Open(attempt, offset)
		if err == nil {
			return &connection{Stream: *stream, cancel: cancel, ctx: attempt, stall: r.stall}, nil
		}
		cancel(nil)
		if failed >= maxAttempts || !worthAnother(err) || !r.await(ctx, failed) {
			if !first {
				err = cut(err, offset)
			}
			return nil, err
		}
	}
}

type connection struct {
	job.Stream
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
}

func (c *connection) read(p []byte) (int, error) {
	watch := time.AfterFunc(c.stall, func() {
		c.cancel(job.Faultf(transfer.ReasonCut, "the source stalled: no byte came for %s", c.stall))
	})
	n, err := c.Body.Read(p)
	watch.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(c.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (c *connection) close() error {
	err := c.Body.Close()
	c.cancel(nil)
	return err
}
