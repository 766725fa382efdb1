package podpath

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestStrictFolderIsNotLeft(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := t.TempDir()
	for name, target := range map[string]string{
		"absolute": outside,
		"relative": "../" + filepath.Base(filepath.Dir(outside)) + "/outside",
		"magic":    "/proc/self/fd/0",
		"harmless": "here",
	} {
		if err := os.Symlink(target, filepath.Join(inside, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(inside, "here"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, inside)
	for _, name := range []string{"absolute", "relative", "magic", "harmless", "../outside", outside} {
		if f, err := d.File(name, unix.O_RDONLY); err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
		if _, err := d.Dial(t.Context(), name); err == nil {
			t.Errorf("%s was connected to", name)
		}
	}
	for _, name := range []string{"absolute", "harmless"} {
		if err := d.OwnFile(name, 107); err == nil {
			t.Errorf("%s was given away", name)
		}
	}
	if data, err := d.ReadFile("here", 10); err != nil || string(data) != "x" {
		t.Errorf("reading a plain file: %q, %v", data, err)
	}
	if _, err := d.ReadFile("here", 0); err == nil {
		t.Error("a file longer than the limit was read")
	}
}

func TestReadFileRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without O_NONBLOCK this would wait for a writer for ever.
	if _, err := open(t, dir).ReadFile("fifo", 10); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a FIFO gave %v", err)
	}
}

func TestCreateIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	failure := errors.New("no more words")
	if err := d.Create("a", os.Getuid(), 0o640, func(*os.File) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("the error was %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a failed creation left %v", left)
	}
	err := d.Create("a", os.Getuid(), 0o640, func(f *os.File) error {
		_, err := f.WriteString("words")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "words" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if ok, err := d.Exists("a"); !ok || err != nil {
		t.Errorf("Exists(a) = %v, %v", ok, err)
	}
	if ok, err := d.Exists("b"); ok || err != nil {
		t.Errorf("Exists(b) = %v, %v", ok, err)
	}
	if err := d.Create("../b", 0, 0o600, func(*os.File) error { return nil }); err == nil {
		t.Error("a name of two parts was accepted")
	}
}

func TestPeerOfASocket(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := open(t, dir).Dial(t.Context(), "sock")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	peer, err := OpenPeer(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if peer.PID != os.Getpid() {
		t.Errorf("the peer is process %d, not %d", peer.PID, os.Getpid())
	}
	if err := peer.BelongsTo("0f7c1e9a-0000-4000-8000-000000000000"); err == nil {
		t.Error("a process outside of the pod's cgroup was taken for the pod's")
	}
	// Links inside a container's file system must be followed, as its own process would: the kubelet makes them in
	// configMap volumes.
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "data"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if data, err := peer.Root.ReadFile(filepath.Join(dir, "link"), 10); err != nil || string(data) != "x" {
		t.Errorf("through the peer's root: %q, %v", data, err)
	}
}

func TestCgroupsOfPod(t *testing.T) {
	const uid = "0f7c1e9a-1111-4000-8000-000000000000"
	for name, tc := range map[string]struct {
		cgroups string
		want    bool
	}{
		"cgroupfs":          {"4:pids:/kubepods/burstable/pod" + uid + "/abc\n", true},
		"systemd":           {"0::/kubepods.slice/kubepods-pod0f7c1e9a_1111_4000_8000_000000000000.slice/cri-abc.scope\n", true},
		"another namespace": {"0::/../pod" + uid + "/abc\n", true},
		"another pod":       {"0::/kubepods/pod1f7c1e9a-1111-4000-8000-000000000000/abc\n", false},
		"no pod":            {"0::/system.slice/ssh.service\n", false},
	} {
		if got := cgroupsOfPod(tc.cgroups, uid); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// makeAgainAndAgain makes a folder, removes it from its root on and makes it again, faster or slower than the waiting
// code. It exists in the end.
func makeAgainAndAgain(t *testing.T, base, rel string) {
	t.Helper()
	root, _, _ := strings.Cut(rel, "/")
	for range 50 {
		if err := os.MkdirAll(filepath.Join(base, rel), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(base, root)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(base, rel), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestAwaitFollowsFoldersAsTheyAppear(t *testing.T) {
	base := t.TempDir()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()

	const rel = "uid/volumes/kubernetes.io~empty-dir/private/launcher.sock"
	const waiters = 5
	done := make(chan error, waiters)
	for range waiters {
		go func() { done <- w.Await(ctx, base, rel) }()
	}
	makeAgainAndAgain(t, base, filepath.Dir(rel))
	if err := os.WriteFile(filepath.Join(base, rel), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the file was not noticed")
		}
	}
	if len(w.users) != 0 || len(w.inotify.WatchList()) != 0 {
		t.Errorf("watches are left: %v, %v", w.users, w.inotify.WatchList())
	}
	waiting, stop := context.WithCancel(ctx)
	stop()
	if err := w.Await(waiting, base, "never"); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled wait gave %v", err)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

func TestAFolderIsMadeOnceAndGiven(t *testing.T) {
	root := t.TempDir()
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	labeled := 0
	d.LabelNew(func(string) error { labeled++; return nil })
	owner := os.Getuid()
	if owner == 0 {
		owner = 107
	}
	for range 2 {
		sub, err := d.Folder("own", owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := sub.Sync(); err != nil {
			t.Errorf("its names can't be stored: %v", err)
		}
		sub.Close()
	}
	info, err := os.Stat(filepath.Join(root, "own"))
	if err != nil || info.Mode().Perm() != 0o700 || int(info.Sys().(*syscall.Stat_t).Uid) != owner || labeled != 1 {
		t.Errorf("%v, %v; it was labeled %d times", info, err, labeled)
	}
	if err := os.Symlink("own", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file", "own/below", "..", ""} {
		if sub, err := d.Folder(name, owner); err == nil {
			sub.Close()
			t.Errorf("%q is a folder to have", name)
		}
	}
}

func TestWhatAPeerWasStartedWith(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	peer := peerOf(t, cmd, "A=1", "B=two words")
	// The kernel shows an environment only some time after the program has started.
	if _, err := in.Write([]byte("runs")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	got, err := peer.Environment()
	if err != nil || !slices.Equal(got, []string{"A=1", "B=two words"}) {
		t.Errorf("it was started with %q: %v", got, err)
	}
}

func TestAPeerMayLockMemory(t *testing.T) {
	peer := peerOf(t, exec.Command("sleep", "infinity"))
	locks := func() (is unix.Rlimit) {
		t.Helper()
		if err := unix.Prlimit(peer.PID, unix.RLIMIT_MEMLOCK, nil, &is); err != nil {
			t.Fatal(err)
		}
		return is
	}
	const most = 64 << 10
	if err := unix.Prlimit(peer.PID, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 4 << 10, Max: most}, nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ ask, want uint64 }{{16 << 10, 16 << 10}, {8 << 10, 16 << 10}, {16 << 10, 16 << 10}, {16<<10 + 1, 16<<10 + 1}, {most, most}} {
		if err := peer.LetLock(step.ask); err != nil {
			t.Fatal(err)
		}
		if is := locks(); is.Cur != step.want || is.Max != most {
			t.Errorf("asked for %d bytes, it may lock %d, and have itself lock %d", step.ask, is.Cur, is.Max)
		}
	}
	// More than the process's own limit needs CAP_SYS_RESOURCE, which not every root has.
	switch err := peer.LetLock(3 << 30); {
	case errors.Is(err, unix.EPERM):
		if is := locks(); is.Cur != most || is.Max != most {
			t.Errorf("it is refused, and may lock %d", is.Cur)
		}
	case err != nil:
		t.Error(err)
	default:
		if is := locks(); is.Cur != 3<<30 || is.Max != 3<<30 {
			t.Errorf("it may lock %d, and have itself lock %d", is.Cur, is.Max)
		}
	}
}

func peerOf(t *testing.T, cmd *exec.Cmd, environment ...string) *Peer {
	t.Helper()
	cmd.Env = environment
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := &Peer{PID: cmd.Process.Pid, pidfd: pidfd}
	t.Cleanup(func() {
		peer.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return peer
}
