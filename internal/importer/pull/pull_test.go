package pull

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// script is a source whose connections end as listed; the last one delivers the rest of the content.
type script struct {
	content string
	// connections has for each one after how many bytes it ends, and how.
	connections []ending
	ranges      bool
	version     string
	opened      []int64
}

type ending struct {
	after int
	err   error // nil: silence
	// opening is the error of a new connection; version changes the content's name.
	opening error
	version string
}

func (s *script) Open(ctx context.Context, offset int64) (*job.Stream, error) {
	s.opened = append(s.opened, offset)
	now := ending{after: len(s.content), err: io.EOF}
	if len(s.connections) > 0 {
		now, s.connections = s.connections[0], s.connections[1:]
	}
	if now.opening != nil {
		return nil, now.opening
	}
	version := s.version
	if now.version != "" {
		version = now.version
	}
	rest := s.content[offset:]
	return &job.Stream{
		Body:   &body{ctx: ctx, content: bytes.NewReader([]byte(rest[:min(now.after, len(rest))])), end: now.err},
		Offset: offset, Size: int64(len(s.content)), Version: version, Ranges: s.ranges,
	}, nil
}

func (s *script) Verify(context.Context) error { return nil }

type body struct {
	ctx     context.Context
	content *bytes.Reader
	end     error
}

func (b *body) Read(p []byte) (int, error) {
	if b.content.Len() > 0 {
		return b.content.Read(p)
	}
	if b.end == nil {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return 0, b.end
}

func (b *body) Close() error { return nil }

var errReset = errors.New("connection reset by peer")

func TestEveryEnding(t *testing.T) {
	const content = "0123456789"
	unreachable := job.Faultf(transfer.ReasonSourceUnreachable, "the server answers 503")
	gone := job.Faultf(transfer.ReasonSourceRefused, "the server answers 404")
	for name, test := range map[string]struct {
		source  script
		message string
		read    string
		opened  int
		took    time.Duration
	}{
		"one connection":                       {script{}, "", content, 1, 0},
		"cut once, and taken up":               {script{ranges: true, connections: []ending{{after: 4, err: errReset}}}, "", content, 2, time.Second},
		"ended early, and taken up":            {script{ranges: true, connections: []ending{{after: 4, err: io.EOF}}}, "", content, 2, time.Second},
		"silent, and taken up":                 {script{ranges: true, connections: []ending{{after: 4}}}, "", content, 2, 61 * time.Second},
		"unreachable twice, then there":        {script{connections: []ending{{opening: unreachable}, {opening: unreachable}}}, "", content, 3, 3 * time.Second},
		"unreachable for good":                 {script{connections: []ending{{opening: unreachable}, {opening: unreachable}, {opening: unreachable}, {opening: unreachable}}}, "the server answers 503", "", 4, 7 * time.Second},
		"not there":                            {script{connections: []ending{{opening: gone}}}, "the server answers 404", "", 1, 0},
		"cut where nothing can be taken up":    {script{connections: []ending{{after: 4, err: errReset}}}, "the connection broke after 4 bytes: connection reset by peer", "0123", 1, 0},
		"ended where nothing can be taken up":  {script{connections: []ending{{after: 4, err: io.EOF}}}, "the connection ended after 4 bytes of 10 bytes", "0123", 1, 0},
		"silent where nothing can be taken up": {script{connections: []ending{{after: 4}}}, "the source stalled: no byte came for 1m0s", "0123", 1, time.Minute},
		"other content after a cut":            {script{ranges: true, connections: []ending{{after: 4, err: errReset}, {after: 9, err: io.EOF, version: "v2"}}}, "the source changed while it was read: reading begins again", "0123", 2, time.Second},
		"cut again and again without a byte": {script{ranges: true, connections: []ending{{after: 4, err: errReset}, {err: errReset}, {err: errReset}, {err: errReset}, {err: errReset}}},
			"the connection broke after 4 bytes: connection reset by peer", "0123", 4, 7 * time.Second},
		"cut again and again after a byte": {script{ranges: true, connections: []ending{{after: 1, err: errReset}, {after: 1, err: errReset}, {after: 1, err: errReset}, {after: 1, err: errReset}, {after: 1, err: errReset}}},
			"", content, 6, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				test.source.content = content
				read, err := readAll(t, &test.source)
				if read != test.read || err == nil != (test.message == "") || err != nil && err.Error() != test.message {
					t.Errorf("got %q, %v", read, err)
				}
				if len(test.source.opened) != test.opened {
					t.Errorf("opened at %v", test.source.opened)
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

type dripping struct {
	script
	bytes int
	pause time.Duration
}

func (d *dripping) Open(ctx context.Context, offset int64) (*job.Stream, error) {
	stream, err := d.script.Open(ctx, offset)
	if err == nil {
		stream.Body = slowBody{stream.Body, d}
	}
	return stream, err
}

type slowBody struct {
	io.ReadCloser
	source *dripping
}

func (b slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.source.pause)
	return b.ReadCloser.Read(p[:min(len(p), b.source.bytes)])
}

func TestASourceThatDripsIsNotWaitedForUntilItsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		source  dripping
		message string
		took    time.Duration
	}{
		"a byte every half a minute": {dripping{bytes: 1, pause: 30 * time.Second},
			"the source is too slow: only 20 bytes came in 10m0s", 10 * time.Minute},
		"a modem of 33,600 bits": {dripping{bytes: 4200, pause: time.Second}, "", 1000 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.source.content, test.source.ranges = string(make([]byte, 4200*1000-1)), true
				began := time.Now()
				_, err := readAll(t, &test.source)
				if (err == nil) != (test.message == "") || err != nil && err.Error() != test.message {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took.Round(time.Second) > test.took+time.Second || len(test.source.opened) != 1 {
					t.Errorf("it took %s, and was opened at %v", took, test.source.opened)
				}
			})
		})
	}
}

func readAll(t *testing.T, source job.Source) (string, error) {
	r, err := Open(t.Context(), source, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	content, err := io.ReadAll(r)
	if r.Total() != int64(len(content)) {
		t.Errorf("the total is %d", r.Total())
	}
	return string(content), err
}

func TestAStoppedReaderLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := Open(ctx, &script{content: "0123456789", connections: []ending{{after: 4}}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, cancel)
		if content, err := io.ReadAll(r); string(content) != "0123" || !errors.Is(err, context.Canceled) {
			t.Errorf("got %q, %v", content, err)
		}
	})
}
