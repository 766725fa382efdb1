// Package imports measures the import worker, interleaved with curl and qemu-img: time and memory, and the amount
// that is downloaded again after a worker was killed halfway.
//
// It needs no cluster: it runs the worker as its pod would, with a local server. It must not test whether disks
// are correct, except that both ways have the same result.
package imports

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	rounds int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "import-rounds", 3, "import: how often an image is imported each way first, and then each way last")
}

// diskSize is the virtual size of the image. Two thirds of it are data, so the image has one GiB.
const diskSize = 3 << 29

type bench struct {
	report  *report.Report
	dir     string
	program string
	url     string
	// size is the image's size, and sent the number of bytes that the server has sent.
	size int64
	sent atomic.Int64
}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, programs string, r *report.Report) (err error) {
	program, err := filepath.Abs(filepath.Join(programs, "virt-importer"))
	if err != nil {
		return fmt.Errorf("finding the import worker: %w", err)
	}
	dir, err := os.MkdirTemp("", "imports")
	if err != nil {
		return fmt.Errorf("making a folder for disks: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{report: r, dir: dir, program: program}
	stop, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for i := range o.rounds {
		if err := b.round(ctx); err != nil {
			return fmt.Errorf("in round %d: %w", i, err)
		}
		if err := b.killed(ctx); err != nil {
			return fmt.Errorf("killing a worker in round %d: %w", i, err)
		}
	}
	return nil
}

func (b *bench) serve(ctx context.Context) (stop func(), err error) {
	image := b.path("image.qcow2")
	if b.size, err = makeImage(ctx, b.dir, image); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serving an image: %w", err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(&weighing{ResponseWriter: w, sent: &b.sent}, r, image)
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // the client reports a truncated download
	}()
	b.url = "http://" + listener.Addr().String()
	return func() {
		_ = server.Close() // no client is left
		<-ended
	}, nil
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// The second import of a pair writes to a busy disk and takes up to twice as long: hence both orders.
func (b *bench) round(ctx context.Context) error {
	there, err := b.compare(ctx, 0)
	if err != nil {
		return err
	}
	back, err := b.compare(ctx, 1)
	if err != nil {
		return err
	}
	ours, usual := there.worker.took+back.worker.took, there.baseline.took+back.baseline.took
	flushed := there.baseline.flushed + back.baseline.flushed
	b.report.Add("import.ratio", "ratio", ours.Seconds()/flushed.Seconds())
	b.report.Add("import.ratio_to_unflushed", "ratio", ours.Seconds()/usual.Seconds())
	return nil
}

type comparison struct {
	worker   imported
	baseline fetched
}

func (b *bench) compare(ctx context.Context, number int) (t comparison, err error) {
	err = interleave.Run(ctx, number,
		func(ctx context.Context) (err error) { t.baseline, err = b.fetchAndConvert(ctx); return err },
		func(ctx context.Context) (err error) { t.worker, err = b.importIt(ctx); return err },
	)
	if err != nil {
		return t, err
	}
	if _, err := run(command(ctx, "cmp", t.worker.disk, t.baseline.disk)); err != nil {
		return t, err
	}
	b.report.Add("import.import_s", "s", t.worker.took.Seconds())
	b.report.Add("import.curl_and_convert_s", "s", t.baseline.took.Seconds())
	b.report.Add("import.curl_convert_and_flush_s", "s", t.baseline.flushed.Seconds())
	b.report.Add("import.peak_mib", "MiB", float64(t.worker.memory)/(1<<20))
	b.report.Logf("import %.2f s with %d MiB; curl and qemu-img convert %.2f s, with the disk flushed, as the import has it, %.2f s",
		t.worker.took.Seconds(), t.worker.memory>>20, t.baseline.took.Seconds(), t.baseline.flushed.Seconds())
	return t, errors.Join(os.RemoveAll(t.worker.root), os.Remove(t.baseline.disk))
}

func (b *bench) killed(ctx context.Context) (err error) {
	root, err := b.newRoot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	b.sent.Store(0)
	first := b.worker(ctx, root)
	if err := first.Start(); err != nil {
		return fmt.Errorf("starting a worker: %w", err)
	}
	halfway := b.awaitSent(ctx, b.size/2)
	if err := errors.Join(halfway, first.Process.Kill()); err != nil {
		return err
	}
	_ = first.Wait() // killed
	if _, err := run(b.worker(ctx, root)); err != nil {
		return err
	}
	again := 100 * float64(b.sent.Load()-b.size) / float64(b.size)
	b.report.Add("import.refetched_percent", "percent", again)
	b.report.Logf("killed half way, %.1f %% were sent again", again)
	return nil
}
