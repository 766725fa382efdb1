// Command virt-importer is the worker that fills a claim with a disk.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"drydock.dev/drydock/internal/importer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := importer.Main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
