package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func sample() *FS {
	f := New()
	f.Symlink("/var/run", "/run")
	f.File("usr/bin/program", 0o755, []byte("content"))
	f.Dir("/tmp", 0o777|fs.ModeSticky)
	f.CharDevice("/dev/console", 0o600, 5, 1)
	f.Own("/usr/bin/program", 107, 108)
	f.Own("/not/there", 1, 1)
	return f
}

func TestEveryEntryComesAfterTheFolderItIsIn(t *testing.T) {
	var names []string
	for _, entry := range sample().Entries() {
		names = append(names, entry.Path)
	}
	want := []string{"/dev", "/dev/console", "/tmp", "/usr", "/usr/bin", "/usr/bin/program", "/var", "/var/run"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestALaterEntryTakesThePlaceOfAnEarlierOne(t *testing.T) {
	f := New()
	f.File("/a", 0o600, []byte("old"))
	f.Symlink("/a", "/b")
	if entries := f.Entries(); len(entries) != 1 || entries[0].Link != "/b" || entries[0].Data != nil {
		t.Errorf("got %+v", entries)
	}
}

func TestWhatIsBelowALinkOfAMergedUsrIsInItsTarget(t *testing.T) {
	f := New()
	f.MergeUsr()
	f.File("/bin/program", 0o755, nil)
	f.Own("/bin/program", 1, 2)
	f.File("/usr/bin/other", 0o755, nil)
	f.File("/binary/program", 0o755, nil)
	var got []string
	for _, entry := range f.Entries() {
		if entry.Mode.IsRegular() || entry.Link != "" {
			got = append(got, fmt.Sprintf("%s %s %d", entry.Path, entry.Link, entry.UID))
		}
	}
	want := []string{"/bin usr/bin 0", "/binary/program  0", "/lib usr/lib 0", "/lib64 usr/lib64 0", "/sbin usr/sbin 0",
		"/usr/bin/other  0", "/usr/bin/program  1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestATarHoldsEveryEntryWithItsKindAndOwner(t *testing.T) {
	var archive bytes.Buffer
	if err := sample().WriteTar(&archive); err != nil {
		t.Fatal(err)
	}
	var got []string
	for reader := tar.NewReader(&archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %s %o %d:%d %d,%d %s %s %d", header.Typeflag, header.Name, header.Mode,
			header.Uid, header.Gid, header.Devmajor, header.Devminor, header.Linkname, data, header.ModTime.Unix()))
	}
	want := []string{
		"5 dev/ 755 0:0 0,0   0",
		"3 dev/console 600 0:0 5,1   0",
		"5 tmp/ 1777 0:0 0,0   0",
		"5 usr/ 755 0:0 0,0   0",
		"5 usr/bin/ 755 0:0 0,0   0",
		"0 usr/bin/program 755 107:108 0,0  content 0",
		"5 var/ 755 0:0 0,0   0",
		"2 var/run 777 0:0 0,0 /run  0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every boot of the test guest shows that the kernel accepts a whole archive.
func TestACPIOIsWhatTheKernelReads(t *testing.T) {
	f := New()
	f.File("/abc", 0o640, []byte("hello"))
	f.Own("/abc", 1, 2)
	var archive bytes.Buffer
	if err := f.WriteCPIO(&archive); err != nil {
		t.Fatal(err)
	}
	want := "070701" + "00000001" + "000081A0" + "00000001" + "00000002" + "00000001" + "00000000" +
		"00000005" + "00000000" + "00000000" + "00000000" + "00000000" + "00000004" + "00000000" +
		"abc\x00" + "\x00\x00" + "hello" + "\x00\x00\x00" +
		"070701" + "00000000" + "00008000" + "00000000" + "00000000" + "00000001" + "00000000" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000000" + "0000000B" + "00000000" +
		"TRAILER!!!\x00" + "\x00\x00\x00"
	if archive.String() != want {
		t.Errorf("got\n%q\nwant\n%q", archive.String(), want)
	}
}

func TestAFolderHoldsTheFiles(t *testing.T) {
	f := New()
	f.Symlink("/a", "bin")
	f.File("/bin/program", 0o755, []byte("content"))
	f.Symlink("/sh", "bin/program")
	f.Dir("/tmp", 0o777|fs.ModeSticky)
	root := filepath.Join(t.TempDir(), "root")
	if err := f.WriteFolder(root); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "sh")); err != nil || string(data) != "content" {
		t.Errorf("through the link: %q, %v", data, err)
	}
	for name, want := range map[string]fs.FileMode{"bin/program": 0o755, "tmp": fs.ModeDir | fs.ModeSticky | 0o777} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if err := sample().WriteFolder(t.TempDir()); err == nil || !strings.Contains(err.Error(), "a device can't be in a folder") {
		t.Errorf("a device: got the error %v", err)
	}
}
