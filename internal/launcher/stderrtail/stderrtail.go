// Package stderrtail keeps the end of what QEMU writes to standard error, and makes
// one sentence of it for messages about QEMU's failure.
//
// It owns the choice of the lines, and decides nothing by them.
package stderrtail

import (
	"io"
	"strings"
	"sync"
)

const (
	// maxSentence is how much of QEMU's last words is told.
	maxSentence = 1024
	// maxKept is how much is kept to choose from: QEMU follows what it says of an
	// internal error with kilobytes of registers.
	maxKept = 8 * maxSentence
)

// Tail keeps the end of a stream and passes all of it on.
type Tail struct {
	// Also gets all that is written.
	Also io.Writer

	mu   sync.Mutex
	kept []byte
	// cut: what is kept begins in the middle of a line.
	cut bool
}

// Write implements io.Writer and does not fail.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxKept; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
		t.cut = true
	}
	t.mu.Unlock()
	// The log is a convenience; it must not hold QEMU up.
	_, _ = t.Also.Write(p)
	return len(p), nil
}

// Sentence is the end of what was kept as one line: registers, traces, and what
// QEMU warns of while it goes on, are left out if there is anything else.
func (t *Tail) Sentence() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.ToValidUTF8(string(t.kept), "")
	if _, whole, ok := strings.Cut(text, "\n"); t.cut && ok {
		text = whole
	}
	var all, grave []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		all = append(all, line)
		if !strings.Contains(line, "warning: ") && !isDump(line) && !isTrace(line) {
			grave = append(grave, line)
		}
	}
	if len(grave) > 0 {
		all = grave
	}
	sentence := strings.Join(all, "; ")
	return strings.ToValidUTF8(sentence[max(0, len(sentence)-maxSentence):], "")
}

// isTrace reports whether a line is one of those that QEMU was asked to write
// (the label debugLogs): a process, '@', a time, and the event.
func isTrace(line string) bool {
	pid, rest, ok := strings.Cut(line, "@")
	at, _, timed := strings.Cut(rest, ":")
	return ok && timed && pid != "" && strings.Trim(pid, "0123456789") == "" && at != "" && strings.Trim(at, ".0123456789") == ""
}

// isDump reports whether QEMU prints a CPU's registers in a line. (Package regexp
// would be a fifth of a megabyte for every VM.)
func isDump(line string) bool {
	if strings.HasPrefix(line, "extra data[") || strings.HasPrefix(line, "Code=") {
		return true
	}
	name, value, ok := strings.Cut(line, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	const digits = 4
	return ok && len(name) >= 2 && len(name) <= 4 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" &&
		len(value) >= digits && strings.Trim(value[:digits], "0123456789abcdef") == ""
}
