package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// Source is a file on a server. It is a job.Ranger.
type Source struct {
	client *http.Client
	url    *url.URL
	access access

	mu   sync.Mutex
	last job.Stream
	// final is the request that was answered after redirects, or nil. The servers to which a redirector leads by
	// turns may have other ETags for the same content.
	final *http.Request
}

// Open implements job.Source.
func (s *Source) Open(ctx context.Context, offset int64) (*job.Stream, error) {
	response, err := s.get(ctx, fmt.Sprintf("bytes=%d-", offset))
	if err != nil {
		return nil, err
	}
	stream, err := s.describe(response, offset)
	if err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	stream.Body = response.Body
	if offset > 0 && stream.Offset == 0 && stream.Version == s.known().Version {
		// The server no longer supports ranges and sends everything.
		if _, err := io.CopyN(io.Discard, stream.Body, offset); err != nil {
			return nil, errors.Join(Unreachable(s.url, err), stream.Body.Close())
		}
		stream.Offset = offset
	}
	s.note(stream)
	return &stream, nil
}

// Verify does nothing: a server has no checksum.
func (s *Source) Verify(context.Context) error { return nil }

// Stat requests one byte instead of HEAD, which signed URLs and some servers refuse.
func (s *Source) Stat(ctx context.Context) (job.Stream, error) {
	s.note(job.Stream{})
	s.redirected(nil)
	response, err := s.get(ctx, firstByte)
	if err != nil {
		return job.Stream{}, err
	}
	stream, err := s.describe(response, 0)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return job.Stream{}, err
	}
	s.note(stream)
	return stream, nil
}

// ReadRange returns io.ErrUnexpectedEOF if the content ends within the range.
func (s *Source) ReadRange(ctx context.Context, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	known := s.known()
	if offset+int64(len(p)) > known.Size {
		return fmt.Errorf("reading %d bytes at %d: %w", len(p), offset, io.ErrUnexpectedEOF)
	}
	response, err := s.get(ctx, fmt.Sprintf("bytes=%d-%d", offset, offset+int64(len(p))-1))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	stream, err := s.describe(response, offset)
	if err != nil {
		return err
	}
	if stream.Version != known.Version || stream.Offset != offset {
		return job.Faultf(transfer.ReasonCut, "the source changed while it was read: reading begins again")
	}
	if _, err := io.ReadFull(response.Body, p); err != nil {
		return job.Faultf(transfer.ReasonCut, "the connection to %s ended too early: %w", s.url.Host, err)
	}
	return nil
}

func (s *Source) known() job.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Source) note(stream job.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = stream
	s.last.Body = nil
}

// get requests a range if the file has the known version. Only an empty file lacks the first range: then get requests
// the whole file.
func (s *Source) get(ctx context.Context, what string) (*http.Response, error) {
	response, err := s.ask(ctx, what)
	if err == nil && response.StatusCode == http.StatusRequestedRangeNotSatisfiable && (what == fromStart || what == firstByte) {
		_ = response.Body.Close()
		response, err = s.ask(ctx, "")
	}
	if err != nil {
		return nil, err
	}
	if gives(response) {
		return response, nil
	}
	_ = response.Body.Close()
	return nil, refused(s.url, response)
}

const (
	fromStart = "bytes=0-"
	firstByte = "bytes=0-0"
)

// ask requests a range or, if that is empty, the whole file: where the last request was redirected to, or again from
// the source's URL, since signed addresses expire.
func (s *Source) ask(ctx context.Context, what string) (*http.Response, error) {
	s.mu.Lock()
	final := s.final
	s.mu.Unlock()
	if final != nil {
		// It has only the headers that the redirects left to it.
		request := final.Clone(ctx)
		request.Header.Del("Range")
		request.Header.Del("If-Range")
		response, err := s.send(request, what)
		if err == nil && gives(response) {
			return response, nil
		}
		if err == nil {
			_ = response.Body.Close()
		}
		s.redirected(nil)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", s.url.Redacted(), err)
	}
	s.access.put(request)
	return s.send(request, what)
}

func gives(response *http.Response) bool {
	return response.StatusCode == http.StatusOK || response.StatusCode == http.StatusPartialContent
}

func (s *Source) redirected(final *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.final = final
}

func (s *Source) send(request *http.Request, what string) (*http.Response, error) {
	if what != "" {
		request.Header.Set("Range", what)
	}
	if known := s.known(); what != "" && known.Version != "" {
		request.Header.Set("If-Range", strings.TrimPrefix(known.Version, modified))
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, Unreachable(s.url, err)
	}
	if final := response.Request; gives(response) && final.URL.String() != s.url.String() {
		s.redirected(&http.Request{Method: http.MethodGet, URL: final.URL, Host: final.Host, Header: final.Header})
	}
	return response, nil
}

// modified marks a version that is a date: HTTP distinguishes dates and ETags by the quotes.
const modified = "modified "

func (s *Source) describe(response *http.Response, offset int64) (job.Stream, error) {
	stream := job.Stream{Size: response.ContentLength, Version: version(response), Rewindable: true}
	if response.StatusCode == http.StatusOK {
		return stream, nil
	}
	begin, size, err := contentRange(response.Header.Get("Content-Range"))
	if err != nil {
		return stream, job.Faultf(transfer.ReasonSourceUnreachable, "%s answers with a piece of the file that was not asked for: %w", s.url.Host, err)
	}
	if begin != offset {
		return stream, job.Faultf(transfer.ReasonSourceUnreachable, "%s answers with the file from %d on, and was asked for it from %d", s.url.Host, begin, offset)
	}
	stream.Offset, stream.Size, stream.Ranges = begin, size, size >= 0
	return stream, nil
}

// version identifies the content by a strong ETag, otherwise by its date.
func version(response *http.Response) string {
	if tag := response.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	if date := response.Header.Get("Last-Modified"); date != "" {
		return modified + date
	}
	return ""
}

// contentRange parses "bytes <first>-<last>/<size>"; an unknown size is -1.
func contentRange(text string) (begin, size int64, err error) {
	unit, rest, _ := strings.Cut(text, " ")
	span, whole, _ := strings.Cut(rest, "/")
	first, _, _ := strings.Cut(span, "-")
	begin, err = strconv.ParseInt(first, 10, 64)
	if err != nil || unit != "bytes" {
		return 0, 0, fmt.Errorf("content range %q", text)
	}
	if whole == "*" {
		return begin, -1, nil
	}
	if size, err = strconv.ParseInt(whole, 10, 64); err != nil || size < 0 {
		return 0, 0, fmt.Errorf("content range %q", text)
	}
	return begin, size, nil
}
