// Package relay copies bytes in both directions between a local stream and a stream to a guest. It must not open
// either.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// linger is how long the guest may be silent after the end of the local input. A WebSocket can't be closed in
// one direction only, so this replaces TCP's half-close.
const linger = 2 * time.Second

// Conns copies until one end or the context ends, and closes both.
func Conns(ctx context.Context, local, remote net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = remote.Close() })
	defer stop()
	r := &relay{remote: remote}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		r.send(local)
	}()
	err := r.receive(ctx, local)
	_ = remote.Close()
	_ = local.Close()
	<-sent
	return err
}

// Stdio connects a process's input and output. The goroutine that reads the input can't be interrupted and ends
// with the process.
func Stdio(ctx context.Context, in io.Reader, out io.Writer, remote net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = remote.Close() })
	defer stop()
	r := &relay{remote: remote}
	go r.send(in)
	err := r.receive(ctx, out)
	_ = remote.Close()
	return err
}

type relay struct {
	remote   net.Conn
	finished atomic.Bool
}

func (r *relay) send(from io.Reader) {
	// receive sees the same error: the stream is gone, or the local side has ended.
	_, _ = io.Copy(r.remote, from)
	r.finished.Store(true)
	_ = r.remote.SetReadDeadline(time.Now().Add(linger))
}

func (r *relay) receive(ctx context.Context, to io.Writer) error {
	buffer := make([]byte, 32*1024)
	for {
		n, err := r.remote.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return nil // the local side may close at any time
			}
			if r.finished.Load() {
				_ = r.remote.SetReadDeadline(time.Now().Add(linger))
			}
		}
		var timeout net.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case r.finished.Load() && errors.As(err, &timeout) && timeout.Timeout():
			return nil
		default:
			return fmt.Errorf("the connection to the guest broke: %w", err)
		}
	}
}
