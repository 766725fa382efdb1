package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func testStore(dir string) Store {
	return Store{Disks: func() (map[string]string, error) {
		return map[string]string{"node1": filepath.Join(dir, "node1"), "node2": filepath.Join(dir, "node2"), Shared: filepath.Join(dir, "shared")}, nil
	}}
}

func mustCreate(t *testing.T, s Store, want Volume, from *Source) Volume {
	t.Helper()
	made, err := s.Create(context.Background(), want, from)
	if err != nil {
		t.Fatalf("making %s: %v", want.Name, err)
	}
	return made
}

func TestIdentifiers(t *testing.T) {
	for id, valid := range map[string]bool{
		"node1.pvc-1": true, "shared.a.b_c": true, "node1": false, "": false, ".x": false, "node1.": false,
		"node1..new-x": false, "node1.../../etc": false, "no/de.x": false,
	} {
		if _, _, ok := ParseID(id); ok != valid {
			t.Errorf("identifier %q is valid: %t, want %t", id, ok, valid)
		}
	}
}

func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		kind            Kind
		required, limit int64
		want            int64 // 0 if refused
	}{
		"nothing asked for is the least":        {Block, 0, 0, 1 << 20},
		"a filesystem needs room for itself":    {Ext4, 1, 0, 16 << 20},
		"sizes are rounded up to whole MiB":     {Block, 1<<20 + 1, 0, 2 << 20},
		"a limit below what is made is refused": {Block, 1<<20 + 1, 1<<20 + 2, 0},
		"a limit that is met is none":           {Ext4, 32 << 20, 32 << 20, 32 << 20},
	} {
		got, err := Size(c.kind, c.required, c.limit)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s: %d %v, want %d", name, got, err, c.want)
		}
	}
}

func TestCreateAgain(t *testing.T) {
	s := testStore(t.TempDir())
	made := mustCreate(t, s, Volume{Name: "v", Disk: "node2", Kind: Block, Bytes: 2 << 20}, nil)
	snapshot, err := s.CreateSnapshot(context.Background(), "s", made)
	if err != nil {
		t.Fatal(err)
	}
	from, err := s.FromSnapshot(snapshot.ID())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want  Volume
		from  *Source
		fails error
	}{
		"the same":                            {Volume{Name: "v", Disk: "node2", Kind: Block, Bytes: 2 << 20}, nil, nil},
		"a smaller one is there":              {Volume{Name: "v", Disk: "node2", Kind: Block, Bytes: 1 << 20}, nil, nil},
		"another disk: it stays where it is":  {Volume{Name: "v", Disk: "node1", Kind: Block, Bytes: 2 << 20}, nil, nil},
		"a larger one":                        {Volume{Name: "v", Disk: "node2", Kind: Block, Bytes: 3 << 20}, nil, ErrConflict},
		"another kind":                        {Volume{Name: "v", Disk: "node2", Kind: Folder, Bytes: 2 << 20}, nil, ErrConflict},
		"made from something":                 {Volume{Name: "v", Disk: "node2", Kind: Block, Bytes: 2 << 20}, from, ErrConflict},
		"more than any disk has":              {Volume{Name: "w", Disk: "node2", Kind: Block, Bytes: 1 << 60}, nil, ErrNoSpace},
		"a disk that is not there":            {Volume{Name: "w", Disk: "node3", Kind: Block, Bytes: 1 << 20}, nil, ErrNotFound},
		"from a block snapshot, a filesystem": {Volume{Name: "w", Disk: "node2", Kind: Ext4, Bytes: 16 << 20}, from, ErrUnfit},
		"from a snapshot, less than it has":   {Volume{Name: "w", Disk: "node2", Kind: Block, Bytes: 1 << 20}, from, ErrUnfit},
		"what failed before, as it should be": {Volume{Name: "x", Disk: "node1", Kind: Block, Bytes: 4 << 20}, from, nil},
	} {
		got, err := s.Create(context.Background(), c.want, c.from)
		if !errors.Is(err, c.fails) {
			t.Errorf("%s: %v, want %v", name, err, c.fails)
		}
		if c.want.Name == "v" && c.fails == nil && got != made {
			t.Errorf("%s: %+v, want %+v", name, got, made)
		}
	}
}

