package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"time"
)

// pause is how long a guest must be silent for its unfinished line to count: a
// prompt waits for an answer and has no end of line.
const pause = 500 * time.Millisecond

// heard is what one read brought.
type heard struct {
	data []byte
	err  error
}

// watch prints what the guest says up to the first line that matches. It
// sends nothing, so it can run beside a console that somebody types in.
func watch(ctx context.Context, out io.Writer, conn net.Conn, until *regexp.Regexp) error {
	done := make(chan struct{})
	defer close(done)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := watcher{out: out, until: until}
	reads := make(chan heard)
	go listen(conn, reads, done)
	silence := time.NewTimer(pause)
	for {
		select {
		case <-silence.C:
			if found, err := w.end(); found || err != nil {
				return err
			}
		case h := <-reads:
			silence.Reset(pause)
			if found, err := w.hear(h.data); found || err != nil {
				return err
			}
			if h.err != nil {
				found, err := w.end()
				if found || err != nil {
					return err
				}
				return fmt.Errorf("no line matched %q before the console ended: %w", until, cause(ctx, h.err))
			}
		}
	}
}

// listen hands on what is read until the first error, or until nobody wants it
// any more. Its last read ends with the connection, which the caller closes.
func listen(conn net.Conn, reads chan<- heard, done <-chan struct{}) {
	for {
		chunk := make([]byte, 4096)
		n, err := conn.Read(chunk)
		select {
		case reads <- heard{chunk[:n], err}:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

// watcher puts what the guest says together to lines.
type watcher struct {
	out   io.Writer
	until *regexp.Regexp
	line  bytes.Buffer
	// printed is how much of the line is out already.
	printed int
}

// hear takes what came, and reports whether a whole line in it matches.
func (w *watcher) hear(data []byte) (found bool, err error) {
	for _, b := range data {
		w.line.WriteByte(b)
		if b != '\n' {
			continue
		}
		if found, err := w.end(); found || err != nil {
			return found, err
		}
		w.line.Reset()
		w.printed = 0
	}
	return false, nil
}

// end prints the rest of the line as it is now, and reports whether it matches.
func (w *watcher) end() (found bool, err error) {
	rest := w.line.Bytes()[w.printed:]
	w.printed = w.line.Len()
	if _, err := w.out.Write(rest); err != nil {
		return false, fmt.Errorf("printing what the guest says: %w", err)
	}
	return w.line.Len() > 0 && w.until.Match(bytes.TrimRight(w.line.Bytes(), "\r\n")), nil
}

// cause is why a read failed: the context's end closes the connection, and that
// is the better reason.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
