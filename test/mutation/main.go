// Command mutation reports whether the unit tests of the rule packages notice changed
// rules: gremlins changes one operator after the other, and the tests of the package must
// fail. What survives needs a test, or an entry in testdata/mutants.yaml of its package
// that says why no test can see it (decision 266).
//
//	go run ./test/mutation [-workers n] [package ...]
//
// A package is named by the end of its path (hotplug, rules/hotplug); without names all of them
// are tested. It owns which packages these are (packages.go), how a mutant is run
// (gocommand.go, decision 265) and what is good enough (judge.go). Which changes are made
// is decided by gremlins. It must not change the source that it is started in: it works
// with a copy below build/mutation.
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
	defer folder.close()
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
