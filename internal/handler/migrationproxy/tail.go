package migrationproxy

import (
	"encoding/binary"
	"sync"
)

// The bytes of QEMU's migration stream that virt-handler knows (QEMU's migration/savevm.c, migration/migration.c).
const (
	sectionFooter = 0x7e // before the section's number
	endOfStream   = 0x00 // in place of the next section
	// The messages of the return path have a type, a length, and data, big-endian.
	shutMessage = 1
	shutFailed  = 1
	// longestMessage is more than the data of any message, in bytes.
	longestMessage = 1 << 10
)

const tailSize = 1 + 4 + 1 // bytes: a footer, its section's number, and the end of the stream

// tail has the last bytes of a stream.
type tail struct {
	mu    sync.Mutex
	last  [tailSize]byte
	count int64 // of all bytes
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count += int64(len(p))
	if len(p) >= tailSize {
		copy(t.last[:], p[len(p)-tailSize:])
		return len(p), nil
	}
	copy(t.last[:], t.last[len(p):])
	copy(t.last[tailSize-len(p):], p)
	return len(p), nil
}

// isEnd reports whether the stream looks ended, and how many bytes it had. Memory may look like the end
// while some of it is still to be sent.
func (t *tail) isEnd() (end bool, count int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[0] == sectionFooter && t.last[tailSize-1] == endOfStream, t.count
}

// rejection returns a target's message that it could not load the guest. The target may have sent a part of another
// message, which swallows the beginning of this one: the zeros that follow complete it, and are no message after it. A
// target's acceptance that lacks only its last byte is thereby completed: a target may accept at any time.
func rejection() []byte {
	message := binary.BigEndian.AppendUint16(nil, shutMessage)
	message = binary.BigEndian.AppendUint16(message, 4)
	message = binary.BigEndian.AppendUint32(message, shutFailed)
	return append(message, make([]byte, longestMessage)...)
}
