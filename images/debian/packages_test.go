package debian

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func treeWithNote(t *testing.T, note string) Tree {
	t.Helper()
	tree := Tree{Root: t.TempDir()}
	file := tree.Path(contentsFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(note), 0o644); err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestATreeKnowsItsPackagesAndWhoseAFileIs(t *testing.T) {
	contents, err := treeWithNote(t, `package libz 1:1.2+b1 amd64
./
./lib/
./lib/x/libz.so.1
package cat 9.1-1 all
./usr/
./usr/bin/cat
./usr/bin/with space
`).Contents()
	if err != nil {
		t.Fatal(err)
	}
	cat, libz := Package{"cat", "9.1-1", "all"}, Package{"libz", "1:1.2+b1", "amd64"}
	if want := []Package{cat, libz}; !slices.Equal(contents.Packages, want) {
		t.Errorf("the packages are %v, not %v", contents.Packages, want)
	}
	for file, want := range map[string]Package{
		"/usr/bin/cat": cat, "/bin/cat": cat, "usr/bin/with space": cat, "/usr/lib/x/libz.so.1": libz, "/lib/x/libz.so.1": libz,
	} {
		if got, ok := contents.Owner(file); !ok || got != want {
			t.Errorf("%s is of %v, %v; not of %v", file, got, ok, want)
		}
	}
	for _, file := range []string{"/usr/bin", "/etc/made-here"} {
		if got, ok := contents.Owner(file); ok {
			t.Errorf("%s is of %v; it is no file of a package", file, got)
		}
	}
}

func TestTheKeyOfATreeHasTheVersionsOfItsPackages(t *testing.T) {
	keys := map[string]bool{}
	for _, note := range []string{"package cat 9.1-1 all\n", "package cat 9.1-2 all\n", "package cat 9.1-1 all\n"} {
		tree, err := treeWithNote(t, note).identified()
		if err != nil {
			t.Fatal(err)
		}
		keys[tree.Key] = true
	}
	if len(keys) != 2 {
		t.Errorf("two versions have the keys %v", keys)
	}
	if _, err := (Tree{Root: t.TempDir()}).identified(); err == nil {
		t.Error("a tree without a note has a key")
	}
}

func TestANoteThatCantBeReadIsAnError(t *testing.T) {
	for name, note := range map[string]string{
		"a file before the first package": "./bin/cat\n",
		"a package without a version":     "package cat amd64\n",
	} {
		if contents, err := treeWithNote(t, note).Contents(); err == nil {
			t.Errorf("%s is read as %v", name, contents.Packages)
		}
	}
	_, err := Tree{Root: t.TempDir()}.Contents()
	if err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a tree without a note: the error does not say what to do: %v", err)
	}
}
