package qmp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A guest that has broken out controls QEMU.
func TestAMessageThatIsNoneOfQEMUsEndsTheConnection(t *testing.T) {
	for what, message := range map[string]string{
		"64 MiB of text":             `{"return": "` + strings.Repeat("x", 64<<20) + `", "id": 2}`,
		"64 MiB on many lines":       `{"return": {` + strings.Repeat("\n", 64<<20) + `}, "id": 2}`,
		"a million empty objects":    `{"return": [` + strings.Repeat("{},", 1_000_000) + `{}], "id": 2}`,
		"an event nested very deep":  `{"event": "STOP", "data": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
		"a message that never stops": "",
	} {
		t.Run(what, func(t *testing.T) {
			ours, theirs := net.Pipe()
			connected := make(chan struct{})
			text, once := []byte(message+"\n"), message != ""
			if !once {
				text = []byte(strings.Repeat("x", 1<<20))
			}
			go func() {
				defer theirs.Close()
				if _, err := fmt.Fprintln(theirs, `{"QMP": {"version": {}, "capabilities": []}}`); err != nil {
					return
				}
				commands := bufio.NewReader(theirs)
				if _, err := commands.ReadString('\n'); err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, commands) }()
				_, err := fmt.Fprintln(theirs, `{"return": {}, "id": 1}`)
				<-connected
				for err == nil {
					if _, err = theirs.Write(text); once {
						return
					}
				}
			}()
			c, err := New(t.Context(), ours, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := c.Err(); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			close(connected)
			select {
			case <-c.Done():
			case <-time.After(2 * time.Minute):
				t.Fatal("the message was taken")
			}
			runtime.ReadMemStats(&after)
			// The last growth of the line's buffer, and those before it.
			if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
				t.Errorf("%d bytes were made of it", used)
			}
		})
	}
}