func TestSnapshotsKeepWhatWas(t *testing.T) {
	s := testStore(t.TempDir())
	made := mustCreate(t, s, Volume{Name: "v", Disk: "node1", Kind: Block, Bytes: 64 << 20}, nil)
	root, err := s.On("node1")
	if err != nil {
		t.Fatal(err)
	}
	// Data at both ends and a long hole between.
	old := bytes.Repeat([]byte("old!"), 300_000)
	f, err := os.OpenFile(Data(root, "v"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{12_345, 60 << 20} {
		if _, err := f.WriteAt(old, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CreateSnapshot(context.Background(), "s", made); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("new!"), 12_345); err != nil {
		t.Fatal(err)
	}
	from, err := s.FromSnapshot("node1.s")
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, Volume{Name: "copy", Disk: Shared, Kind: Block, Bytes: 80 << 20}, from)
	shared, err := s.On(Shared)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(Data(shared, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 80<<20)
	copy(want[12_345:], old)
	copy(want[60<<20:], old)
	if !bytes.Equal(got, want) {
		t.Error("the volume made from the snapshot differs from what was when it was taken")
	}
	info, err := os.Stat(Data(shared, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 8<<20 {
		t.Errorf("the copy of 2.4 MB of data takes %d bytes", used)
	}
}

func TestFilesystemFillsTheLargerVolume(t *testing.T) {
	s := testStore(t.TempDir())
	mustCreate(t, s, Volume{Name: "v", Disk: "node1", Kind: Ext4, Bytes: 16 << 20}, nil)
	from, err := s.FromVolume("node1.v")
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, Volume{Name: "w", Disk: "node2", Kind: Ext4, Bytes: 64 << 20}, from)
	root, err := s.On("node2")
	if err != nil {
		t.Fatal(err)
	}
	if got := available(t, Data(root, "w")); got < 64<<20 {
		t.Errorf("the filesystem of 16 MiB cloned to 64 MiB has room for %d bytes", got)
	}
}

// A disk of a claim's size must fit into the claim's filesystem.
func TestAVolumesSizeCanBeWritten(t *testing.T) {
	s := testStore(t.TempDir())
	root, err := s.On(Shared)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{16, 17, 64, 127, 128, 129, 256, 511, 512, 1023, 1024, 2048, 10 << 10} {
		size *= unit
		made := mustCreate(t, s, Volume{Name: fmt.Sprint("v", size), Disk: Shared, Kind: Ext4, Bytes: size}, nil)
		if got := available(t, Data(root, made.Name)); got < size || got > size+size/50+8*unit {
			t.Errorf("a filesystem for %d bytes has room for %d, which is %d more", size, got, got-size)
		}
		if size > 1024*unit {
			continue // growing the larger ones takes seconds
		}
		grown, err := s.Grow(made.ID(), 3*size)
		if err == nil {
			err = run(t.Context(), "resize2fs", Data(root, made.Name))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := available(t, Data(root, made.Name)); got < grown.Bytes || got > grown.Bytes+grown.Bytes/20+8*unit {
			t.Errorf("a filesystem that has grown from %d to %d bytes has room for %d", size, grown.Bytes, got)
		}
	}
}

// available is the answer of statfs for an unmounted filesystem: the free space without the kernel's reserve.
func available(t *testing.T, path string) int64 {
	t.Helper()
	var beside strings.Builder // its version
	dumpe2fs := exec.Command("dumpe2fs", "-h", path)
	dumpe2fs.Stderr = &beside
	out, err := dumpe2fs.Output()
	if err != nil {
		t.Fatalf("reading the filesystem: %v: %s", err, beside.String())
	}
	field := func(name string) int64 {
		_, after, _ := strings.Cut(string(out), "\n"+name+":")
		line, _, _ := strings.Cut(after, "\n")
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v in %s", name, err, out)
		}
		return n
	}
	free := field("Free blocks") - field("Reserved block count")
	return (free - min(field("Block count")/50, 4096)) * field("Block size")
}

func TestFolders(t *testing.T) {
	s := testStore(t.TempDir())
	made := mustCreate(t, s, Volume{Name: "v", Disk: Shared, Kind: Folder, Bytes: 1 << 20}, nil)
	root, err := s.On(Shared)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(Data(root, "v"), "file"), []byte("text"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateSnapshot(context.Background(), "s", made); err != nil {
		t.Fatal(err)
	}
	from, err := s.FromSnapshot("shared.s")
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, Volume{Name: "w", Disk: Shared, Kind: Folder, Bytes: 1 << 20}, from)
	got, err := os.ReadFile(filepath.Join(Data(root, "w"), "file"))
	if err != nil || string(got) != "text" {
		t.Errorf("the restored folder holds %q: %v", got, err)
	}
}

func TestGrowGoesOnWhereItWasKilled(t *testing.T) {
	s := testStore(t.TempDir())
	mustCreate(t, s, Volume{Name: "v", Disk: "node1", Kind: Block, Bytes: 1 << 20}, nil)
	root, err := s.On("node1")
	if err != nil {
		t.Fatal(err)
	}
	// The file is long already, but the record was not written.
	if err := os.Truncate(Data(root, "v"), 3<<20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err := s.Grow("node1.v", 3<<20); err != nil || v.Bytes != 3<<20 {
			t.Errorf("growing answers %d bytes: %v", v.Bytes, err)
		}
	}
	if v, err := s.Volume("node1.v"); err != nil || v.Bytes != 3<<20 {
		t.Errorf("the record says %d bytes: %v", v.Bytes, err)
	}
	if _, err := s.Grow("node1.v", 1<<60); !errors.Is(err, ErrNoSpace) {
		t.Errorf("growing beyond the disk: %v", err)
	}
}
