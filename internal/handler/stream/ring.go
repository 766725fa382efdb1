package stream

import (
	"bytes"
	"sync"
)

const (
	// ringSize is how far, in bytes, a viewer may lag behind: about a minute of a 9600 baud line, or a whole boot.
	ringSize = 64 << 10
	// They limit the past output for a new viewer to one screen: scripts that wait for a prompt would take more of it
	// for new output.
	screenLines = 24
	screenBytes = 8 << 10
)

// The zero value needs changed.
type ring struct {
	mu sync.Mutex
	// Byte i of the output is at i modulo ringSize. data grows to ringSize with the output.
	data  []byte
	total int64
	// changed is closed, and replaced, with every write. It is nil after end.
	changed chan struct{}
}

func (r *ring) write(p []byte) {
	if len(p) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += int64(len(p))
	if missing := ringSize - len(r.data); missing > 0 {
		n := min(missing, len(p))
		r.data = append(r.data, p[:n]...)
		p = p[n:]
	}
	if len(p) > ringSize {
		p = p[len(p)-ringSize:]
	}
	at := int((r.total - int64(len(p))) % ringSize)
	n := copy(r.data[at:], p)
	copy(r.data, p[n:])
	if r.changed != nil {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

func (r *ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// read copies the output from position on. skipped is the number of bytes at position that are no longer held. changed
// is closed after the next write, and nil after end.
func (r *ring) read(buffer []byte, position int64) (n int, skipped int64, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	skipped = max(0, r.total-int64(len(r.data))-position)
	n = r.copy(buffer, position+skipped)
	return n, skipped, r.changed
}

// The ring must hold position.
func (r *ring) copy(buffer []byte, position int64) int {
	n := int(min(r.total-position, int64(len(buffer))))
	if n == 0 {
		return 0
	}
	at := int(position % ringSize)
	first := copy(buffer[:n], r.data[at:])
	copy(buffer[first:n], r.data)
	return n
}

// screen returns the past output for a new viewer, and the position from which it reads on.
func (r *ring) screen() ([]byte, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	history := make([]byte, min(int64(len(r.data)), screenBytes))
	r.copy(history, r.total-int64(len(history)))
	if r.total > int64(len(history)) {
		// It starts within a line, perhaps within an escape sequence.
		_, history, _ = bytes.Cut(history, []byte("\n"))
	}
	return lastLines(withoutEscapes(history), screenLines), r.total
}

func lastLines(text []byte, lines int) []byte {
	for at := len(text) - 1; at >= 0; at-- {
		if text[at] != '\n' {
			continue
		}
		if lines--; lines == 0 {
			return text[at+1:]
		}
	}
	return text
}

// withoutEscapes removes terminal escape sequences from text, except those for colors. The viewer's terminal would
// answer a repeated query, such as for the cursor's position, and the answer would be typed into the guest; a cursor
// movement would overwrite the viewer's screen.
func withoutEscapes(text []byte) []byte {
	const escape = 0x1b
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if text[0] != escape {
			out = append(out, text[0])
			text = text[1:]
			continue
		}
		n := sequenceLength(text)
		if text[n-1] == 'm' && n > 2 && text[1] == '[' {
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// sequenceLength returns the length of the escape sequence at the start of text, finished or not.
func sequenceLength(text []byte) int {
	if len(text) < 2 {
		return len(text)
	}
	switch text[1] {
	case '[': // CSI: parameters, then one byte from @ to ~
		for i := 2; i < len(text); i++ {
			if text[i] >= '@' && text[i] <= '~' {
				return i + 1
			}
		}
		return len(text)
	case ']', 'P', 'X', '^', '_': // strings, ended by BEL or ESC \
		for i := 2; i < len(text); i++ {
			if text[i] == 0x07 {
				return i + 1
			}
			if text[i] == '\\' && text[i-1] == 0x1b {
				return i + 1
			}
		}
		return len(text)
	}
	if text[1] >= ' ' && text[1] <= '/' { // ESC, an intermediate, a final byte
		return min(3, len(text))
	}
	return 2
}
