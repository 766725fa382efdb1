// Command mutation reports whether the unit tests of the rule packages detect changed rules.
// gremlins changes one operator at a time, and the package's tests must fail. A survivor needs a
// test, or an entry in its package's testdata/mutants.yaml with the reason why no test can detect
// it.
//
//	go run ./test/mutation [-workers n] [package ...]
//
// A package is named by the end of its path (hotplug, rules/hotplug); the default is all. The
// command owns the list of packages (packages.go), the run of a mutant (gocommand.go)
// and the verdict (judge.go). gremlins decides the changes. The command must not change its source:
// it works with a copy below build/mutation.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

func main() {
	if file := os.Getenv(runVariable); file != "" {
		os.Exit(goCommand(file, os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := mutate(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func mutate(ctx context.Context) error {
	workers := flag.Int("workers", runtime.NumCPU(), "how many mutants are tested at a time")
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	folder, err := newWorkingFolder(*root)
	if err != nil {
		return err
	}
	defer folder.lock.Close()
	if err := folder.copySource(ctx); err != nil {
		return err
	}
	packages, err := rulePackages(ctx, folder.source(), flag.Args())
	if err != nil {
		return err
	}
	gremlins, err := filepath.Abs(filepath.Join(*root, "bin", "gremlins"))
	if err != nil {
		return fmt.Errorf("finding gremlins: %w", err)
	}
	var results []result
	for _, pkg := range packages {
		begin := time.Now()
		r, err := folder.test(ctx, gremlins, pkg, *workers)
		if err != nil {
			return fmt.Errorf("testing the mutants of %s: %w", pkg, err)
		}
		r.took = time.Since(begin)
		fmt.Print(r.details())
		results = append(results, r)
	}
	fmt.Print("\n", table(results))
	return judge(results)
}
