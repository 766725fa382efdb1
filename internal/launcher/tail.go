package launcher

import (
	"io"
	"strings"
	"sync"
)

const (
	// maxTail is how much of QEMU's last words is told.
	maxTail = 1024
	// maxKept is how much is kept to choose from: QEMU follows what it says of an
	// internal error with more than a KiB of registers.
	maxKept = 8 * maxTail
)

// tail keeps the end of a stream and passes all of it on.
type tail struct {
	also io.Writer

	mu   sync.Mutex
	kept []byte
	// cut: what is kept begins in the middle of a line.
	cut bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxKept; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
		t.cut = true
	}
	t.mu.Unlock()
	// The log is a convenience; it must not hold QEMU up.
	_, _ = t.also.Write(p)
	return len(p), nil
}

// sentence is the end of what was kept as one line: registers, and what QEMU
// warns of while it goes on, are left out if there is anything else.
func (t *tail) sentence() string {
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
		if !strings.Contains(line, "warning: ") && !registers(line) {
			grave = append(grave, line)
		}
	}
	if len(grave) > 0 {
		all = grave
	}
	sentence := strings.Join(all, "; ")
	return strings.ToValidUTF8(sentence[max(0, len(sentence)-maxTail):], "")
}

// registers reports whether a line is one of a dump of the CPU's registers, such
// as "EAX=00000000 EBX=…", "ES =0000 …" or "Code=…".
func registers(line string) bool {
	name, _, found := strings.Cut(line, "=")
	name = strings.TrimRight(name, " ")
	const longest = 4 // EFER
	if !found || len(name) < 2 || len(name) > longest {
		return false
	}
	return name == "Code" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}
