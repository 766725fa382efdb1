package qcow2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/test/shipped"
)

// bytesFeed is a file in memory.
type bytesFeed struct {
	content []byte
	place   int64
}

func (f *bytesFeed) Place() int64 { return f.place }

func (f *bytesFeed) Peek(n int) ([]byte, error) {
	rest := f.content[min(f.place, int64(len(f.content))):]
	if n > MaxPeek {
		return nil, fmt.Errorf("a peek of %d bytes", n)
	}
	if n > len(rest) {
		return bytes.Clone(rest), io.EOF
	}
	return bytes.Clone(rest[:n]), nil
}

func (f *bytesFeed) Discard(n int64) error {
	if f.place += n; f.place > int64(len(f.content)) {
		return io.EOF
	}
	return nil
}

func ranges(content []byte) ReadRange {
	return func(_ context.Context, p []byte, offset int64) error {
		if offset > int64(len(content)) || copy(p, content[offset:]) < len(p) {
			return missing(io.EOF)
		}
		return nil
	}
}

type reader func(t testing.TB, h *Header, content []byte, sink Sink) error

var readers = map[string]reader{
	"with tables": func(t testing.TB, h *Header, content []byte, sink Sink) error {
		return ordered(t, h, content, 0, maxInMemory, sink)
	},
	"with tables that don't fit into memory": func(t testing.TB, h *Header, content []byte, sink Sink) error {
		return ordered(t, h, content, 0, 3, sink)
	},
	"as a stream": func(t testing.TB, h *Header, content []byte, sink Sink) error {
		stash, err := os.CreateTemp(t.TempDir(), "stash")
		if err != nil {
			t.Fatal(err)
		}
		defer stash.Close()
		return h.Streamed(&bytesFeed{content: content}, stash, sink)
	},
}

func ordered(t testing.TB, h *Header, content []byte, from int64, limit int, sink Sink) error {
	tables, err := h.loadTables(t.Context(), ranges(content))
	if err != nil {
		return err
	}
	m := newMap(t.TempDir())
	m.limit = limit
	defer func() { _ = m.Close() }()
	if err := h.loadExtents(t.Context(), ranges(content), tables, m); err != nil {
		return err
	}
	return h.Ordered(&bytesFeed{content: content, place: from}, m, sink, func() error { return nil })
}

// decode returns the disk in an image.
func decode(t testing.TB, content []byte, read reader, limit int64) ([]byte, error) {
	h, err := Parse(content[:min(len(content), HeaderSize)])
	if err != nil {
		return nil, err
	}
	if h.Size > limit {
		return nil, errors.New("too large")
	}
	decoder, err := h.NewDecoder()
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	disk := make([]byte, h.Size)
	return disk, read(t, h, content, func(e Extent, data []byte) error { return place(decoder, h, disk, e, data) })
}

// place writes an extent to a disk.
func place(decoder *Decoder, h *Header, disk []byte, e Extent, data []byte) error {
	if !e.Compressed {
		copy(disk[e.Guest:e.Guest+int64(len(data))], data)
		return nil
	}
	return decoder.Decode(disk[e.Guest:e.Guest+int64(h.Length(e))], data)
}

