package imports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/transfer"
)

// makeImage creates an image of one GiB with incompressible data and holes. It returns the image's
// size.
func makeImage(ctx context.Context, dir, name string) (int64, error) {
	raw := filepath.Join(dir, "raw")
	if err := writeRaw(raw); err != nil {
		return 0, fmt.Errorf("making an image: %w", err)
	}
	if _, err := run(command(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, name)); err != nil {
		return 0, fmt.Errorf("making an image: %w", err)
	}
	info, err := os.Stat(name)
	if err := errors.Join(err, os.Remove(raw)); err != nil {
		return 0, fmt.Errorf("making an image: %w", err)
	}
	return info.Size(), nil
}

func writeRaw(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 2<<20)
	for at := int64(0); at < diskSize && err == nil; at += 3 << 20 {
		_, _ = random.Read(data) // never fails
		_, err = file.WriteAt(data, at)
	}
	return errors.Join(err, file.Truncate(diskSize), file.Close())
}

type fetched struct {
	disk string
	// flushed includes flushing the disk, as the import worker does.
	took, flushed time.Duration
}

func (b *bench) fetchAndConvert(ctx context.Context) (fetched, error) {
	f := fetched{disk: b.path("usual.img")}
	file := b.path("fetched")
	began := settled()
	for _, step := range []*exec.Cmd{
		command(ctx, "curl", "-sSfo", file, b.url),
		command(ctx, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", file, f.disk),
	} {
		if _, err := run(step); err != nil {
			return f, err
		}
	}
	if err := os.Remove(file); err != nil {
		return f, fmt.Errorf("removing what was fetched: %w", err)
	}
	f.took = time.Since(began)
	_, err := run(command(ctx, "sync", f.disk))
	f.flushed = time.Since(began)
	return f, err
}

type imported struct {
	root, disk string
	took       time.Duration
	// memory is the peak with children, in bytes.
	memory int64
}

func (b *bench) importIt(ctx context.Context) (imported, error) {
	root, err := b.newRoot()
	if err != nil {
		return imported{}, err
	}
	i := imported{root: root, disk: filepath.Join(root, "data", "disk.img")}
	began := settled()
	i.memory, err = run(b.worker(ctx, root))
	i.took = time.Since(began)
	return i, err
}

func settled() time.Time {
	unix.Sync()
	return time.Now()
}

func (b *bench) newRoot() (string, error) {
	root, err := os.MkdirTemp(b.dir, "worker")
	for _, dir := range []string{"data", "work"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(root, dir), 0o755)
		}
	}
	if err != nil {
		return "", fmt.Errorf("making a worker's root: %w", err)
	}
	return root, nil
}

func (b *bench) worker(ctx context.Context, root string) *exec.Cmd {
	cmd := command(ctx, b.program, "-root", root, "-progress", "127.0.0.1:0", "-termination", filepath.Join(root, "log"))
	cmd.Env = append(os.Environ(), fmt.Sprintf(`%s={"kind":"http","url":%q,"size":%d,"allowedNetworks":["127.0.0.0/8"]}`, transfer.TaskEnv, b.url, diskSize))
	return cmd
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

func (b *bench) awaitSent(ctx context.Context, size int64) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.sent.Load() < size {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for half of an image to be sent: %w", ctx.Err())
		}
	}
	return nil
}

func run(cmd *exec.Cmd) (int64, error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", cmd.Args[0], err)
	}
	ctx, ended := context.WithCancel(context.Background())
	most := make(chan int64)
	go func() { most <- proc.Peak(ctx, cmd.Process.Pid) }()
	err := cmd.Wait()
	ended()
	memory := <-most
	if err != nil {
		return memory, fmt.Errorf("running %s: %w: %s", cmd.Args[0], err, &said)
	}
	return memory, nil
}

type weighing struct {
	http.ResponseWriter
	sent *atomic.Int64
}

// Write implements io.Writer.
func (w *weighing) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}
