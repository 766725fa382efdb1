package importer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/transfer"
)

const (
	benchDisk   = 3 << 29
	benchRounds = 3
)

// BenchmarkImport fetches a qcow2 image of a GiB in turns with `curl` and
// `qemu-img convert`, and kills a worker half way:
//
//	go test -run '^$' -bench Import -benchtime 1x ./internal/importer
func BenchmarkImport(b *testing.B) {
	dir := b.TempDir()
	content := benchImage(b, dir)
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(&weighing{ResponseWriter: w, sent: &sent}, r, content)
	}))
	defer server.Close()
	program := filepath.Join(dir, "virt-importer")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", program, "../../cmd/virt-importer")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	bench := bench{b: b, dir: dir, program: program, url: server.URL, size: fileSize(b, content), sent: &sent}
	for b.Loop() {
		bench.rounds()
		bench.killed()
	}
}

// benchImage is an image of a GiB: what does not compress, and holes and zeros.
func benchImage(b *testing.B, dir string) string {
	b.Helper()
	raw, name := filepath.Join(dir, "raw"), filepath.Join(dir, "image.qcow2")
	file, err := os.Create(raw)
	if err != nil {
		b.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 2<<20)
	for at := int64(0); at < benchDisk; at += 3 << 20 {
		_, _ = random.Read(data)
		if _, err := file.WriteAt(data, at); err != nil {
			b.Fatal(err)
		}
	}
	if err := file.Truncate(benchDisk); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.CommandContext(b.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, name).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(raw); err != nil {
		b.Fatal(err)
	}
	return name
}

type bench struct {
	b                 *testing.B
	dir, program, url string
	size              int64
	sent              *atomic.Int64
}

// rounds compares the worker with the usual way.
func (x *bench) rounds() {
	var ours, usual, flushed []float64
	var most int64
	for range benchRounds {
		var unflushed float64
		flushed = append(flushed, x.time(func() {
			file, disk := filepath.Join(x.dir, "fetched"), filepath.Join(x.dir, "usual.img")
			began := time.Now()
			x.run(exec.CommandContext(x.b.Context(), "curl", "-sSfo", file, x.url))
			x.run(exec.CommandContext(x.b.Context(), "qemu-img", "convert", "-f", "qcow2", "-O", "raw", file, disk))
			x.remove(file)
			unflushed = time.Since(began).Seconds()
			x.run(exec.CommandContext(x.b.Context(), "sync", disk))
		}))
		usual = append(usual, unflushed)
		var made string
		ours = append(ours, x.time(func() {
			worker, disk := x.worker(x.b.TempDir())
			most = max(most, x.run(worker))
			made = disk
		}))
		x.run(exec.CommandContext(x.b.Context(), "cmp", made, filepath.Join(x.dir, "usual.img")))
		x.remove(made)
		x.remove(filepath.Join(x.dir, "usual.img"))
	}
	mine, theirs, safe := median(ours), median(usual), median(flushed)
	x.b.Logf("import %.2f s; curl and qemu-img convert %.2f s, ratio %.2f; with the disk flushed, as the import has it, %.2f s, ratio %.2f; medians of %d",
		mine, theirs, mine/theirs, safe, mine/safe, benchRounds)
	x.b.Logf("the worker's memory at its peak: %d MiB", most>>20)
	x.b.ReportMetric(mine/theirs, "ratio")
	x.b.ReportMetric(mine/safe, "ratio-flushed")
	x.b.ReportMetric(float64(most>>20), "MiB-peak")
	if mine/safe > 1.2 || most > 128<<20 {
		x.b.Errorf("the limits are a ratio of 1.2 and 128 MiB")
	}
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

// killed kills a worker half way and has another one go on.
func (x *bench) killed() {
	root := x.b.TempDir()
	x.sent.Store(0)
	first, _ := x.worker(root)
	if err := first.Start(); err != nil {
		x.b.Fatal(err)
	}
	for x.sent.Load() < x.size/2 {
		time.Sleep(time.Millisecond)
	}
	if err := first.Process.Kill(); err != nil {
		x.b.Fatal(err)
	}
	_ = first.Wait() // it was killed
	second, disk := x.worker(root)
	x.run(second)
	again := float64(x.sent.Load()-x.size) / float64(x.size)
	x.b.Logf("killed half way, %.1f %% were sent again", 100*again)
	x.b.ReportMetric(100*again, "%-again")
	if again > 0.05 {
		x.b.Errorf("the limit is 5 %%")
	}
	x.remove(disk)
}

// worker is a worker and the disk that it makes.
func (x *bench) worker(root string) (*exec.Cmd, string) {
	for _, dir := range []string{"data", "work"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			x.b.Fatal(err)
		}
	}
	cmd := exec.CommandContext(x.b.Context(), x.program, "-root", root, "-progress", "127.0.0.1:0", "-termination", filepath.Join(root, "log"))
	cmd.Env = append(os.Environ(), fmt.Sprintf(`%s={"kind":"http","url":%q,"size":%d}`, transfer.TaskEnv, x.url, benchDisk))
	return cmd, filepath.Join(root, "data", "disk.img")
}

// time takes the time of work after everything else is on the disk.
func (x *bench) time(work func()) float64 {
	unix.Sync()
	began := time.Now()
	work()
	return time.Since(began).Seconds()
}

// run runs a program and answers how much memory it and its children took.
func (x *bench) run(cmd *exec.Cmd) int64 {
	x.b.Helper()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		x.b.Fatal(err)
	}
	ctx, stop := context.WithCancel(x.b.Context())
	most := make(chan int64)
	go func() { most <- peak(ctx, cmd.Process.Pid) }()
	err := cmd.Wait()
	stop()
	memory := <-most
	if err != nil {
		x.b.Fatalf("%s: %v: %s", cmd.Args[0], err, &said)
	}
	return memory
}

func (x *bench) remove(name string) {
	if err := os.Remove(name); err != nil {
		x.b.Fatal(err)
	}
}

// peak is the most memory that a process and its children took together.
func peak(ctx context.Context, pid int) int64 {
	var most int64
	for ctx.Err() == nil {
		sum := highWater(pid)
		for _, child := range children(pid) {
			sum += highWater(child)
		}
		most = max(most, sum)
		time.Sleep(5 * time.Millisecond)
	}
	return most
}

// children are the processes that any thread of a process started.
func children(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(child); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// highWater is a process's VmHWM.
func highWater(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, is := strings.CutPrefix(line, "VmHWM:"); is {
			kilobytes, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

func fileSize(b *testing.B, name string) int64 {
	b.Helper()
	info, err := os.Stat(name)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// weighing counts what an answer sends.
type weighing struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (w *weighing) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}
