package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	kubeversion "k8s.io/apimachinery/pkg/util/version"
)

func TestABuildWithoutTheLinkersFlagsHasASemanticVersion(t *testing.T) {
	if _, err := kubeversion.ParseSemantic(Get().GitVersion); err != nil {
		t.Error(err)
	}
	if got := Get().GitTreeState; got != "unknown" {
		t.Errorf("the tree of a build of no known commit is %q, not unknown", got)
	}
}

func TestAVersionWithChangesIsDirty(t *testing.T) {
	defer func(v, c string) { Version, Commit = v, c }(Version, Commit)
	Commit = "0123"
	for version, want := range map[string]string{"v0.1.0": "clean", "v0.1.0+dirty": "dirty"} {
		Version = version
		if got := Get().GitTreeState; got != want {
			t.Errorf("the tree of %s is %q, not %q", version, got, want)
		}
	}
}

type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t: t, dir: unpacked(t)}
	c.git("init", "-q")
	c.git("add", ".")
	c.commit("2026-03-01T01:30:00+02:00")
	return c
}

// unpacked is a source tree without git.
func unpacked(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile("../../../hack/version")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "hack"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hack", "version"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func (c checkout) git(args ...string) string {
	c.t.Helper()
	return run(c.t, c.dir, []string{"GIT_CONFIG_GLOBAL=/dev/null"}, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.c"}, args...)...)
}

func (c checkout) commit(date string) {
	c.t.Helper()
	run(c.t, c.dir, []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date},
		"git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "change")
}

func (c checkout) version() string {
	c.t.Helper()
	got := run(c.t, c.dir, []string{"VERSION="}, "hack/version")
	if _, err := kubeversion.ParseSemantic(got); err != nil {
		c.t.Error(err)
	}
	return got
}

func (c checkout) pseudo(older string) string {
	c.t.Helper()
	date, err := time.Parse(time.RFC3339, c.git("show", "-s", "--format=%cI", "HEAD"))
	if err != nil {
		c.t.Fatal(err)
	}
	return module.PseudoVersion("v0", older, date, c.git("rev-parse", "HEAD")[:12])
}

func TestTheVersionIsGosPseudoVersionOrTheTag(t *testing.T) {
	c := newCheckout(t)
	expect := func(when, want string) {
		t.Helper()
		if got := c.version(); got != want {
			t.Errorf("%s the version is %s, not %s", when, got, want)
		}
	}
	expect("without a tag", c.pseudo(""))
	c.git("tag", "v0.2.9")
	c.git("tag", "benchmark-7")
	expect("at a tag", "v0.2.9")
	c.commit("2026-03-02T00:00:00Z")
	expect("after a tag", c.pseudo("v0.2.9"))
	c.git("tag", "-a", "-m", "candidate", "v0.3.0-rc.1")
	expect("at an annotated tag", "v0.3.0-rc.1")
	c.commit("2026-03-03T00:00:00Z")
	expect("after a candidate", c.pseudo("v0.3.0-rc.1"))
	if err := os.WriteFile(filepath.Join(c.dir, "hack", "version"), []byte("changed"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.git("checkout", "-q", "hack/version")
	expect("after a change was taken back", c.pseudo("v0.3.0-rc.1"))
}

func TestAChangedFileMakesTheVersionDirty(t *testing.T) {
	c := newCheckout(t)
	file, err := os.OpenFile(filepath.Join(c.dir, "hack", "version"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("# changed\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := c.version(), c.pseudo("")+"+dirty"; got != want {
		t.Errorf("the version is %s, not %s", got, want)
	}
}

func TestASourceTreeWithoutGitHasAVersion(t *testing.T) {
	outer := newCheckout(t)
	inner := filepath.Join(outer.dir, "unpacked")
	if err := os.Rename(unpacked(t), inner); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"alone": unpacked(t), "inside of another checkout": inner} {
		c := checkout{t: t, dir: dir}
		if got := c.version(); got != "v0.0.0-devel" {
			t.Errorf("%s its version is %s, not v0.0.0-devel", name, got)
		}
	}
}

func TestTheLinkerIsToldVersionCommitAndDate(t *testing.T) {
	c := newCheckout(t)
	got := run(t, c.dir, []string{"VERSION=v1.2.3"}, "hack/version", "a.b/version")
	want := "-X a.b/version.Version=v1.2.3 -X a.b/version.Commit=" + c.git("rev-parse", "HEAD") + " -X a.b/version.Date=2026-02-28T23:30:00Z"
	if got != want {
		t.Errorf("the flags are\n%s, not\n%s", got, want)
	}
}
