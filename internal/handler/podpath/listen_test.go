package podpath

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
)

func exchange(t *testing.T, l *Listener, dir *Dir) {
	t.Helper()
	conn, err := dir.Dial(t.Context(), l.name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, 5)
	if _, err := io.ReadFull(accepted, heard); err != nil || string(heard) != "hello" {
		t.Errorf("heard is %q: %v", heard, err)
	}
	if pid, err := PeerPID(accepted); err != nil || pid != os.Getpid() {
		t.Errorf("the peer is process %d: %v", pid, err)
	}
}

func TestASocketIsForThePodsUserAndGoesWithItsListener(t *testing.T) {
	dir := open(t, t.TempDir())
	var labeled string
	dir.LabelNew(func(path string) error {
		info, err := os.Stat(path)
		if err == nil && info.Mode()&os.ModeSocket != 0 {
			labeled = path
		}
		return err
	})
	owner := os.Geteuid()
	if owner == 0 {
		owner = layout.QEMUUser
	}
	l, err := dir.Listen(t.Context(), layout.MigrationSocket, owner)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir.path, layout.MigrationSocket)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owned := info.Sys().(*syscall.Stat_t); info.Mode() != os.ModeSocket|0o600 || int(owned.Uid) != owner || int(owned.Gid) != owner {
		t.Errorf("the socket is %v of user %d:%d", info.Mode(), owned.Uid, owned.Gid)
	}
	if labeled == "" {
		t.Error("the socket was not labeled")
	}
	exchange(t, l, dir)
	// The folder may be closed before.
	dir.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end there is still a socket: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection after the end: %v", err)
	}
	if err := l.Close(); err == nil {
		t.Error("closed twice without an error")
	}
}

func TestASocketIsForNobodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	// Every user can reach a folder below /tmp.
	path, err := os.MkdirTemp("/tmp", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := open(t, path).Listen(t.Context(), "s", layout.QEMUUser)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for user, allowed := range map[uint32]bool{layout.QEMUUser: true, 108: false} {
		program := exec.Command("/bin/bash", "-c", `test -w "$0"`, filepath.Join(path, "s"))
		program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if err := program.Run(); (err == nil) != allowed {
			t.Errorf("user %d: %v", user, err)
		}
	}
}

// A killed virt-handler removes nothing.
func TestTheNextListenerReplacesWhatAKilledOneHasLeft(t *testing.T) {
	dir := open(t, t.TempDir())
	abandoned, err := dir.Listen(t.Context(), "s", os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	_ = abandoned.UnixListener.Close()
	l, err := dir.Listen(t.Context(), "s", os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	exchange(t, l, dir)
	// If the earlier one closes after all, it must leave its successor's alone.
	if err := abandoned.remove(); err != nil {
		t.Error(err)
	}
	exchange(t, l, dir)
}

func TestNothingPlantedAtASocketsNameIsFollowedOrRemoved(t *testing.T) {
	outside := t.TempDir()
	for name, plant := range map[string]func(path string) error{
		"a link to nowhere":     func(path string) error { return os.Symlink(filepath.Join(outside, "made"), path) },
		"a link to a folder":    func(path string) error { return os.Symlink(outside, path) },
		"a file":                func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a folder":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a FIFO":                func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link to a socket":    func(path string) error { return os.Symlink("launcher.sock", path) },
		"a hard link to a file": func(path string) error { return os.Link(filepath.Join(filepath.Dir(path), "file"), path) },
	} {
		inside := t.TempDir()
		if err := os.WriteFile(filepath.Join(inside, "file"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(inside, "s")
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := open(t, inside).Listen(t.Context(), "s", os.Geteuid())
		if err == nil || !strings.Contains(err.Error(), "something that is no socket has the name") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = l.Close()
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s is not what it was: %v", name, err)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Errorf("%s: made outside was %v, %v", name, left, err)
		}
	}
	if _, err := open(t, t.TempDir()).Listen(t.Context(), "../s", os.Geteuid()); err == nil || !strings.Contains(err.Error(), "more than one part") {
		t.Errorf("a name of two parts: %v", err)
	}
}

// A file that a process of the pod puts in the socket's place must be left alone, and a failed listener must leave no
// name.
func TestASocketThatWasExchangedIsNotGivenAway(t *testing.T) {
	dir := open(t, t.TempDir())
	l, err := dir.Listen(t.Context(), "s", os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir.path, "s")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := dir.find("s", unix.O_NOFOLLOW)
	if err != nil {
		t.Fatal(err)
	}
	defer found.close()
	exchanged := &Listener{dir: dir, name: "s", made: found}
	if err := exchanged.chown(os.Geteuid()); err == nil || !strings.Contains(err.Error(), "exchanged for something else") {
		t.Errorf("giving it away: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "x" {
		t.Errorf("after the end it is %q: %v", data, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("no label")
	dir.LabelNew(func(string) error { return refusal })
	if _, err := dir.Listen(context.Background(), "s", os.Geteuid()); !errors.Is(err, refusal) {
		t.Errorf("without a label: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket without its label is left: %v", err)
	}
}
