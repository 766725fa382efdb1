package driver

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

type reading struct {
	io.Reader
	io.WriteCloser
}

func (reading) WriteMsgUnix([]byte, []byte, *net.UnixAddr) (int, int, error) {
	return 0, 0, net.ErrClosed
}

func (reading) SetWriteDeadline(time.Time) error { return nil }

func TestLinesMustEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"many lines":         {text: strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 20)},
		"the longest line":   {text: strings.Repeat("x", maxLine) + "\n"},
		"a line too long":    {text: strings.Repeat("x", maxLine+1), want: errEndlessLine},
		"it ends too late":   {text: "\n" + strings.Repeat("x", 2*maxLine) + "\n", want: errEndlessLine},
		"no line in the end": {text: "a\nb"},
	} {
		n, err := io.Copy(io.Discard, &bounded{monitorConn: reading{Reader: strings.NewReader(tc.text)}})
		if !errors.Is(err, tc.want) || tc.want == nil && n != int64(len(tc.text)) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}
