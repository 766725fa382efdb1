// Command build makes everything that `make run` and the tests start, from sources and Debian
// packages: Drydock's programs, the embedded Kubernetes with its container runtime, and the
// container images.
//
//	go run ./build [-version v] programs|all|linter      (in the module local)
//
// It owns the order of the steps. Downloads run beside compilation. Only one step compiles at a
// time, because the Go tool uses all cores and two steps would compile shared packages twice. The
// contents of programs and images are decided elsewhere.
//
// There are four Go modules: Drydock, the embedded Kubernetes (local), the container runtime
// (local/runtime, decision 010) and Multus (local/multus, decision 410). They require the same
// versions of shared dependencies and are built with the same flags and without cgo, so that a
// package is compiled once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	// root is the folder of the module drydock.
	root string
	// version overrides that of hack/version. stamp and localStamp are the linker flags that put it into the
	// programs of the modules drydock and local.
	version, stamp, localStamp string
	// kubernetes is the Kubernetes version that the module local requires.
	kubernetes string
	goal       goal
}

// goal is the target of one build.
type goal string

const (
	programs goal = "programs" // into bin/
	all      goal = "all"      // and the container images, into build/images/
	linter   goal = "linter"   // golangci-lint, into bin/
)

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if o.goal != linter {
		if o.stamp, err = o.versionFlags(ctx, "drydock.dev/drydock/internal/contracts/version"); err != nil {
			return err
		}
		if o.localStamp, err = o.versionFlags(ctx, "drydock.dev/local/internal/version"); err != nil {
			return err
		}
		if o.kubernetes, err = moduleField(ctx, "k8s.io/kubernetes", "{{.Version}}"); err != nil {
			return err
		}
	}
	return runAll(ctx, steps(o), newProgress(os.Stdout))
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.StringVar(&o.version, "version", "", "version that Drydock's programs report, in place of what hack/version says")
	root := flags.String("root", "..", "folder of the module drydock")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.goal = goal(strings.Join(flags.Args(), " "))
	if !slices.Contains([]goal{programs, all, linter}, o.goal) {
		return o, fmt.Errorf("say what to make: programs, all or linter, not %q", o.goal)
	}
	var err error
	if o.root, err = filepath.Abs(*root); err != nil {
		return o, fmt.Errorf("finding the folder of the module drydock: %w", err)
	}
	return o, nil
}

// moduleField runs `go list -m` for a module that the module local requires.
func moduleField(ctx context.Context, module, format string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", format, module)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking for the module %s: %w\n%s", module, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}
