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
	"drydock.dev/drydock/internal/contracts/logline"
)

// Main is virt-launcher: the launcher without a verb, a small program with one, and virt-freezer by its name.
func Main(ctx context.Context, name string, args []string) (int, error) {
	// Every VM has a launcher, with little to do: memory matters more than time.
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
		return holdMain(ctx, args[1:])
	case "console-log":
		return consoleReaderMain(ctx, args[1:])
	case layout.ArgumentsVerb:
		return argumentsMain(os.Stdout, "/proc")
	case layout.StateVerb:
		return reporter{out: os.Stdout, proc: "/proc", cgroup: "/sys/fs/cgroup", dir: layout.PrivateDir}.run(ctx)
	}
	return exitFailed, fmt.Errorf("%q is none of probe, probe-node, hold, console-log, %s, %s", args[0], layout.ArgumentsVerb, layout.StateVerb)
}

func serveMain(ctx context.Context, args []string) (int, error) {
	config := DefaultConfig()
	flags := flag.NewFlagSet("virt-launcher", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.StringVar(&config.Dir, "dir", config.Dir, "folder of the launcher's socket")
	flags.StringVar(&config.QEMU, "qemu", config.QEMU, "QEMU's program")
	flags.StringVar(&config.TPM, "tpm", config.TPM, "the program that emulates a TPM")
	flags.StringVar(&config.Share, "share", config.Share, "the program that shares a folder with the guest")
	flags.StringVar(&config.ConsoleLog, "console-log", "", "folder of the FIFO for the guest's serial console; empty if it is not logged")
	flags.Var(&config.LogFormat, logline.Flag, logline.Usage)
	flags.Var(&config.VMI, logline.VMI, "the guest's VMI, for the log: NAMESPACE/NAME/UID")
	flags.StringVar(&config.TerminationLog, "termination-log", config.TerminationLog, "where to leave the last word")
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	return Run(ctx, config)
}
