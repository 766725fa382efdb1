package podpath

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWhenAProcessWasStarted(t *testing.T) {
	before := time.Now()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{PID: cmd.Process.Pid, pidfd: pidfd}
	defer p.Close()
	const tick = time.Second / ticksPerSecond
	at, err := p.Started(time.Now())
	if err != nil || at.Before(before.Add(-2*tick)) || at.After(after.Add(2*tick)) {
		t.Errorf("it was started at %v, not between %v and %v: %v", at, before, after, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if at, err := p.Started(time.Now()); err == nil {
		t.Errorf("a process that has ended was started at %v", at)
	}
}

// A process chooses its name.
func TestTheStartIsReadBehindTheName(t *testing.T) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if ticks, err := startTicks(string(own)); err != nil || ticks <= 0 {
		t.Errorf("the test was started at %d: %v", ticks, err)
	}
	const rest = " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9"
	for stat, want := range map[string]int64{
		"7 (sleep)" + rest:              4711,
		"7 (a) S 1 1 (b) 1 2 3)" + rest: 4711,
		"7 ()" + rest:                   4711,
		"7 (x) S 1":                     0,
		"":                              0,
		"7 (x) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 many":                0,
		"7 (x) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 9223372036854775807": maxTicks,
	} {
		if got, err := startTicks(stat); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", stat, got, err)
		}
	}
}
