package iso

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

func write(t *testing.T, label string, files []File) *iso9660.FileSystem {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	image, err := os.Create(filepath.Join(t.TempDir(), "image.iso"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { image.Close() })
	if err := Write(image, label, files); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("left in the temporary folder: %v", left)
	}
	info, err := image.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Size()%sector != 0 {
		t.Errorf("the image of %d bytes ends within a sector", info.Size())
	}
	fs, err := iso9660.Read(file.New(image, true), info.Size(), 0, sector)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestNamesAndContentsSurvive(t *testing.T) {
	files := []File{
		{"user-data", []byte("#cloud-config\n")},
		{"meta-data", []byte("{}")},
		{"Mixed.Case.With.Dots", []byte(strings.Repeat("x", 5000))},
		{"empty", nil},
		{"openstack/latest/meta_data.json", []byte("{}")},
		{"openstack/latest/user_data", []byte("u")},
	}
	fs := write(t, "cidata", files)
	if got := strings.TrimRight(fs.Label(), " \x00"); got != "cidata" {
		t.Errorf("the label is %q", got)
	}
	check(t, fs, files)
}

func TestLongestNames(t *testing.T) {
	files := []File{
		{strings.Repeat("k", maxName), []byte("long")},
		{strings.Repeat("d", maxName) + "/inside", []byte("long")},
		{strings.Repeat("k", maxJolietName+1), []byte("one too long for Joliet")},
		{"short", []byte("s")},
	}
	check(t, write(t, "cfgdata", files), files)
}

// A ConfigMap's key may have up to 253 characters; it must be refused rather than renamed.
func TestTooLongName(t *testing.T) {
	image, err := os.Create(filepath.Join(t.TempDir(), "image.iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	err = Write(image, "cfgdata", []File{{Path: "a/" + strings.Repeat("k", maxName+1)}})
	if err == nil || !strings.Contains(err.Error(), "a name longer than 128 characters does not fit") {
		t.Errorf("the error is %v", err)
	}
}

func check(t *testing.T, fs *iso9660.FileSystem, files []File) {
	t.Helper()
	for _, want := range files {
		in, err := fs.OpenFile("/"+want.Path, os.O_RDONLY)
		if err != nil {
			t.Errorf("%s: %v", want.Path, err)
			continue
		}
		got, err := io.ReadAll(in)
		if err != nil || string(got) != string(want.Data) {
			t.Errorf("%s holds %d bytes, not %d: %v", want.Path, len(got), len(want.Data), err)
		}
	}
}

// A guest's ordinary users read the image, too. The library invents the root folder's mode when it reads, so the test
// reads the image's own bytes.
func TestEveryoneMayRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.iso")
	image, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := Write(image, "cidata", []File{{"user-data", nil}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const descriptor, rootRecord, extent = 16 * sector, 156, 2
	root := data[sector*binary.LittleEndian.Uint32(data[descriptor+rootRecord+extent:]):]
	// The first record is the folder itself; Rock Ridge's PX holds its mode.
	at := bytes.Index(root, []byte("PX"))
	if mode := binary.LittleEndian.Uint32(root[at+4:]); mode&0o777 != 0o755 {
		t.Errorf("the root folder's mode is %o", mode)
	}
}

func TestLabelTooLong(t *testing.T) {
	if err := Write(nil, strings.Repeat("l", 33), nil); err == nil {
		t.Error("a label of 33 characters was accepted")
	}
}

func TestJolietOnlyWhereAllNamesFit(t *testing.T) {
	for name, tc := range map[string]struct {
		path string
		want bool
	}{
		"short":             {"a/b", true},
		"64 characters":     {strings.Repeat("ä", 64), true},
		"65 characters":     {strings.Repeat("a", 65), false},
		"long folder name":  {strings.Repeat("a", 65) + "/b", false},
		"long path in full": {strings.Repeat("abc/", 40) + "b", true},
	} {
		if got := fitsJoliet([]File{{Path: tc.path}}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
