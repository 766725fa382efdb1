package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Consoles shares serial consoles (decision 052). QEMU's end of a console takes a single
// connection, so there is one for each guest, held from the first look (or
// from Record) until the guest's QEMU ends. What the guest writes is always
// read at once and kept in a ring, from which each viewer reads at its own
// pace: a slow one misses output and is told so, and a new one begins with the
// last screen.
type Consoles struct {
	mu   sync.Mutex
	open map[string]*Console
	// ended reports whether Close has been called.
	ended bool
}

// NewConsoles returns a Consoles that holds no connection.
func NewConsoles() *Consoles { return &Consoles{open: map[string]*Console{}} }

// dialTimeout is far more than the connection to a socket on this node takes.
const dialTimeout = 10 * time.Second

// Dial connects to a guest's serial console.
type Dial func(context.Context) (net.Conn, error)

// Console is one guest's serial console.
type Console struct {
	output ring
	// input takes viewers' keystrokes to the guest in the order of arrival.
	input chan []byte
	// ready is closed when dialing is over; then conn or err is set.
	ready chan struct{}
	conn  net.Conn
	err   error
	// done is closed when the connection has ended.
	done chan struct{}
	// parts are the goroutines that end with the connection.
	parts sync.WaitGroup
}

// Open returns the console with the given key, and connects to it by dial if
// nobody has yet. A viewer that is not served is no loss: the console's output
// is recorded from the moment it is open.
func (c *Consoles) Open(ctx context.Context, key string, dial Dial) (*Console, error) {
	console, first, err := c.find(key)
	if err != nil {
		return nil, err
	}
	if first {
		console.connect(ctx, dial, func() { c.forget(key, console) })
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
	}
	console.output.changed = make(chan struct{})
	c.open[key] = console
	return console, true, nil
}

func (c *Consoles) forget(key string, console *Console) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[key] == console {
		delete(c.open, key)
	}
}

// connect dials and starts the two goroutines that end with the connection.
// ended is called before any viewer can see the end, so that the next one
// dials anew.
func (c *Console) connect(ctx context.Context, dial Dial, ended func()) {
	// Others wait for this connection too, so it is not given up when the
	// first of them goes.
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
		c.record()
		_ = conn.Close()
		ended()
		c.output.end()
		close(c.done)
	})
	c.parts.Go(c.feed)
	close(c.ready)
}

// record keeps the guest's output until the connection ends.
func (c *Console) record() {
	buffer := make([]byte, 4<<10)
	for {
		n, err := c.conn.Read(buffer)
		c.output.write(buffer[:n])
		if err != nil {
			return
		}
	}
}

// feed passes keystrokes to the guest until the connection ends. A guest that
// reads none holds up its viewers' keystrokes and nothing else.
func (c *Console) feed() {
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

// Serve shows the console to the client until the client, the guest or ctx
// ends.
func (c *Console) Serve(ctx context.Context, client *Client) {
	screen, position := c.output.screen()
	client.serve(ctx, func() {},
		func(ctx context.Context) {
			if len(screen) == 0 || client.write(screen) {
				c.show(ctx, client, position)
			}
		},
		func(ctx context.Context) { c.listen(ctx, client) },
	)
}

// show sends the output from position on.
func (c *Console) show(ctx context.Context, client *Client, position int64) {
	buffer := make([]byte, chunk)
	for {
		n, skipped, changed := c.output.read(buffer, position)
		position += skipped + int64(n)
		if skipped > 0 && !client.write(missed(skipped)) {
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

func missed(skipped int64) []byte {
	return fmt.Appendf(nil, "\r\n[%d bytes of output skipped: the console was read too slowly]\r\n", skipped)
}

// listen passes the client's keystrokes on.
func (c *Console) listen(ctx context.Context, client *Client) {
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
}
