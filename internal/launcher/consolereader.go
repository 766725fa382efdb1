package launcher

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/logline"
)

// launcherWithin is how long the console's container waits for virt-launcher, which may still be created.
const launcherWithin = 10 * time.Minute

// consoleReaderMain is `virt-launcher console-log`, the container of the guest's serial console. When virt-launcher has
// opened the FIFO, cat replaces this program: it needs a tenth of the memory for the guest's whole life. cat ends with
// virt-launcher, since nobody else writes; as the first process of its container it ignores SIGTERM until then.
func consoleReaderMain(ctx context.Context, args []string) (int, error) {
	log := lineLog{w: os.Stderr}
	flags := flag.NewFlagSet("console-log", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	dir := flags.String("dir", layout.ConsoleLogDir, "folder of the FIFO")
	cat := flags.String("cat", layout.CatBinary, "the program that copies its standard input to its standard output")
	flags.Var(&log.format, logline.Flag, logline.Usage)
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	pipe, err := makePipe(*dir)
	if err != nil {
		return exitFailed, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, launcherWithin)
	defer cancel()
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
		log.printf("virt-launcher has not come: the serial console is not logged")
		return exitOK, nil
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
