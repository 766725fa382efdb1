package nodeinit

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// reap waits for every process whose parent has gone; all orphans of a node are
// its init's. Our own children are among them: proc watches those by pidfd and
// does not need their status.
func reap(ctx context.Context) {
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, unix.SIGCHLD)
	defer signal.Stop(dead)
	for {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break // none left, or none dead
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
