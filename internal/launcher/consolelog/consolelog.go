// Package consolelog makes a log of a guest's serial console: bounded in size and rate, and harmless to a reader's
// terminal. It owns the choice of the output that is logged. It must not open a file or read a clock.
//
// States of the log, and who dies when:
//
//	guest ─ttyS0─> QEMU ─pipe─> virt-launcher (Log) ─FIFO─> cat, in the sidecar guest-console-log ─stdout─> kubelet's log
//
//	QEMU ends           the pipe ends: virt-launcher writes the rest, closes the FIFO, and cat exits with 0
//	virt-launcher dies  QEMU dies with it, the FIFO is closed, and cat exits with 0
//	cat dies            the kubelet starts the container again. virt-launcher keeps the FIFO, and in it the bytes that cat has
//	                    not read, goes on to empty the pipe, or the guest would stand still, and writes to the next cat
//	cat is slow         the Log keeps maxPending bytes, and counts the rest as lost
//	virt-handler dies   nothing: it has no part in it
//	a migration         each pod has a log of the time when the guest ran there
package consolelog

import (
	"bytes"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// Rate is how much a guest may log for long, in bytes per second.
	Rate = 32 << 10
	// Burst is how much it may log at once, in bytes: more than a boot.
	Burst = 256 << 10
	// lineCost is the kubelet's addition to each line.
	lineCost = 64
	// maxPending bounds the bytes that wait for their reader.
	maxPending = 64 << 10
	// resumeAt is the allowance at which a guest that has exceeded it is logged again, so that there are few notices.
	resumeAt = Rate
	// maxSequence bounds an escape sequence, which a guest need not end.
	maxSequence = 256
)

// Log is the log of one guest. The zero value is an empty one that has used its whole allowance.
type Log struct {
	pending []byte
	lost    int64
	// unended means that the last line that was logged has no end yet.
	unended bool
	// allowance is in bytes; it grows with the time since at.
	allowance float64
	at        time.Time
	text      text
}

// New returns a Log with a whole allowance.
func New(now time.Time) *Log { return &Log{allowance: Burst, at: now} }

// Write adds output of the guest.
func (l *Log) Write(p []byte, now time.Time) {
	if passed := now.Sub(l.at); passed > 0 {
		l.allowance = min(Burst, l.allowance+passed.Seconds()*Rate)
		l.at = now
	}
	for i, b := range p {
		if l.lost > 0 && !l.resumes() {
			l.lost += int64(len(p) - i)
			return
		}
		if l.lost > 0 {
			l.notice()
		}
		if len(l.pending) >= maxPending || l.allowance < 1 {
			l.lost++
			l.text = text{}
			continue
		}
		before := len(l.pending)
		l.pending = l.text.append(l.pending, b)
		for _, added := range l.pending[before:] {
			if l.allowance--; added == '\n' {
				l.allowance -= lineCost
			}
			l.unended = added != '\n'
		}
	}
}

func (l *Log) resumes() bool { return l.allowance >= resumeAt && len(l.pending) <= maxPending/2 }

// notice is a line of its own. A guest can write the same; nothing may depend on it.
func (l *Log) notice() {
	l.endLine()
	l.pending = fmt.Appendf(l.pending, "[virt-launcher: %d bytes of the console are missing here: a guest may log %d KiB a second]\n", l.lost, Rate>>10)
	l.lost = 0
}

// End adds the notice of bytes that were lost last, and ends the last line.
func (l *Log) End() {
	if l.lost > 0 {
		l.notice()
	}
	l.endLine()
}

func (l *Log) endLine() {
	if l.unended {
		l.pending, l.unended = append(l.pending, '\n'), false
	}
}

// Pending returns the bytes to be written next. They are valid until the next call of another method.
func (l *Log) Pending() []byte { return l.pending }

// Written removes the first n bytes of Pending.
func (l *Log) Written(n int) {
	l.pending = append(l.pending[:0], l.pending[n:]...)
	if len(l.pending) == 0 && cap(l.pending) > maxPending/4 {
		l.pending = nil // an idle guest keeps no buffer
	}
}

// text removes escape sequences, and control characters except line breaks and tabs: they act on a terminal. Bytes that
// are not UTF-8 become U+FFFD. The zero value is at the beginning of a line.
type text struct {
	sequence sequence
	length   int
	rune     []byte
	cr       bool
}

type sequence int

const (
	none     sequence = iota
	escaped           // after ESC
	control           // CSI, up to a letter
	verbatim          // OSC, DCS and the like, up to BEL or ESC \
)

func (t *text) append(to []byte, b byte) []byte {
	if t.sequence != none && !t.skip(b) {
		return to
	}
	if b < utf8.RuneSelf {
		return t.ascii(t.broken(to), b)
	}
	if t.rune = append(t.rune, b); !utf8.FullRune(t.rune) {
		return to
	}
	r, size := utf8.DecodeRune(t.rune)
	rest := bytes.Clone(t.rune[size:])
	t.rune = t.rune[:0]
	if !unicode.IsControl(r) {
		to = utf8.AppendRune(t.returned(to), r)
	}
	for _, again := range rest {
		to = t.append(to, again)
	}
	return to
}

// skip reports whether b is no part of the sequence, which a line break ends, too.
func (t *text) skip(b byte) bool {
	t.length++
	at := t.sequence
	switch {
	case b == '\n' || t.length > maxSequence:
		t.sequence = none
		return true
	case b == 0x1b:
		t.sequence = escaped
	case at == escaped && b == '[':
		t.sequence = control
	case at == escaped && bytes.IndexByte([]byte("]PX^_"), b) >= 0:
		t.sequence = verbatim
	case at == escaped && b >= 0x20 && b < 0x30: // one more byte follows
	case at == escaped, at == control && b >= 0x40 && b < 0x7f, at == verbatim && b == 0x07:
		t.sequence = none
	}
	return false
}

// broken ends a rune whose bytes do not come any more.
func (t *text) broken(to []byte) []byte {
	if len(t.rune) == 0 {
		return to
	}
	t.rune = t.rune[:0]
	return utf8.AppendRune(t.returned(to), utf8.RuneError)
}

// returned makes a carriage return before other text a line break: an earlier line must not be hidden by it.
func (t *text) returned(to []byte) []byte {
	if t.cr {
		t.cr = false
		return append(to, '\n')
	}
	return to
}

func (t *text) ascii(to []byte, b byte) []byte {
	switch {
	case b == 0x1b:
		t.sequence, t.length = escaped, 0
	case b == '\r':
		t.cr = true
	case b == '\n':
		t.cr = false
		return append(to, b)
	case b == '\t' || b >= 0x20 && b != 0x7f:
		return append(t.returned(to), b)
	}
	return to
}
