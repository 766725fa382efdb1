package target

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/propertytest"
)

func newJob(t testing.TB, task transfer.Task) *job.Job {
	t.Helper()
	j := &job.Job{Task: task, Places: job.Under(t.TempDir()), Meter: job.NewMeter()}
	if err := errors.Join(os.MkdirAll(j.Places.Dir, 0o755), os.MkdirAll(filepath.Dir(j.Places.Device), 0o755)); err != nil {
		t.Fatal(err)
	}
	return j
}

func blocks(t *testing.T, name string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(name, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

func TestADiskIsSparseUnlessItIsPreallocated(t *testing.T) {
	const size = 8 << 20
	for _, preallocate := range []bool{false, true} {
		j := newJob(t, transfer.Task{Size: size, Preallocate: preallocate})
		disk, err := Open(j, false)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 1<<20)
		data[5000] = 1
		if _, err := disk.WriteAt(data, 3<<20); err != nil {
			t.Fatal(err)
		}
		if err := disk.Finish(); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(j.Places.Dir, "disk.img")
		used := blocks(t, name)
		if !preallocate && used > 64<<10 || preallocate && used < size {
			t.Errorf("preallocate=%t: %d bytes are used", preallocate, used)
		}
		got, err := os.ReadFile(name)
		if err != nil || len(got) != size || got[3<<20+5000] != 1 || bytes.Count(got, []byte{0}) != size-1 {
			t.Errorf("preallocate=%t: the disk is another one: %v", preallocate, err)
		}
	}
}

func TestADiskHasNoNameBeforeItIsWhole(t *testing.T) {
	j := newJob(t, transfer.Task{Size: 4096})
	final := filepath.Join(j.Places.Dir, "disk.img")
	disk, err := Open(j, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(final); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("while it is written: %v", err)
	}
	if err := disk.Discard(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(j.Places.Dir); err != nil || len(entries) > 0 {
		t.Errorf("after it was given up: %v, %v", entries, err)
	}
	if _, err := Open(j, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("going on with nothing: %v", err)
	}
}

func TestADeviceIsClearedUnlessItIsKept(t *testing.T) {
	const size = 1 << 20
	for _, preallocate := range []bool{false, true} {
		j := newJob(t, transfer.Task{Size: size - 512, Block: true, Preallocate: preallocate})
		old := bytes.Repeat([]byte{7}, size)
		if err := os.WriteFile(j.Places.Device, old, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, keep := range []bool{true, false} {
			disk, err := Open(j, keep)
			if err != nil {
				t.Fatal(err)
			}
			if err := disk.Finish(); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			if keep {
				want = old
			}
			if got, err := os.ReadFile(j.Places.Device); err != nil || !bytes.Equal(got, want) {
				t.Errorf("keep=%t: it holds something else: %v", keep, err)
			}
		}
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	j := newJob(t, transfer.Task{Size: 1 << 20, Block: true})
	if err := os.WriteFile(j.Places.Device, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(j, false)
	if want := "the block claim has 512 KiB and the disk 1 MiB: request a larger claim"; err == nil || job.FaultOf(err).Reason != transfer.ReasonNoSpace || err.Error() != want {
		t.Errorf("a small device: %v", err)
	}
	j = newJob(t, transfer.Task{Size: 1 << 20})
	disk, err := Open(j, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Room(1 << 20); err != nil {
		t.Errorf("a MiB: %v", err)
	}
	if err := disk.Room(1 << 55); err == nil || job.FaultOf(err).Reason != transfer.ReasonNoSpace {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := disk.WriteAt([]byte{1}, 1<<20); err == nil {
		t.Error("a byte behind the end was written")
	}
}

// Pieces come in any order, some of them zeros.
func TestWhatIsWrittenIsRead(t *testing.T) {
	const size = 256 << 10
	j := newJob(t, transfer.Task{Size: size})
	propertytest.Check(t, func(r *rapid.T) {
		disk, err := Open(j, false)
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = disk.Discard() }()
		random := rand.NewChaCha8([32]byte{rapid.Byte().Draw(r, "seed")})
		content := make([]byte, size)
		_, _ = random.Read(content)
		for range rapid.IntRange(0, 8).Draw(r, "holes") {
			at := rapid.IntRange(0, size).Draw(r, "at")
			clear(content[at:min(size, at+rapid.IntRange(0, 40<<10).Draw(r, "length"))])
		}
		cuts := []int{0, rapid.IntRange(0, size).Draw(r, "cut"), size}
		for i := len(cuts) - 2; i >= 0; i-- {
			if _, err := disk.WriteAt(content[cuts[i]:cuts[i+1]], int64(cuts[i])); err != nil {
				r.Fatal(err)
			}
		}
		got, err := os.ReadFile(disk.Name())
		if err != nil || !bytes.Equal(got, content) {
			r.Errorf("the disk is another one: %v", err)
		}
	})
}
