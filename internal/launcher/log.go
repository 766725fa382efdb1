package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"drydock.dev/drydock/internal/contracts/logline"
)

// lineLog writes the lines of virt-launcher and of its children in the form of package logline. Without a VMI, the lines
// are about none.
type lineLog struct {
	w      io.Writer
	format logline.Format
	vmi    logline.Object
}

func (c Config) log() lineLog { return lineLog{c.Log, c.LogFormat, c.VMI} }

type jsonLine struct {
	Time    string          `json:"time"`
	Level   string          `json:"level"`
	Message string          `json:"msg"`
	Logger  string          `json:"logger"`
	VMI     *logline.Object `json:"vmi,omitempty"`
}

const ownName = "virt-launcher"

func (l lineLog) printf(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if l.format == logline.JSON {
		l.writeJSON(ownName, message)
		return
	}
	of := ""
	if l.vmi != (logline.Object{}) {
		of = fmt.Sprintf(" %s=%q", logline.VMI, l.vmi)
	}
	fmt.Fprintf(l.w, "%s %s: %s%s\n", now(), ownName, message, of)
}

func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// A line is one write, so that the lines of several goroutines don't mix.
func (l lineLog) writeJSON(logger, message string) {
	line := jsonLine{Time: now(), Level: "INFO", Message: message, Logger: logger}
	if l.vmi != (logline.Object{}) {
		line.VMI = &l.vmi
	}
	if text, err := json.Marshal(line); err == nil {
		_, _ = l.w.Write(append(text, '\n'))
	}
}

// of returns the log of a child, which must be written by one goroutine. As text, the child's bytes pass unchanged.
func (l lineLog) of(child string) io.Writer {
	if l.format != logline.JSON {
		return l.w
	}
	return &childLines{log: l, child: child}
}

// maxChildLine bounds a line of a child, in bytes. The rest is another line.
const maxChildLine = 8 << 10

type childLines struct {
	log   lineLog
	child string
	part  []byte
}

// Write never fails. The end of a child's output without a line break is lost.
func (c *childLines) Write(p []byte) (int, error) {
	c.part = append(c.part, p...)
	rest := c.part
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole && len(rest) < maxChildLine {
			break
		}
		if len(line) > maxChildLine {
			line, after = rest[:maxChildLine], rest[maxChildLine:]
		}
		if len(line) > 0 {
			c.log.writeJSON(c.child, string(line))
		}
		rest = after
	}
	c.part = append(c.part[:0], rest...)
	return len(p), nil
}