// history makes an image with random operations of guests and administrators: writes, compression, zeroes, discards,
// snapshots and growth. It returns the image and QEMU's reading of its disk.
func history(t *testing.T, seed uint64) (content, disk []byte) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	dir := t.TempDir()
	name, raw := filepath.Join(dir, "image"), filepath.Join(dir, "raw")
	size := (1 + random.IntN(24)) * 512 * (1 + random.IntN(512))
	cluster := pick("512", "4096", "65536", "262144", "2097152")
	options := "cluster_size=" + cluster + pick("", ",preallocation=metadata")
	if cluster == "65536" {
		options += pick("", ",extended_l2=on")
	}
	options += pick(",compat=1.1", ",compat=1.1,lazy_refcounts=on", ",compat=1.1,compression_type=zstd")
	if cluster == "4096" {
		options = "cluster_size=4096,compat=0.10"
	}
	qemu(t, shipped.Program(t, "qemu-img"), "create", "-q", "-f", "qcow2", "-o", options, name, fmt.Sprint(size))
	for range 1 + random.IntN(5) {
		args := []string{"-f", "qcow2"}
		for range random.IntN(12) {
			at := random.IntN(size/512) * 512
			length := min(512*(1+random.IntN(900)), size-at)
			args = append(args, "-c", fmt.Sprintf("%s %d %d", pick("write -P 17", "write -P 98", "write -z", "write -z -u", "discard", "write -P 0"), at, length))
		}
		qemu(t, shipped.Program(t, "qemu-io"), append(args, name)...)
		switch random.IntN(5) {
		case 0:
			qemu(t, shipped.Program(t, "qemu-img"), "snapshot", "-c", fmt.Sprint(random.IntN(100)), name)
		case 1:
			grown := size + 512*random.IntN(4000)
			if cluster != "4096" {
				qemu(t, shipped.Program(t, "qemu-img"), "resize", "-q", "-f", "qcow2", name, fmt.Sprint(grown))
				size = grown
			}
		case 2:
			other := name + ".2"
			qemu(t, shipped.Program(t, "qemu-img"), append([]string{"convert", "-f", "qcow2", "-O", "qcow2", "-o", "cluster_size=" + cluster}, append(random2(random), name, other)...)...)
			if err := os.Rename(other, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	qemu(t, shipped.Program(t, "qemu-img"), "convert", "-f", "qcow2", "-O", "raw", name, raw)
	return load(t, name), load(t, raw)
}

func random2(random *rand.Rand) []string {
	if random.IntN(2) == 0 {
		return []string{"-c"}
	}
	return []string{"-W", "-m", "8"}
}

func qemu(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func load(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestQEMUReadsTheSame(t *testing.T) {
	seeds := uint64(12)
	if more := os.Getenv("QCOW2_SEEDS"); more != "" {
		if _, err := fmt.Sscan(more, &seeds); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			content, want := history(t, seed)
			for name, read := range readers {
				got, err := decode(t, content, read, 1<<30)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if !bytes.Equal(got, want) {
					t.Errorf("%s: the disk is another one", name)
				}
			}
		})
	}
}

func TestAWalkCanBeTakenUpAnywhere(t *testing.T) {
	for seed := range uint64(3) {
		content, want := history(t, 100+seed)
		h, err := Parse(content)
		if err != nil {
			t.Fatal(err)
		}
		m, err := h.Load(t.Context(), ranges(content), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var stops []int64
		feed := &bytesFeed{content: content}
		none := func(Extent, []byte) error { return nil }
		if err := h.Ordered(feed, m, none, func() error { stops = append(stops, feed.place); return nil }); err != nil {
			t.Fatal(err)
		}
		decoder, err := h.NewDecoder()
		if err != nil {
			t.Fatal(err)
		}
		defer decoder.Close()
		for i := 0; i < len(stops); i += 1 + len(stops)/20 {
			disk := make([]byte, h.Size)
			before := func(e Extent, data []byte) error {
				if e.Host >= stops[i] {
					return nil
				}
				return place(decoder, h, disk, e, data)
			}
			after := func(e Extent, data []byte) error { return place(decoder, h, disk, e, data) }
			if err := errors.Join(ordered(t, h, content, 0, maxInMemory, before), ordered(t, h, content, stops[i], maxInMemory, after)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(disk, want) {
				t.Errorf("taken up at %d, the disk is another one", stops[i])
			}
		}
	}
}

// FuzzImage reads arbitrary bytes as an image. Reading must end and take little memory, and both ways must read the
// same, or refuse.
func FuzzImage(f *testing.F) {
	for _, options := range []string{"cluster_size=512,compat=1.1", "cluster_size=512,compat=0.10", "cluster_size=512,compression_type=zstd"} {
		name := filepath.Join(f.TempDir(), "image")
		if out, err := exec.Command(shipped.Program(f, "qemu-img"), "create", "-q", "-f", "qcow2", "-o", options, name, "20000").CombinedOutput(); err != nil {
			f.Fatalf("%v: %s", err, out)
		}
		if out, err := exec.Command(shipped.Program(f, "qemu-io"), "-f", "qcow2", "-c", "write -c -P 5 8192 512", "-c", "write -P 5 4096 1024", "-c", "write -z 0 1024", name).CombinedOutput(); err != nil {
			f.Fatalf("%v: %s", err, out)
		}
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		const limit = 4 << 20
		tables, err := decode(t, content, readers["with tables"], limit)
		stream, streamErr := decode(t, content, readers["as a stream"], limit)
		for _, err := range []error{err, streamErr} {
			var fault *job.Fault
			if err != nil && !errors.As(err, &fault) && err.Error() != "too large" {
				t.Errorf("not a fault: %v", err)
			}
		}
		if err == nil && streamErr == nil && !bytes.Equal(tables, stream) {
			t.Error("the ways to read it differ")
		}
	})
}
