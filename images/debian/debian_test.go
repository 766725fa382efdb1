package debian

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/shipped"
)

func TestAListHasNamesAndComments(t *testing.T) {
	got := ParseList("# head\none # the first\n\n  two three\n")
	if want := []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestATreeIsTheSameHoweverItsPackagesAreListed(t *testing.T) {
	if treeKey([]string{"a", "b"}) != treeKey([]string{"b", "a", "b"}) {
		t.Error("the order of packages changes the tree")
	}
	if treeKey([]string{"a", "b"}) == treeKey([]string{"a"}) {
		t.Error("a package more does not change the tree")
	}
}

func makeTree(t *testing.T) Tree {
	t.Helper()
	tree := Tree{Root: t.TempDir()}
	if err := os.MkdirAll(tree.Path("/lib64"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree.Path("/lib64/real"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"absolute": "/lib64/real", "relative": "real", "twice": "/lib64/absolute",
		"upwards": "../../lib64/real", "broken": "/lib64/none", "circle": "circle",
	} {
		if err := os.Symlink(target, tree.Path("/lib64/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func TestLinksAreFollowedInsideTheTree(t *testing.T) {
	tree := makeTree(t)
	for _, name := range []string{"real", "absolute", "relative", "twice", "upwards"} {
		if got, err := tree.Real("/lib64/" + name); err != nil || got != tree.Path("/lib64/real") {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"broken", "circle", "missing"} {
		if got, err := tree.Real("/lib64/" + name); err == nil {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestAPatternWithoutAMatchIsAnError(t *testing.T) {
	tree := makeTree(t)
	if got, err := tree.Glob("/lib64/rea*"); err != nil || !slices.Equal(got, []string{"/lib64/real"}) {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := tree.Glob("/lib64/*.so")
	if err == nil || err.Error() != "looking for /lib64/*.so in the Debian packages: no such file" {
		t.Errorf("got the error %v", err)
	}
}

// Its libraries need others.
func TestAProgramComesWithItsLibrariesAndTheirs(t *testing.T) {
	libraries, err := Tree{Root: shipped.File(t, "/")}.Libraries(layout.QEMUImgBinary)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"libc.so.6", "ld-linux-x86-64.so.2", "libgnutls.so.30", "libnettle.so.8"} {
		if !slices.ContainsFunc(libraries, func(path string) bool { return filepath.Base(path) == want }) {
			t.Errorf("qemu-img lacks %s; it has %s", want, strings.Join(libraries, " "))
		}
	}
}

func TestALibraryThatIsNotThereIsNamed(t *testing.T) {
	tree := Tree{Root: t.TempDir()}
	if err := os.MkdirAll(tree.Path("/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(shipped.File(t, layout.QEMUImgBinary))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree.Path("/bin/qemu-img"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = tree.Libraries("/bin/qemu-img")
	if err == nil || !strings.HasPrefix(err.Error(), "following /bin/qemu-img: library ") {
		t.Errorf("got the error %v", err)
	}
}
