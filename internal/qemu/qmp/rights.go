package qmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

type rightsWriter interface {
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
}

// ExecuteWithFile is Execute for a command that takes a file (add-fd, getfd), of which QEMU gets a duplicate. Only one such
// command may be in progress: QEMU holds one file at a time.
func (c *Client) ExecuteWithFile(ctx context.Context, name string, args any, file *os.File, result any) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("QMP %s: passing %s: %w", name, file.Name(), err)
	}
	var executed error
	if err := raw.Control(func(fd uintptr) {
		executed = c.execute(ctx, syscall.UnixRights(int(fd)), Command{name, args, result})
	}); err != nil {
		return fmt.Errorf("QMP %s: passing %s: %w", name, file.Name(), err)
	}
	return executed
}

func (c *Client) sendRights(line, rights []byte) error {
	socket, ok := c.conn.(rightsWriter)
	if !ok {
		return errors.New("sending the command: the connection to the monitor carries no files")
	}
	sent, _, err := socket.WriteMsgUnix(line, rights, nil)
	if err == nil && sent < len(line) {
		_, err = c.conn.Write(line[sent:])
	}
	if err != nil {
		return fmt.Errorf("sending the command: %w", err)
	}
	return nil
}
