package kernel

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/images/debian"
)

func TestAConfigurationThatLacksWhatWasAskedForIsRefused(t *testing.T) {
	const wanted = "# a comment\nCONFIG_A=y\nCONFIG_B=\"text\"\n"
	if err := checkConfig([]byte(wanted), []byte("CONFIG_A=y\nCONFIG_B=\"text\"\nCONFIG_C=y\n")); err != nil {
		t.Error(err)
	}
	err := checkConfig([]byte(wanted), []byte("# CONFIG_A is not set\nCONFIG_B=\"text\"\n"))
	if err == nil || !strings.Contains(err.Error(), "has not CONFIG_A=y:") {
		t.Errorf("without CONFIG_A: %v", err)
	}
}

func TestObjtoolIsLeftOut(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "arch/x86/Kconfig")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("\tselect HAVE_NMI\n\tselect HAVE_OBJTOOL\t\tif X86_64\n\tselect HAVE_JUMP_LABEL_HACK\tif HAVE_OBJTOOL\n")
	if err := withoutObjtool(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if want := "\tselect HAVE_NMI\n\tselect HAVE_JUMP_LABEL_HACK\tif HAVE_OBJTOOL\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	if err := withoutObjtool(folder); err == nil {
		t.Error("a source that does not select it is taken")
	}
}

func TestAnEditNeedsItsText(t *testing.T) {
	folder := t.TempDir()
	e := edit{file: "boot.c", old: "return no;", new: "return true;"}
	if err := e.apply(folder); err == nil {
		t.Error("a source without the file is taken")
	}
	for before, want := range map[string]string{"{ return no; }": "{ return true; }", "{}": "{}", "return no; return no;": "return no; return no;"} {
		name := filepath.Join(folder, e.file)
		if err := os.WriteFile(name, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		err := e.apply(folder)
		got, readErr := os.ReadFile(name)
		if readErr != nil || string(got) != want || (err == nil) != (before != want) {
			t.Errorf("%q became %q, want %q; %v, %v", before, got, want, err, readErr)
		}
	}
}

func sourceIn(t *testing.T, root string) {
	t.Helper()
	for name, text := range map[string]string{
		"usr/src/linux-source-6.12.tar.xz": "",
		"var/lib/dpkg/unpacked":            "package linux-source-6.12 6.12.1-1 all\n./usr/src/linux-source-6.12.tar.xz\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A kernel takes long to build, and a better comment must not cost that.
func TestCommentsAreNotInTheKey(t *testing.T) {
	for _, c := range []struct {
		write        func(io.Writer, []byte)
		first, other string
		same         bool
	}{
		{writeTokens, "func f() {\n\tg(1)\n}\n", "// f calls g.\nfunc f() {\n\t// Once.\n\n\tg(1) // only\n}\n", true},
		{writeTokens, "func f() {\n\tg(1)\n}\n", "func f() {\n\tg(2)\n}\n", false},
		{writeTokens, `var a = "b c"`, `var a = "b", "c"`, false},
		{writeOptions, "CONFIG_A=y\n", "# What a does.\n\nCONFIG_A=y\n", true},
		{writeOptions, "CONFIG_A=y\n", "CONFIG_A=m\n", false},
		{writeOptions, "CONFIG_A=y\n", "CONFIG_A=y\n# CONFIG_B is not set\n", false},
	} {
		var first, other bytes.Buffer
		c.write(&first, []byte(c.first))
		c.write(&other, []byte(c.other))
		if same := bytes.Equal(first.Bytes(), other.Bytes()); same != c.same || first.Len() == 0 {
			t.Errorf("%q and %q: the same: %t, want %t", c.first, c.other, same, c.same)
		}
	}
}

func TestTheKeyIsOfTheVersion(t *testing.T) {
	root := t.TempDir()
	sourceIn(t, root)
	_, version, err := find(debian.Tree{Root: root})
	if err != nil || version != "6.12.1-1" {
		t.Fatalf("the version is %q, %v", version, err)
	}
	key, err := buildKey(version)
	if err != nil {
		t.Fatal(err)
	}
	other, err := buildKey("6.12.2-1")
	if err != nil || key == other {
		t.Errorf("the same key %s for two versions, %v", key, err)
	}
}

func TestAKernelThatIsThereIsFoundAndKept(t *testing.T) {
	root := t.TempDir()
	tree := debian.Tree{Root: root}
	if _, err := Build(t.Context(), root, t.TempDir(), tree); err == nil {
		t.Error("a tree without a source is taken")
	}
	sourceIn(t, root)
	key, err := buildKey("6.12.1-1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "kernel-"+key, "vmlinuz")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * unusedFor)
	if err := os.Chtimes(filepath.Dir(file), long, long); err != nil {
		t.Fatal(err)
	}
	build := func() {
		t.Helper()
		if got, err := Build(t.Context(), root, t.TempDir(), tree); err != nil || got != (Kernel{File: file, Key: key}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	build()
	// Another process builds another kernel meanwhile.
	lock, err := os.OpenFile(filepath.Join(root, "kernel.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	build()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || time.Since(info.ModTime()) > unusedFor {
		t.Error("who asks for a kernel does not keep it from being removed")
	}
}

func TestAKernelIsKeptForAllCheckoutsAsLongAsItIsAskedFor(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/home/me/.cache")
	if got := Folder("build/cache"); got != "/home/me/.cache/drydock" {
		t.Errorf("kernels are kept in %s", got)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got := Folder("build/cache"); got != "build/cache" {
		t.Errorf("of a user without a folder kernels are kept in %s", got)
	}
	cache, now := t.TempDir(), time.Now()
	asked, unasked := filepath.Join(cache, "kernel-aaaaaaaaaaaa"), filepath.Join(cache, "kernel-bbbbbbbbbbbb")
	for folder, at := range map[string]time.Time{asked: now.Add(-unusedFor + time.Hour), unasked: now.Add(-unusedFor - time.Hour)} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(folder, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnused(cache, now); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(asked); err != nil {
		t.Error("a kernel that another checkout asks for is removed")
	}
	if _, err := os.Stat(unasked); err == nil {
		t.Error("a kernel that nobody has asked for is kept")
	}
}
