package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/agent"
)

// CVE-2026-13322: a reader of a guest's serial port reads as much as the guest writes. The agent's port is one; these
// agents are the guest's own.
func TestCVE202613322AHostileAgentFillsNoMemory(t *testing.T) {
	once := func(format string, args ...any) func(net.Conn) {
		answer := fmt.Appendf(nil, "{\"return\": "+format+"}\n", args...)
		return func(c net.Conn) { _, _ = c.Write(answer) }
	}
	forever := func(chunk string) func(net.Conn) {
		answer := []byte(strings.Repeat(chunk, 64<<10))
		return func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write(answer)
			}
		}
	}
	answers := map[string]func(net.Conn){
		"15 MiB of text":                           once(`[{"name": %q}]`, strings.Repeat("x", 15<<20)),
		"15 MiB of empty objects":                  once("[%s{}]", strings.Repeat("{},", 5<<20)),
		"as many empty objects as its bytes allow": once("[%s{}]", strings.Repeat("{},", 80<<10)),
		"nested 100,000 deep":                      once("%s%s", strings.Repeat("[", 100_000), strings.Repeat("]", 100_000)),
		"nested members":                           once("%s1%s", strings.Repeat(`{"a":`, 40_000), strings.Repeat("}", 40_000)),
		"an answer without end":                    forever("x"),
		"lines without a message":                  forever("\n"),
	}
	for what, hostile := range answers {
		t.Run(what, func(t *testing.T) {
			socket := listen(t, func(conn net.Conn) {
				requests(conn, func(request) string {
					hostile(conn)
					return ""
				})
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			client, err := agent.Dial(ctx, socket)
			if err != nil {
				t.Fatal(err)
			}
			used := allocated(func() { _, err = client.Filesystems(ctx) })
			_ = client.Close()
			if err == nil {
				t.Error("the answer was taken")
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it was read until the deadline: %v", err)
			}
			const enough = 4 << 20
			if used > enough {
				t.Errorf("the client made %d bytes of it, want at most %d", used, enough)
			}
		})
	}
}

// allocated returns the number of bytes allocated by do. The fake agents are not in it, because they prepare their
// output earlier.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// An agent that never finishes its answer may cost time, which ctx bounds, and no memory.
func TestCVE202613322AnAgentThatNeverAnswersCostsOnlyTime(t *testing.T) {
	noise := []byte(strings.Repeat("noise\n", 10<<10))
	socket := listen(t, func(conn net.Conn) {
		for err := error(nil); err == nil; {
			_, err = conn.Write(noise)
		}
	})
	client, err := agent.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	used := allocated(func() { err = client.Ping(ctx) })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	if used > 1<<20 {
		t.Errorf("it took %d bytes", used)
	}
}
