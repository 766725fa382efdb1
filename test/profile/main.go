package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: profile watch|report FOLDER")
	}
	switch args[0] {
	case "watch":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return watch(ctx, args[1])
	case "report":
		return report(args[1], os.Stdout)
	}
	return fmt.Errorf("usage: profile watch|report FOLDER; there is no %q", args[0])
}
