package nodeinit

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// All orphans become children of a node's init. Our own children need no status: proc watches them by pidfd.
func reap(ctx context.Context) {
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, unix.SIGCHLD)
	defer signal.Stop(dead)
	for {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break // no child is left, or none has exited
			}
			if status.Signaled() {
				fmt.Fprintf(os.Stderr, "process %d was ended by %s\n", pid, status.Signal())
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-dead:
		}
	}
}
