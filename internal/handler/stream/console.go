package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Consoles shares serial consoles. QEMU's socket takes a single connection, so there is one for each guest, from the
// first Open until QEMU ends. The output is always read at once into a ring, from which each viewer reads at its own
// pace: a slow one misses output and gets a notice, and a new one starts with the last screen.
type Consoles struct {
	mu    sync.Mutex
	open  map[string]*Console
	ended bool
}

// NewConsoles returns a Consoles without connections.
func NewConsoles() *Consoles { return &Consoles{open: map[string]*Console{}} }

// dialTimeout is much longer than a connection on this node takes.
const dialTimeout = 10 * time.Second

// Dial connects to a guest's serial console.
type Dial func(context.Context) (net.Conn, error)

// Console is one guest's serial console.
type Console struct {
	output ring
	input  chan []byte
	// ready is closed after dialing; then conn or err is set.
	ready chan struct{}
	conn  net.Conn
	err   error
	done  chan struct{}
	// wrote is closed with the first line, which was complete at firstLine.
	wrote     chan struct{}
	firstLine time.Time
	// parts are the goroutines that end with the connection.
	parts sync.WaitGroup
}

// Open returns the console of key, and dials if nobody has yet. An open console is recorded, also without viewers.
func (c *Consoles) Open(ctx context.Context, key string, dial Dial) (*Console, error) {
	console, first, err := c.find(key)
	if err != nil {
		return nil, err
	}
	if first {
		console.connect(ctx, dial, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.open[key] == console {
				delete(c.open, key)
			}
		})
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-console.ready:
		return console, console.err
	}
}

// Close ends all consoles.
func (c *Consoles) Close() {
	c.mu.Lock()
	c.ended = true
	var open []*Console
	for _, console := range c.open {
		open = append(open, console)
	}
	c.mu.Unlock()
	for _, console := range open {
		<-console.ready
		if console.conn != nil {
			_ = console.conn.Close()
			console.parts.Wait()
		}
	}
}

func (c *Consoles) find(key string) (console *Console, first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, false, errors.New("virt-handler is ending; try again")
	}
	if console := c.open[key]; console != nil {
		return console, false, nil
	}
	console = &Console{
		input: make(chan []byte),
		ready: make(chan struct{}),
		done:  make(chan struct{}),
		wrote: make(chan struct{}),
	}
	console.output.changed = make(chan struct{})
	c.open[key] = console
	return console, true, nil
}

// ended is called before any viewer can see the end, so that the next viewer dials again.
func (c *Console) connect(ctx context.Context, dial Dial, ended func()) {
	// Others may wait for this connection, so it does not end with the first caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		c.err = fmt.Errorf("connecting to the serial console: %w", err)
		ended()
		close(c.ready)
		return
	}
	c.conn = conn
	c.parts.Go(func() {
		buffer := make([]byte, 4<<10)
		for {
			n, err := conn.Read(buffer)
			if c.firstLine.IsZero() && bytes.IndexByte(buffer[:n], '\n') >= 0 {
				c.firstLine = time.Now()
				close(c.wrote)
			}
			c.output.write(buffer[:n])
			if err != nil {
				break
			}
		}
		_ = conn.Close()
		ended()
		c.output.end()
		close(c.done)
	})
	c.parts.Go(c.sendKeystrokes)
	close(c.ready)
}

// FirstLine waits for the first line since the console was opened, and returns its time. ok is false if the console or
// ctx ends before.
func (c *Console) FirstLine(ctx context.Context) (at time.Time, ok bool) {
	select {
	case <-c.wrote:
		return c.firstLine, true
	case <-c.done:
	case <-ctx.Done():
	}
	select {
	case <-c.wrote:
		return c.firstLine, true
	default:
		return time.Time{}, false
	}
}

// sendKeystrokes runs until the connection ends. A guest that does not read blocks its viewers' keystrokes only.
func (c *Console) sendKeystrokes() {
	for {
		select {
		case <-c.done:
			return
		case data := <-c.input:
			if _, err := c.conn.Write(data); err != nil {
				return
			}
		}
	}
}

// Serve shows the console until the client, the guest or ctx ends.
func (c *Console) Serve(ctx context.Context, client *Client) {
	screen, position := c.output.screen()
	client.serve(ctx, func() {},
		func(ctx context.Context) {
			if len(screen) == 0 || client.write(screen) {
				c.show(ctx, client, position)
			}
		},
		func(ctx context.Context) {
			for {
				data, ok := client.read()
				if !ok {
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-c.done:
					return
				case c.input <- data:
				}
			}
		},
	)
}

func (c *Console) show(ctx context.Context, client *Client, position int64) {
	buffer := make([]byte, chunk)
	for {
		n, skipped, changed := c.output.read(buffer, position)
		position += skipped + int64(n)
		if skipped > 0 && !client.write(fmt.Appendf(nil, "\r\n[%d bytes of output skipped: the console was read too slowly]\r\n", skipped)) {
			return
		}
		if n > 0 {
			if !client.write(buffer[:n]) {
				return
			}
			continue
		}
		if changed == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
