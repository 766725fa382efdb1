package launcher

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"drydock.dev/drydock/internal/contracts/logline"
)

// holdMain is `virt-launcher hold`, for pods that only hold a resource (claims while they are bound, a volume for a
// guest). A VM may have several, so it has no goroutine and no timer, and the kernel reaps the processes of an exec.
func holdMain(ctx context.Context, args []string) (int, error) {
	log := lineLog{w: os.Stderr}
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.Var(&log.format, logline.Flag, logline.Usage)
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	return hold(ctx, log)
}

func hold(ctx context.Context, log lineLog) (int, error) {
	signal.Ignore(syscall.SIGCHLD)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	log.printf("holding until told to end")
	select {
	case <-signals:
	case <-ctx.Done():
	}
	return exitOK, nil
}
