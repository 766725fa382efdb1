package driver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// maxLine bounds one message of QEMU's; its longest answers are some hundred
// KiB. Without it a QEMU in a guest's hands could fill virt-handler's memory with
// one message that never ends.
const maxLine = 8 << 20

var errEndlessLine = errors.New("QEMU's message is longer than any of QEMU's can be")

// monitorConn is a unix socket, which can carry files to QEMU.
type monitorConn interface {
	io.ReadWriteCloser
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
	SetWriteDeadline(t time.Time) error
}

// bounded is a connection on which the peer must end its lines.
type bounded struct {
	monitorConn
	line int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.monitorConn.Read(p)
	if at := bytes.LastIndexByte(p[:n], '\n'); at >= 0 {
		b.line = n - at - 1
	} else {
		b.line += n
	}
	if b.line > maxLine {
		return 0, errEndlessLine
	}
	return n, err
}
