package diskcopy_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/rules/machine"
)

// sparseDisk is the size of a disk that is zeros but for its content.
const sparseDisk = 4 << 30

// forSockets returns a folder whose name is short enough.
func forSockets(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qemu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// bootWithDisk starts QEMU with a disk, and connects to it.
func bootWithDisk(t *testing.T, disk string, more ...string) *guesttest.Guest {
	t.Helper()
	conn, _ := guesttest.StartQEMU(t, append([]string{
		"-blockdev", "driver=file,node-name=f-root,discard=unmap,filename=" + disk,
		"-blockdev", "driver=raw,node-name=n-root,discard=unmap,file=f-root"}, more...)...)
	return guesttest.Watch(t, conn)
}

// TestZerosDoNotUseUpTheBandwidth with a real QEMU: at a mebibyte a second, this disk's zeros alone would take an hour.
func TestZerosDoNotUseUpTheBandwidth(t *testing.T) {
	for name, c := range map[string]struct {
		disk  machine.Mirror
		there int64
	}{
		"a disk in the pod":             {machine.Mirror{Volume: "root", Node: "n-root", Copy: "m-root", Whole: true}, sparseDisk},
		"a disk that changes its claim": {machine.Mirror{Volume: "root", Node: "n-root", Copy: "m-root", Whole: true, Slice: "ms-root"}, sparseDisk},
		"a disk that gets a larger one": {machine.Mirror{Volume: "root", Node: "n-root", Copy: "m-root", Whole: true, Slice: "ms-root"}, sparseDisk + 1<<20},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			content := make([]byte, 1<<20)
			_, _ = rand.Read(content)
			here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
			const at = 1 << 30
			writeSparse(t, here, sparseDisk, at, content)
			writeSparse(t, there, c.there, 0, content) // it must be overwritten
			from, to := bootWithDisk(t, here), bootWithDisk(t, there, "-incoming", "defer")
			socket := filepath.Join(forSockets(t), "d.sock")
			if err := to.Export(t.Context(), socket, []machine.Mirror{c.disk}); err != nil {
				t.Fatal(err)
			}
			if err := from.Mirror(t.Context(), diskcopy.Mirroring{Migration: "m", Socket: socket, Disks: []machine.Mirror{c.disk}, Bandwidth: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			one := func(status string) func(guest.Facts) bool {
				return func(f guest.Facts) bool { return len(f.Jobs) == 1 && f.Jobs[0].Status == status }
			}
			from.Await("a copy that is ready", one("ready"))
			if err := from.FinishMirrors(t.Context(), "m"); err != nil {
				t.Fatal(err)
			}
			if f := from.Await("a copy that has ended", one(guest.Concluded)); f.Jobs[0].Error != "" {
				t.Fatalf("it has failed: %s", f.Jobs[0].Error)
			}
			for offset, want := range map[int64][]byte{0: make([]byte, len(content)), at: content} {
				if !bytes.Equal(readAt(t, there, offset, len(want)), want) {
					t.Errorf("at %d, the copy differs", offset)
				}
			}
			if has := allocated(t, there); has > 16<<20 {
				t.Errorf("the copy of a mebibyte and zeros occupies %d bytes", has)
			}
		})
	}
}

// TestWrittenZerosAreNotSent with a real QEMU: a preallocated file of zeros has no holes, and is copied as one.
func TestWrittenZerosAreNotSent(t *testing.T) {
	const size = 64 << 20
	for name, slice := range map[string]string{"a disk in the pod": "", "a disk that changes its claim": "ms-root"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			content := make([]byte, size)
			_, _ = rand.Read(content[:1<<20])
			here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
			writeSparse(t, here, size, 0, content)
			if has := allocated(t, here); has < size {
				t.Skipf("the file system makes holes of zeros: %d bytes of %d are allocated", has, size)
			}
			writeSparse(t, there, size, 0, bytes.Repeat([]byte{1}, size))
			from, to := bootWithDisk(t, here), bootWithDisk(t, there, "-incoming", "defer")
			disk := machine.Mirror{Volume: "root", Node: "n-root", Copy: "m-root", Whole: true, Slice: slice}
			sockets := forSockets(t)
			if err := to.Export(t.Context(), filepath.Join(sockets, "d.sock"), []machine.Mirror{disk}); err != nil {
				t.Fatal(err)
			}
			sent := countSent(t, filepath.Join(sockets, "counted.sock"), filepath.Join(sockets, "d.sock"))
			if err := from.Mirror(t.Context(), diskcopy.Mirroring{Migration: "m", Socket: filepath.Join(sockets, "counted.sock"), Disks: []machine.Mirror{disk}}); err != nil {
				t.Fatal(err)
			}
			from.Await("a copy that is ready", func(f guest.Facts) bool { return len(f.Jobs) == 1 && f.Jobs[0].Status == "ready" })
			if got := readAt(t, there, 0, size); !bytes.Equal(got, content) {
				t.Error("the copy differs")
			}
			if n := sent.Load(); n < 1<<20 || n > 4<<20 {
				t.Errorf("%d bytes were sent for a mebibyte and zeros", n)
			}
			if has := allocated(t, there); has > 16<<20 {
				t.Errorf("the copy of a mebibyte and zeros occupies %d bytes", has)
			}
		})
	}
}

// countSent forwards one connection to a socket, and counts the bytes to the server.
func countSent(t *testing.T, socket, server string) *atomic.Int64 {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	to, err := net.Dial("unix", server)
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		forwarding.Go(func() { _, _ = io.Copy(io.MultiWriter(to, counter{&sent}), client) })
		_, _ = io.Copy(client, to) // until the test ends
	})
	t.Cleanup(func() {
		_ = listener.Close()
		_ = to.Close()
		forwarding.Wait()
	})
	return &sent
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func writeSparse(t *testing.T, path string, size, at int64, content []byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, at); err != nil {
		t.Fatal(err)
	}
}

func readAt(t *testing.T, path string, at int64, n int) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := make([]byte, n)
	if _, err := f.ReadAt(out, at); err != nil {
		t.Fatal(err)
	}
	return out
}

// allocated returns the bytes that a file occupies.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
