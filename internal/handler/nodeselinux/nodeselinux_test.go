package nodeselinux

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/podpath"
)

const (
	ownContext = "system_u:system_r:spc_t:s0"
	process    = "system_u:system_r:container_t:s0:c12,c34"
	files      = "system_u:object_r:container_file_t:s0:c12,c34"
)

// kernel is a kernel with the test's answers that remembers the set contexts.
type kernel struct {
	known              bool
	own, process, file string
	err                error
	set                []string
}

func (k *kernel) Known() (bool, error) { return k.known, nil }
func (k *kernel) Own() (string, error) { return k.own, k.err }
func (k *kernel) OfProcess(pid int) (string, error) {
	if pid != os.Getpid() {
		return "", fmt.Errorf("asked for process %d", pid)
	}
	return k.process, k.err
}
func (k *kernel) OfFile(string) (string, error) { return k.file, k.err }
func (k *kernel) SetExec(context string) error {
	k.set = append(k.set, "exec "+context)
	return k.err
}
func (k *kernel) SetFile(path, label string) error {
	k.set = append(k.set, filepath.Base(path)+" "+label)
	return k.err
}

func TestWhereSELinuxIs(t *testing.T) {
	for name, tc := range map[string]struct {
		kernel kernel
		found  bool
	}{
		"a kernel without it":              {kernel{own: ownContext}, false},
		"built in and switched off":        {kernel{known: true, err: unix.EINVAL}, false},
		"on, and no policy is loaded":      {kernel{known: true, own: "kernel"}, false},
		"built in, and AppArmor is in use": {kernel{known: true, own: "unconfined"}, false},
		"AppArmor confines virt-handler":   {kernel{known: true, own: "cri-containerd.apparmor.d (enforce)"}, false},
		"in use":                           {kernel{known: true, own: ownContext}, true},
	} {
		node, err := Find(&tc.kernel)
		if err != nil || (node != nil) != tc.found {
			t.Errorf("%s: found %v, %v", name, node != nil, err)
		}
		if len(tc.kernel.set) > 0 {
			t.Errorf("%s: to find out, %v was set", name, tc.kernel.set)
		}
	}
}

func TestOnThisMachine(t *testing.T) {
	list, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	node, err := Find(Real{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(list), "selinuxfs") && node != nil {
		t.Error("SELinux was found in a kernel that does not have it")
	}
	context, err := os.ReadFile("/proc/self/attr/current")
	if node != nil && (err != nil || strings.Trim(string(context), "\n\x00") != node.own.String()) {
		t.Errorf("it was found as %s; the kernel says %q, %v", node.own, context, err)
	}
}

func TestTheKernelsListOfFileSystems(t *testing.T) {
	for name, tc := range map[string]struct {
		list string
		want bool
	}{
		"it is there":     {"nodev\tsysfs\nnodev\tselinuxfs\n\text4\n", true},
		"it is not":       {"nodev\tsysfs\n\text4\n", false},
		"a longer name":   {"nodev\tselinuxfs2\n", false},
		"an empty kernel": {"", false},
	} {
		path := filepath.Join(t.TempDir(), "filesystems")
		if err := os.WriteFile(path, []byte(tc.list), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := knows(path); err != nil || got != tc.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := knows("/nonexistent"); err == nil {
		t.Error("a kernel that says nothing passes for one without SELinux")
	}
}

func peer(t *testing.T) *podpath.Peer {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "launcher.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p, err := podpath.OpenPeer(conn)
	if err != nil {
		t.Skipf("this process can't be looked at: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

func find(t *testing.T, k *kernel) *Node {
	t.Helper()
	node, err := Find(k)
	if err != nil || node == nil {
		t.Fatal(err)
	}
	return node
}

func TestWhatALauncherIsKnownBy(t *testing.T) {
	p := peer(t)
	k := &kernel{known: true, own: ownContext, process: process, file: files}
	l, err := find(t, k).Launcher(p)
	if err != nil {
		t.Fatal(err)
	}
	if l.Context() != process || !l.Apart() || len(k.set) > 0 {
		t.Errorf("context %s, apart %v, and %v was set", l.Context(), l.Apart(), k.set)
	}
	if err := l.Exec(); err != nil {
		t.Error(err)
	}
	if err := l.Files()("/some/disk.img"); err != nil {
		t.Error(err)
	}
	if want := []string{"exec " + process, "disk.img " + files}; !slices.Equal(k.set, want) {
		t.Errorf("set %v, want %v", k.set, want)
	}
	for name, err := range map[string]error{"a file system without labels": unix.EOPNOTSUPP, "a refusal": unix.EACCES} {
		k.err = err
		if got := l.LabelFile("/some/disk.img"); errors.Is(err, unix.EACCES) != (got != nil) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if k.err = unix.EACCES; l.Exec() == nil {
		t.Error("a program would have been run under another context")
	}
}

func TestALauncherThatNothingIsKnownOfIsNoLauncher(t *testing.T) {
	p := peer(t)
	for name, k := range map[string]kernel{
		"no context of the process": {process: "", file: files},
		"no label of the files":     {process: process, file: ""},
		"another module's words":    {process: "unconfined", file: files},
		"a text of the pod's":       {process: process, file: files + "\nx"},
	} {
		k.known, k.own = true, ownContext
		if l, err := find(t, &k).Launcher(p); err == nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// A container runtime without SELinux gives all containers its own context.
func TestContainersWithoutContexts(t *testing.T) {
	k := &kernel{known: true, own: ownContext, process: ownContext, file: files}
	l, err := find(t, k).Launcher(peer(t))
	if err != nil || l.Apart() {
		t.Errorf("a launcher with virt-handler's own context is apart: %v", err)
	}
}

func TestWithoutSELinuxThereIsNothing(t *testing.T) {
	var l Launcher
	if l.Context() != "" || l.Apart() || l.Files() != nil {
		t.Error("a node without SELinux has contexts")
	}
}
