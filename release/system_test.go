//go:build release

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The release is tested as a user has it: unpacked into an empty folder, with the system's programs on the PATH and no
// Go.
const userPath = "/usr/sbin:/usr/bin:/sbin:/bin"

func unpack(t *testing.T) string {
	t.Helper()
	path := os.Getenv("DRYDOCK_RELEASE")
	if path == "" {
		t.Fatal("DRYDOCK_RELEASE does not name the archive to test: make test-release sets it")
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", path, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("unpacking %s: %v: %s", path, err, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the archive has not one folder: %v, %v", entries, err)
	}
	return filepath.Join(dir, entries[0].Name())
}

func TestTheReleaseIsWhatItsListsSay(t *testing.T) {
	dir := unpack(t)
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the checksums don't hold: %v: %s", err, out)
	}
	assertEveryFileIsListed(t, dir)
	bill, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != definitions {
			assertModules(t, bill, filepath.Join(dir, "bin", entry.Name()), entry.Name())
		}
	}
	for _, want := range []string{"pkg:deb/debian/qemu-system-x86@", "pkg:deb/debian/ca-certificates@", "pkg:deb/debian/busybox", "program:virt-launcher"} {
		if !strings.Contains(string(bill), want) {
			t.Errorf("the bill of materials does not name %s", want)
		}
	}
}

func assertEveryFileIsListed(t *testing.T, dir string) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "SHA256SUMS" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && !strings.Contains(string(sums), "  "+name+"\n") {
			t.Errorf("%s has no checksum", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// user runs the programs of an unpacked release with an otherwise empty environment.
type user struct {
	t    *testing.T
	dir  string
	data string
}

// try returns a command's standard output, followed by its standard error if it has failed.
func (u user) try(ctx context.Context, args ...string) (string, error) {
	env := []string{"-i", "PATH=" + userPath, "DRYDOCK_NAME=ddrelease", "DRYDOCK_DIR=" + u.data, "KUBECONFIG=" + u.data + "/kubeconfig"}
	cmd := exec.CommandContext(ctx, "env", append(env, args...)...)
	cmd.Dir = u.dir
	var beside strings.Builder
	cmd.Stderr = &beside
	out, err := cmd.Output()
	if err != nil {
		return string(out) + beside.String(), err
	}
	return string(out), nil
}

func (u user) must(args ...string) string {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := u.try(ctx, args...)
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func TestTheReleaseReachesTheGuestsConsoleLineWithoutGo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a cluster needs root")
	}
	data, err := os.MkdirTemp("", "ddrelease")
	if err != nil {
		t.Fatal(err)
	}
	u := user{t: t, dir: unpack(t), data: data}
	t.Cleanup(func() {
		if out, err := u.try(context.Background(), "./drydock", "down", "--purge"); err != nil {
			t.Errorf("taking the cluster down: %v: %s", err, out)
		}
		assertNothingIsLeft(t, u)
	})
	if out, err := u.try(context.Background(), "sh", "-c", "command -v go"); err == nil {
		t.Fatalf("Go is on the user's PATH, so that nothing is proved: %s", out)
	}

	began := time.Now()
	out := u.must("./drydock", "run")
	t.Logf("from the unpacked release to the guest's console line: %.1f s\n%s", time.Since(began).Seconds(), out)
	if !regexp.MustCompile(`drydock guest ready: vm-drydock uuid=`).MatchString(out) {
		t.Error("the guest's own line is not shown")
	}

	columns := u.must("./drydock", "kubectl", "get", "vm", "vm-drydock", "-o", "wide")
	t.Logf("kubectl get vm -o wide\n%s", columns)
	u.must("./virtctl", "version")

	// A second call must keep the running cluster.
	uid := u.must("./drydock", "kubectl", "get", "vmi", "vm-drydock", "-o", "jsonpath={.metadata.uid}")
	began = time.Now()
	u.must("./drydock", "run", "--no-install")
	t.Logf("a second run took %.1f s", time.Since(began).Seconds())
	if again := u.must("./drydock", "kubectl", "get", "vmi", "vm-drydock", "-o", "jsonpath={.metadata.uid}"); again != uid {
		t.Errorf("the second run replaced the guest: %s was %s", again, uid)
	}
}

func TestARunThatIsInterruptedIsCompletedByTheNext(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("a cluster needs root")
	}
	data, err := os.MkdirTemp("", "ddrelease")
	if err != nil {
		t.Fatal(err)
	}
	u := user{t: t, dir: unpack(t), data: data}
	t.Cleanup(func() {
		if out, err := u.try(context.Background(), "./drydock", "down", "--purge"); err != nil {
			t.Errorf("taking the cluster down: %v: %s", err, out)
		}
		assertNothingIsLeft(t, u)
	})
	for _, moment := range []string{"== 2 of 5", "== 3 of 5", "== 4 of 5"} {
		u.interruptAt(moment)
	}
	if out := u.must("./drydock", "run"); !strings.Contains(out, "drydock guest ready: vm-drydock") && !strings.Contains(out, "has run since before") {
		t.Errorf("the run that completes the others does not reach the guest:\n%s", out)
	}
}

// interruptAt kills a run when it prints a line.
func (u user) interruptAt(moment string) {
	u.t.Helper()
	cmd := exec.Command("./drydock", "run")
	cmd.Dir = u.dir
	cmd.Env = []string{"PATH=" + userPath, "DRYDOCK_NAME=ddrelease", "DRYDOCK_DIR=" + u.data}
	out, err := cmd.StdoutPipe()
	if err != nil {
		u.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	seen := false
	for lines := bufio.NewScanner(out); !seen && lines.Scan(); {
		seen = strings.HasPrefix(lines.Text(), moment)
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		u.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !seen {
		u.t.Errorf("the run ended before it printed %q", moment)
	}
}

func assertNothingIsLeft(t *testing.T, u user) {
	t.Helper()
	if _, err := os.Stat(u.data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data folder %s is left: %v", u.data, err)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, u.data) || strings.Contains(line, u.dir) {
			t.Errorf("a mount is left: %s", line)
		}
	}
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	programs = slices.DeleteFunc(programs, func(link string) bool {
		target, err := os.Readlink(link) // a process that has ended meanwhile is no leftover
		return err != nil || !strings.HasPrefix(target, u.dir)
	})
	if len(programs) > 0 {
		t.Error(fmt.Errorf("processes are left: %q", programs))
	}
}
