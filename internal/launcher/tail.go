package launcher

import (
	"io"
	"strings"
	"sync"
)

// maxTail is how much of QEMU's last words is kept.
const maxTail = 1024

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
	if extra := len(t.kept) - maxTail; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
		t.cut = true
	}
	t.mu.Unlock()
	// The log is a convenience; it must not hold QEMU up.
	_, _ = t.also.Write(p)
	return len(p), nil
}

// sentence is what was kept as one line: what QEMU warns of while it goes on
// is left out if there is anything else.
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
		if !strings.Contains(line, "warning: ") {
			grave = append(grave, line)
		}
	}
	if len(grave) > 0 {
		all = grave
	}
	sentence := strings.Join(all, "; ")
	return strings.ToValidUTF8(sentence[max(0, len(sentence)-maxTail):], "")
}
