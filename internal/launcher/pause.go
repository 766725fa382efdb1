package launcher

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// pauseMain is `virt-launcher pause`: it does nothing until it is told to end.
// Pods that only hold something (a claim on a node, a volume for a guest) run it.
func pauseMain(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		newReaper().run(ctx)
	}()
	fmt.Fprintln(os.Stderr, "virt-launcher: waiting to be told to end")
	select {
	case <-signals:
	case <-ctx.Done():
	}
	cancel()
	<-reaped
	return exitOK, nil
}
