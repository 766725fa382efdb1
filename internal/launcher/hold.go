package launcher

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// holdMain is `virt-launcher hold`, for pods that only hold a resource (claims while they are bound, a volume for a
// guest). A VM may have several, so it has no goroutine and no timer, and the kernel reaps the processes of an exec.
func holdMain(ctx context.Context) (int, error) {
	signal.Ignore(syscall.SIGCHLD)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	fmt.Fprintln(os.Stderr, "virt-launcher: holding until told to end")
	select {
	case <-signals:
	case <-ctx.Done():
	}
	return exitOK, nil
}
