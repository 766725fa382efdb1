package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

const gibibyte = 1 << 30

func TestSpaceIsAddedUpPerFileSystem(t *testing.T) {
	needs := []Need{
		{"/clone", 2 * gibibyte, "programs take"},
		{"/home/cache", 7 * gibibyte, "compiled packages take"},
		{"/var/lib/cluster", 2 * gibibyte, "a cluster takes"},
	}
	oneDisk := func(free uint64) func(string) (volume, error) {
		return func(string) (volume, error) { return volume{device: 1, free: free}, nil }
	}
	homeApart := func(dir string) (volume, error) {
		if strings.HasPrefix(dir, "/home") {
			return volume{device: 2, free: 6 * gibibyte}, nil
		}
		return volume{device: 1, free: 5 * gibibyte}, nil
	}
	for name, test := range map[string]struct {
		look func(string) (volume, error)
		want string
	}{
		"one disk with room for all":             {oneDisk(11 * gibibyte), ""},
		"one disk with room for each, not all":   {oneDisk(10 * gibibyte), "only 10.0 GiB of disk space are free, 11.0 GiB are needed"},
		"two disks, one of them with too little": {homeApart, "only 6.0 GiB of disk space are free, 7.0 GiB are needed: compiled packages take about 7.0 GiB in /home/cache"},
	} {
		got, err := littleSpace(needs, test.look)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want)) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if _, err := littleSpace(needs, func(string) (volume, error) { return volume{}, errors.New("input/output error") }); err == nil {
		t.Error("a folder that can't be looked at is not reported")
	}
}

func TestSpaceOfAFolderThatIsNotThereYet(t *testing.T) {
	dir := t.TempDir() + "/not/there/yet"
	if got, err := LittleSpace([]Need{{dir, 1, "a byte takes"}}); err != nil || len(got) > 0 {
		t.Errorf("for one byte: %q, %v", got, err)
	}
	if got, err := LittleSpace([]Need{{dir, 1 << 60, "an exbibyte takes"}}); err != nil || len(got) != 1 {
		t.Errorf("for an exbibyte: %q, %v", got, err)
	}
}

// procOf is a /proc with one file.
func procOf(t *testing.T, name, text string) procfs.FS {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	fs, err := procfs.NewFS(strings.TrimSuffix(path, name))
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestMemory(t *testing.T) {
	const meminfo = "MemTotal: 4194304 kB\nMemFree: 1000 kB\nMemAvailable: 1048576 kB\nSwapTotal: 1048576 kB\nSwapFree: 524288 kB\nHugePages_Total: 0\n"
	m, err := memoryIn(procOf(t, "meminfo", meminfo))
	if err != nil || m.Total != 5*gibibyte || m.Available != 3*gibibyte/2 {
		t.Fatalf("read %+v, %v; want what there is with swap", m, err)
	}
	for name, test := range map[string]struct {
		need              uint64
		impossible, tight int
	}{
		"enough":                       {gibibyte, 0, 0},
		"enough when other things end": {2 * gibibyte, 0, 1},
		"more than there is":           {6 * gibibyte, 1, 0},
	} {
		if impossible, tight := m.Little(test.need, "building"); len(impossible) != test.impossible || len(tight) != test.tight {
			t.Errorf("%s: impossible %q, tight %q", name, impossible, tight)
		}
	}
	if _, err := memoryIn(procOf(t, "meminfo", "SwapTotal: 1048576 kB\n")); err == nil {
		t.Error("a list without the total is no error")
	}
}
