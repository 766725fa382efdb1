package launcher

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"drydock.dev/drydock/internal/contracts/layout"
)

// consoleReaderMain is `virt-launcher console-log`, the sidecar of the guest's serial console. When virt-launcher has
// opened the FIFO, cat replaces this program: it needs a tenth of the memory for the guest's whole life. cat ends with
// virt-launcher, since nobody else writes; as the first process of its container it ignores SIGTERM until then. If it dies,
// the kubelet starts this program again, and virt-launcher goes on.
func consoleReaderMain(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("console-log", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	dir := flags.String("dir", layout.ConsoleLogDir, "folder of the FIFO")
	cat := flags.String("cat", layout.CatBinary, "the program that copies its standard input to its standard output")
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	pipe, err := makePipe(*dir)
	if err != nil {
		return exitFailed, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	type opened struct {
		fd  int
		err error
	}
	came := make(chan opened, 1)
	go func() {
		fd, err := syscall.Open(pipe, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
		came <- opened{fd, err}
	}()
	select {
	case <-ctx.Done():
		return exitOK, nil // the kubelet ends a sidecar after virt-launcher's container, which may never have run
	case o := <-came:
		if o.err != nil {
			return exitFailed, fmt.Errorf("opening the pipe of the console's log: %w", o.err)
		}
		if err := syscall.Dup2(o.fd, syscall.Stdin); err != nil {
			return exitFailed, fmt.Errorf("reading the console's log: %w", err)
		}
	}
	if err := syscall.Exec(*cat, []string{*cat}, nil); err != nil {
		return exitFailed, fmt.Errorf("running %s: %w", *cat, err)
	}
	return exitOK, nil
}
