package podpath

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func listening(t *testing.T, path string) (connections func() int) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	counted := make(chan int)
	go func() {
		n := 0
		for {
			conn, err := l.Accept()
			if err != nil {
				counted <- n
				return
			}
			n++
			_ = conn.Close()
		}
	}()
	return func() int {
		_ = l.Close()
		return <-counted
	}
}

// GHSA-7jcp-v9w4-wjmg: a process in the pod replaces the console's socket by a symlink to the container
// runtime's, and a user opens the console.
func TestGHSA7jcpv9w4wjmgAConsoleIsNoWayToTheRuntimesSocket(t *testing.T) {
	node, private := t.TempDir(), t.TempDir()
	runtime := filepath.Join(node, "containerd.sock")
	connections := listening(t, runtime)
	d := open(t, private)
	for what, plant := range map[string]func(at string) error{
		"a symlink":                func(at string) error { return os.Symlink(runtime, at) },
		"a symlink that is a path": func(at string) error { return os.Symlink("../../../../../.."+runtime, at) },
		"a link to a link": func(at string) error {
			link := filepath.Join(private, "link")
			if err := os.Symlink(runtime, link); err != nil {
				return err
			}
			return os.Symlink("link", at)
		},
		"the way through a process": func(at string) error { return os.Symlink("/proc/self/root"+runtime, at) },
	} {
		console := filepath.Join(private, "serial0.sock")
		if err := plant(console); err != nil {
			t.Fatal(err)
		}
		if conn, err := d.Dial(t.Context(), "serial0.sock"); err == nil {
			_ = conn.Close()
			t.Errorf("%s: it was connected to", what)
		}
		if err := os.Remove(console); err != nil {
			t.Fatal(err)
		}
	}
	// Now the folder itself is replaced.
	pod := t.TempDir()
	if err := os.Symlink(node, filepath.Join(pod, "private")); err != nil {
		t.Fatal(err)
	}
	if sub, err := open(t, pod).Strict("private"); err == nil {
		sub.Close()
		t.Error("a folder that is a symlink was opened")
	}
	if n := connections(); n > 0 {
		t.Errorf("the runtime was connected to %d times", n)
	}
}

// GHSA-2r4r-5x78-mvqf: the launcher's socket is replaced by a symlink, and the owner of the node's files would
// change.
func TestGHSA2r4r5x78mvqfNoFileOfTheNodeChangesItsOwner(t *testing.T) {
	needRoot(t)
	node, private := t.TempDir(), t.TempDir()
	victim := filepath.Join(node, "shadow")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, root := open(t, private), open(t, private)
	root.resolve = inRoot
	for _, name := range []string{"launcher.sock", "disk.img", "kvm"} {
		for _, target := range []string{victim, "../../../../../.." + victim, "/proc/self/root" + victim} {
			link := filepath.Join(private, name)
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []*Dir{d, root} {
				if dir.OwnFile(name, 107) == nil || dir.OwnDevice(name, 107) == nil {
					t.Errorf("%s -> %s: it was given away", name, target)
				}
			}
			if conn, err := d.Dial(t.Context(), name); err == nil {
				_ = conn.Close()
				t.Errorf("%s -> %s: it was connected to", name, target)
			}
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(victim, &st); err != nil || st.Uid != 0 || st.Gid != 0 {
		t.Errorf("the file belongs to %d:%d (%v)", st.Uid, st.Gid, err)
	}
}
