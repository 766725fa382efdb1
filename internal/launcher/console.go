package launcher

import (
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
	// written is closed when everything is written, or nobody reads.
	written chan struct{}
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
	// It may block until the launcher's end, if the other container never comes.
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

// writtenWithin is the time for the rest of the log at the end, and for the reader to come.
const writtenWithin = 5 * time.Second

// close waits until the log is written. The reader ends by the end of the FIFO: one that comes later would wait.
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

func (c *console) write() {
	defer close(c.written)
	out, err := openForWriting(c.pipe)
	if err != nil {
		c.logf("the serial console is not logged: %v", err)
		return
	}
	defer out.Close()
	for {
		chunk := c.next()
		if len(chunk) == 0 {
			select {
			case <-c.more:
			case <-c.ended:
				if chunk = c.next(); len(chunk) == 0 {
					return
				}
			}
		}
		if _, err := out.Write(chunk); err != nil {
			c.logf("the serial console is not logged any more: %v", err)
			return
		}
	}
}

// next takes the pending bytes.
func (c *console) next() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	chunk := append([]byte(nil), c.log.Pending()...)
	c.log.Written(len(chunk))
	return chunk
}

// openForWriting waits for the reader. Later writes then need no thread.
func openForWriting(pipe string) (*os.File, error) {
	fd, err := syscall.Open(pipe, syscall.O_WRONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("opening its pipe: %w", err)
	}
	return os.NewFile(uintptr(fd), pipe), nil
}
