package qemutree

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"drydock.dev/drydock/images/debian"
)

// cacheWithPackages returns an empty cache that need not unpack the packages of `make qemu` again.
func cacheWithPackages(t *testing.T) string {
	t.Helper()
	const shared = "../../build/cache"
	if _, err := Make(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	unpacked, err := filepath.Glob(shared + "/debian-*")
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, folder := range unpacked {
		target, err := filepath.Abs(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(cache, filepath.Base(folder))); err != nil {
			t.Fatal(err)
		}
	}
	return cache
}

// Two makes at once must make the same tree, and a later one keeps it.
func TestATreeIsMadeOnce(t *testing.T) {
	cache := cacheWithPackages(t)
	var trees [2]string
	var making sync.WaitGroup
	for i := range trees {
		making.Go(func() {
			var err error
			if trees[i], err = Make(t.Context(), cache); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	if trees[0] != trees[1] {
		t.Errorf("there are two trees: %q", trees)
	}
	before, err := os.Stat(trees[0])
	if err != nil {
		t.Fatal(err)
	}
	again, err := Make(t.Context(), cache)
	if err != nil || again != trees[0] {
		t.Errorf("the next is %s, %v", again, err)
	}
	if after, err := os.Stat(again); err != nil || !os.SameFile(before, after) {
		t.Errorf("the tree was made again: %v", err)
	}
	if left, err := filepath.Glob(cache + "/making-*"); err != nil || len(left) > 0 {
		t.Errorf("these are left: %q, %v", left, err)
	}
	everyProgramRuns(t, trees[0])
	nothingOfTheMachineIsLoaded(t, trees[0])
}

func everyProgramRuns(t *testing.T, tree string) {
	t.Helper()
	programs, err := os.ReadDir(filepath.Join(tree, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, program := range programs {
		names = append(names, program.Name())
		cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "bin", program.Name()), "--version")
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil || !regexp.MustCompile(`\d+\.\d+`).Match(out) {
			t.Errorf("%s: %v; it says %s", program.Name(), err, out)
		}
	}
	if want := "qemu-ga qemu-img qemu-io qemu-system-x86_64 swtpm virtiofsd"; strings.Join(names, " ") != want {
		t.Errorf("the programs are %s, want %s", names, want)
	}
}

var library = regexp.MustCompile(`\S+\.so\b\S*`)

// QEMU has its name, and its libraries, modules and firmware are the tree's.
func nothingOfTheMachineIsLoaded(t *testing.T, tree string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "bin", "qemu-system-x86_64"), "-machine", "q35", "-accel", "tcg",
		"-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio", "-device", "virtio-gpu-pci", "-device", "VGA")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	// QEMU answers when its machine is complete.
	if _, err := input.Write([]byte(`{"execute":"qmp_capabilities"}`)); err != nil {
		t.Fatal(err)
	}
	for answers := bufio.NewScanner(output); answers.Text() != `{"return": {}}`; {
		if !answers.Scan() {
			t.Fatalf("QEMU ends: %v", answers.Err())
		}
	}
	process := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	if name, err := os.ReadFile(process + "comm"); err != nil || string(name) != "qemu-system-x86\n" {
		t.Errorf("QEMU's process has the name %s, %v", name, err)
	}
	maps, err := os.ReadFile(process + "maps")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(maps, []byte("/hw-display-virtio-gpu.so")) {
		t.Error("QEMU has not loaded its modules")
	}
	for _, loaded := range library.FindAllString(string(maps), -1) {
		if !strings.HasPrefix(loaded, tree) {
			t.Errorf("QEMU has loaded the machine's %s", loaded)
		}
	}
}

func TestALinkLeadsToTheNewestTree(t *testing.T) {
	dir := t.TempDir()
	cache, link := filepath.Join(dir, "cache"), filepath.Join(dir, "qemu")
	for _, folder := range []string{"cache/qemu-old", "cache/qemu-new", "cache/debian-old", "linking-killed"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("cache/qemu-old", link); err != nil {
		t.Fatal(err)
	}
	var linking sync.WaitGroup
	for range 10 {
		linking.Go(func() {
			if err := Link(filepath.Join(cache, "qemu-new"), link); err != nil {
				t.Error(err)
			}
		})
	}
	linking.Wait()
	if target, err := os.Readlink(link); err != nil || target != "cache/qemu-new" {
		t.Errorf("the link leads to %s, %v", target, err)
	}
	for folder, want := range map[string]string{dir: "cache qemu", cache: "debian-old qemu-new"} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, want %s", folder, got, want)
		}
	}
}

func TestAFileThatDebianMovedIsNamed(t *testing.T) {
	_, err := gather(debian.Tree{Root: t.TempDir()}, []string{"/usr/bin/swtpm"})
	if err == nil || err.Error() != "looking for /usr/bin/swtpm in the Debian packages: no such file" {
		t.Errorf("got the error %v", err)
	}
}
