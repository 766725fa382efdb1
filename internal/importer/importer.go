// Package importer is the worker that fills a claim: it runs the task's package, serves the progress and reports the
// result.
//
// It must not know sources and formats. Of the packages below it, web, registry, upload and clone transfer content, and
// fill makes disks from it.
package importer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/startup"
)

// memory is the garbage collector's target. With a window and the buffers of the largest clusters the worker stays
// below 128 MiB.
const memory = 72 << 20

type options struct {
	root, progress, termination string
	// awaitPort is not 0 in a worker's startup probe, which only waits.
	awaitPort int
	logFormat logline.Format
}

func parse(args []string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("virt-importer", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.root, "root", "/", "folder that the places of a worker's pod are in")
	flags.StringVar(&o.progress, "progress", ":"+strconv.Itoa(transfer.ProgressPort), "address to serve progress at")
	flags.StringVar(&o.termination, "termination", layout.TerminationLog, "file for the result")
	flags.IntVar(&o.awaitPort, "await-port", 0, "do nothing but wait until a worker in the same pod listens at this port")
	flags.Var(&o.logFormat, logline.Flag, logline.Usage)
	return o, flags.Parse(args)
}

// Main runs a worker and returns its exit code.
func Main(ctx context.Context, args []string) int {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return 2
	}
	if o.awaitPort != 0 {
		if err := startup.Listens(ctx, o.awaitPort); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if o.logFormat == logline.JSON {
		slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	debug.SetMemoryLimit(memory)
	j := &job.Job{Places: job.Under(o.root), Meter: job.NewMeter()}
	result, err := run(ctx, o, j)
	if err != nil {
		fault := job.FaultOf(err)
		result.Reason, result.Message = fault.Reason, fault.Message
		if ctx.Err() != nil {
			result.Reason, result.Message = transfer.ReasonInternal, "the worker was stopped; the next one goes on where it can"
		}
		slog.Error("the work failed", "reason", result.Reason, "error", err)
	} else {
		result.Reason = transfer.ReasonCompleted
		slog.Info("the work is done", "read", result.Read, "resumed", result.Resumed, "size", result.VirtualSize)
	}
	if err := leave(o.termination, result); err != nil {
		slog.Error("the result is lost", "error", err)
	}
	if result.Reason != transfer.ReasonCompleted {
		return 1
	}
	return 0
}

func run(ctx context.Context, o options, j *job.Job) (transfer.Result, error) {
	var none transfer.Result
	if err := json.Unmarshal([]byte(os.Getenv(transfer.TaskEnv)), &j.Task); err != nil {
		return none, fmt.Errorf("reading the task in %s: %w", transfer.TaskEnv, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.progress)
	if err != nil {
		return none, fmt.Errorf("listening for those who ask for progress: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+transfer.ProgressPath, j.Meter)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	result, err := do(ctx, j)
	if closed := server.Close(); closed != nil {
		slog.Warn("closing the progress server", "error", closed)
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		slog.Warn("progress was not served", "error", served)
	}
	return result, err
}

// maxMessage keeps a result below the kubelet's limit of 4096 bytes.
const maxMessage = 2 << 10

func leave(file string, result transfer.Result) error {
	if len(result.Message) > maxMessage {
		result.Message = result.Message[:maxMessage] + " …"
	}
	data, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
