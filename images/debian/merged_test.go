package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestATreeWithoutTopFoldersGetsLinksToThem(t *testing.T) {
	for name, c := range map[string]struct {
		folders []string
		links   map[string]string
		merged  bool
	}{
		"a newer release":   {[]string{"usr/bin", "usr/lib", "usr/lib64"}, map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": ""}, true},
		"an older one":      {[]string{"usr/bin", "bin", "lib", "usr/lib"}, map[string]string{"bin": "", "lib": ""}, false},
		"no folders at all": {nil, map[string]string{"bin": "", "lib": "", "lib64": "", "sbin": ""}, false},
	} {
		tree := Tree{Root: t.TempDir()}
		for _, folder := range c.folders {
			if err := os.MkdirAll(tree.Path(folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := mergeUsr(tree.Root); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for link, want := range c.links {
			if got, _ := os.Readlink(tree.Path(link)); got != want {
				t.Errorf("%s: /%s leads to %q, want %q", name, link, got, want)
			}
		}
		if got := tree.Merged(); got != c.merged {
			t.Errorf("%s: merged %t, want %t", name, got, c.merged)
		}
	}
}

func TestACompressedModuleIsReadLikeAnother(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "a.ko")
	if err := os.WriteFile(plain, []byte("module"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("xz", "--keep", plain).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []string{plain, plain + ".xz"} {
		if got, err := ReadModule(t.Context(), file); err != nil || string(got) != "module" {
			t.Errorf("%s: got %q, %v", file, got, err)
		}
		if got := PlainModule(file); got != plain {
			t.Errorf("%s: its name is %s", file, got)
		}
		if got := FindModule(plain); got != plain {
			t.Errorf("%s is found", got)
		}
	}
	if err := os.Remove(plain); err != nil {
		t.Fatal(err)
	}
	if got := FindModule(plain); got != plain+".xz" {
		t.Errorf("%s is found", got)
	}
	for _, file := range []string{plain + "none", plain + "none.xz"} {
		if got, err := ReadModule(t.Context(), file); err == nil {
			t.Errorf("%s: got %q", file, got)
		}
	}
}
