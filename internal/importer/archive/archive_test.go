package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

func archive(t *testing.T, entries ...tar.Header) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, entry := range entries {
		content := entry.Name
		if entry.Typeflag == tar.TypeReg {
			entry.Size = int64(len(content))
		}
		entry.Mode = 0o640
		if err := w.WriteHeader(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(out.Bytes())
}

func TestFilesFoldersAndLinksArrive(t *testing.T) {
	dir := t.TempDir()
	written, err := Unpack(archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "etc/", Typeflag: tar.TypeDir},
		tar.Header{Name: "etc/hosts", Typeflag: tar.TypeReg},
		tar.Header{Name: "a/folder/that/is/not/named", Typeflag: tar.TypeReg},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "etc/hosts"},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "etc/hosts"},
		tar.Header{Name: "etc/hosts.2", Typeflag: tar.TypeReg},
	), dir, 1<<20)
	if err != nil || written != int64(len("etc/hosts")+len("a/folder/that/is/not/named")+len("etc/hosts.2")) {
		t.Errorf("got %d, %v", written, err)
	}
	for name, want := range map[string]string{"etc/hosts": "etc/hosts", "link": "etc/hosts", "hard": "etc/hosts", "a/folder/that/is/not/named": "a/folder/that/is/not/named"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestNothingIsWrittenOutsideOfTheClaim(t *testing.T) {
	outside := t.TempDir()
	for name, test := range map[string]struct {
		entries []tar.Header
		reason  transfer.Reason
	}{
		"a name with ..":             {[]tar.Header{{Name: "a/../../evil", Typeflag: tar.TypeReg}}, transfer.ReasonUnsafeImage},
		"a file through a link":      {[]tar.Header{{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/evil", Typeflag: tar.TypeReg}}, transfer.ReasonUnsafeImage},
		"a folder through a link":    {[]tar.Header{{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/evil/", Typeflag: tar.TypeDir}}, transfer.ReasonUnsafeImage},
		"a hard link through a link": {[]tar.Header{{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "passwd", Typeflag: tar.TypeLink, Linkname: "out/passwd"}}, transfer.ReasonUnsafeImage},
		"a device":                   {[]tar.Header{{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}}, transfer.ReasonUnsafeImage},
		"more than was asked for":    {[]tar.Header{{Name: strings.Repeat("x", 90), Typeflag: tar.TypeReg}}, transfer.ReasonTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Unpack(archive(t, test.entries...), t.TempDir(), 80)
			if err == nil || job.FaultOf(err).Reason != test.reason {
				t.Errorf("got the error %v", err)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside are %v, %v", left, err)
			}
		})
	}
}

func TestAnAbsoluteNameIsBelowTheClaim(t *testing.T) {
	dir := t.TempDir()
	if _, err := Unpack(archive(t, tar.Header{Name: "/etc/shadow", Typeflag: tar.TypeReg}), dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etc/shadow")); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNoArchiveIsRefused(t *testing.T) {
	for name, content := range map[string][]byte{"nothing": {}, "text": bytes.Repeat([]byte("text"), 1000)} {
		_, err := Unpack(bytes.NewReader(content), t.TempDir(), 1<<20)
		if err == nil || job.FaultOf(err).Reason != transfer.ReasonInvalidImage {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

func TestClearLeavesOnlyWhatTheFileSystemHasOfItself(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), os.Mkdir(filepath.Join(dir, "lost+found"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := Clear(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := fs.Glob(os.DirFS(dir), "*"); err != nil || len(left) != 1 || left[0] != "lost+found" {
		t.Errorf("there are %q, %v", left, err)
	}
}
