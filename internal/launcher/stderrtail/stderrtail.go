// Package stderrtail keeps the end of QEMU's standard error, and formats it as one sentence for messages. It must not
// decide anything by it.
package stderrtail

import (
	"io"
	"strings"
	"sync"
)

const (
	maxSentence = 1024
	// maxKept is in bytes: QEMU prints kilobytes of registers after the message of an internal error.
	maxKept = 8 * maxSentence
)

// Tail keeps the end of a stream and passes all of it on.
type Tail struct {
	Also io.Writer

	mu   sync.Mutex
	kept []byte
	cut  bool // kept starts within a line
}

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxKept; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
		t.cut = true
	}
	t.mu.Unlock()
	// A failing log must not block QEMU.
	_, _ = t.Also.Write(p)
	return len(p), nil
}

// Sentence returns the end of the kept text as one line, without registers, traces and warnings unless there is
// nothing else.
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

// isTrace recognizes QEMU's traces, which the label debugLogs requests: a process, '@', a time, and the event.
func isTrace(line string) bool {
	pid, rest, ok := strings.Cut(line, "@")
	at, _, timed := strings.Cut(rest, ":")
	return ok && timed && pid != "" && strings.Trim(pid, "0123456789") == "" && at != "" && strings.Trim(at, ".0123456789") == ""
}

// isDump recognizes dumps of a CPU's registers. (Package regexp would cost every VM a fifth of a megabyte.)
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
