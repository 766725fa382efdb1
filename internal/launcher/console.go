package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/consolelog"
)

// console logs the guest's serial console (package consolelog) to the FIFO of the container beside. A nil console logs
// nothing.
type console struct {
	pipe string
	logf func(format string, args ...any)

	mu   sync.Mutex
	log  *consolelog.Log
	more chan struct{} // has an element if the log may have changed
	// reading is set once QEMU may write. ended is closed at QEMU's end, or the launcher's without one.
	reading bool
	ended   chan struct{}
	// written is closed when everything is written, or the FIFO is of no use.
	written chan struct{}
	// out is closed by this process's end: a reader that ended earlier would be restarted.
	out *os.File
}

// makePipe makes the FIFO. Both containers do, since either may be first.
func makePipe(dir string) (string, error) {
	pipe := filepath.Join(dir, layout.ConsoleLogPipe)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making the pipe of the console's log: %w", err)
	}
	return pipe, nil
}

func newConsole(dir string, logf func(string, ...any)) (*console, error) {
	if dir == "" {
		return nil, nil
	}
	pipe, err := makePipe(dir)
	if err != nil {
		return nil, err
	}
	c := &console{
		pipe: pipe, logf: logf, log: consolelog.New(time.Now()), more: make(chan struct{}, 1),
		ended: make(chan struct{}), written: make(chan struct{}),
	}
	go c.write()
	return c, nil
}

// input returns QEMU's end of the pipe, and starts to read the other.
func (c *console) input(spawn func(func())) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making the pipe of the serial console: %w", err)
	}
	c.reading = true
	spawn(func() {
		defer c.finish()
		defer read.Close()
		buffer := make([]byte, 4<<10)
		for {
			n, err := read.Read(buffer)
			c.add(buffer[:n])
			if err != nil {
				return
			}
		}
	})
	return write, nil
}

func (c *console) add(p []byte) {
	c.mu.Lock()
	c.log.Write(p, time.Now())
	c.mu.Unlock()
	c.wake()
}

func (c *console) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// finish ends the log.
func (c *console) finish() {
	c.mu.Lock()
	c.log.End()
	c.mu.Unlock()
	close(c.ended)
}

// writtenWithin is the time for the rest of the log at the end, and for the reader to come back.
const writtenWithin = 5 * time.Second

// close waits until the log is written.
func (c *console) close() {
	if c == nil {
		return
	}
	if !c.reading {
		c.finish()
	}
	timer := time.NewTimer(writtenWithin)
	defer timer.Stop()
	select {
	case <-c.written:
	case <-timer.C:
	}
}

// write delivers the log to one reader after the other. The last one's end of the FIFO stays open until the next one is
// there: as long as one end is open, the FIFO keeps the bytes that nobody has read.
func (c *console) write() {
	defer close(c.written)
	for {
		next := c.awaitReader()
		if next == nil {
			return
		}
		if c.out != nil {
			c.out.Close()
		}
		c.out = next
		switch err := c.writeTo(next); {
		case err == nil:
			return
		case !errors.Is(err, syscall.EPIPE):
			c.logf("the serial console is not logged any more: %v", err)
			return
		}
		c.logf("the container %s has ended: the log of the serial console waits for the next one", layout.ConsoleLogContainer)
	}
}

// awaitReader returns the FIFO when it has a reader, nil if it can't be opened, or if the log has ended and nothing is
// left of it. The call that waits costs a thread and no time; without a reader it lasts until this process's end.
func (c *console) awaitReader() *os.File {
	came, ended := make(chan *os.File, 1), c.ended
	go func() {
		out, err := os.OpenFile(c.pipe, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
		if err != nil {
			c.logf("the serial console is not logged: %v", err)
		}
		came <- out
	}()
	for {
		select {
		case out := <-came:
			return out
		case <-ended:
			if len(c.next()) == 0 {
				return nil
			}
			ended = nil
		}
	}
}

// writeTo returns nil at the log's end.
func (c *console) writeTo(out *os.File) error {
	for {
		chunk := c.next()
		if len(chunk) == 0 {
			select {
			case <-c.more:
				continue
			case <-c.ended:
				if chunk = c.next(); len(chunk) == 0 {
					return nil
				}
			}
		}
		n, err := out.Write(chunk)
		c.mu.Lock()
		c.log.Written(n)
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// atOnce is how much a FIFO takes whole or not at all.
const atOnce = 4 << 10

// next copies pending bytes, which stay pending until they are written.
func (c *console) next() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := c.log.Pending()
	return bytes.Clone(pending[:min(len(pending), atOnce)])
}
