package launcher

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"drydock.dev/drydock/internal/contracts/layout"
)

// Main is virt-launcher: without a verb the launcher, with one a small program of the image, and virt-freezer by that
// name.
func Main(ctx context.Context, name string, args []string) (int, error) {
	// Every VM has a launcher, which handles few messages: it trades time for memory.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	if name == filepath.Base(layout.FreezerBinary) {
		return freezerMain(args)
	}
	if len(args) == 0 || args[0][0] == '-' {
		return serveMain(ctx, args)
	}
	switch args[0] {
	case "probe":
		return probeMain(ctx, args[1:])
	case "probe-node":
		return probeNodeMain(ctx, args[1:])
	case "hold":
		return holdMain(ctx)
	}
	return exitFailed, fmt.Errorf("%q is none of probe, probe-node, hold", args[0])
}

func serveMain(ctx context.Context, args []string) (int, error) {
	config := DefaultConfig()
	flags := flag.NewFlagSet("virt-launcher", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.StringVar(&config.Dir, "dir", config.Dir, "folder of the launcher's socket")
	flags.StringVar(&config.QEMU, "qemu", config.QEMU, "QEMU's program")
	flags.StringVar(&config.TPM, "tpm", config.TPM, "the program that emulates a TPM")
	flags.StringVar(&config.TerminationLog, "termination-log", config.TerminationLog, "where to leave the last word")
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	return Run(ctx, config)
}
