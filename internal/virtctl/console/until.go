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

// pause is the guest's silence after which an unfinished line counts: a prompt waits for an answer and has no
// end of line.
const pause = 500 * time.Millisecond

type heard struct {
	data []byte
	err  error
}

// watch sends nothing, so it does not disturb another user's console.
func watch(ctx context.Context, out io.Writer, conn net.Conn, until *regexp.Regexp) error {
	done := make(chan struct{})
	defer close(done)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := watcher{out: out, until: until}
	reads := make(chan heard)
	go func() { // its last read ends with the connection, which the caller closes
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
	}()
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

type watcher struct {
	out   io.Writer
	until *regexp.Regexp
	line  bytes.Buffer
	// printed is the length of the printed part of the line.
	printed int
}

// hear reports whether a whole line matches.
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

// end prints the current line's rest, and reports whether it matches.
func (w *watcher) end() (found bool, err error) {
	rest := w.line.Bytes()[w.printed:]
	w.printed = w.line.Len()
	if _, err := w.out.Write(rest); err != nil {
		return false, fmt.Errorf("printing what the guest says: %w", err)
	}
	return w.line.Len() > 0 && w.until.Match(bytes.TrimRight(w.line.Bytes(), "\r\n")), nil
}

// The end of the context closes the connection and is the better reason.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
