package launcher

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOrphansAreReaped(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asReaper+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the process that inherits orphans: %v\n%s", err, out)
	}
}

// reapOrphans runs in a process of its own. A shell leaves a child behind; both must disappear from the process table.
func reapOrphans() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println("becoming a reaper of orphans:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := newReaper()
	go r.run(ctx)
	read, write, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, ended, err := r.start(func() (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sleep 0.2 >&- & echo $!; exit 3"},
			&syscall.ProcAttr{Files: []uintptr{0, write.Fd(), 2}})
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = write.Close()
	if status := <-ended; status.ExitStatus() != 3 {
		fmt.Println("the shell ended with", status.ExitStatus())
		return 1
	}
	text := make([]byte, 64)
	n, _ := read.Read(text)
	orphan, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); syscall.Kill(orphan, 0) == nil; <-tick {
		if time.Now().After(deadline) {
			fmt.Println("the orphan is still there")
			return 1
		}
	}
	return 0
}
