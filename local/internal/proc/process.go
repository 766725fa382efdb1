// Package proc runs long-lived programs: it starts them, reports when they are ready, restarts them when they
// die, and adopts processes of an earlier supervisor. It must not know the programs.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Process has a pidfd: it need not be our child, and its PID can't be mistaken for a later process's.
type Process struct {
	PID  int
	file *os.File
}

// Open opens a running process.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	return &Process{PID: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Wait returns nil when the process has died, or the context's error.
func (p *Process) Wait(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watching process %d: %w", p.PID, err)
	}
	// Clear a deadline from an earlier Wait.
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watching process %d: %w", p.PID, err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted // the deadline must not reach the next Wait
		}
	}()
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("watching process %d: %w", p.PID, err)
	}
	return nil
}

// Signal ignores that the process has died.
func (p *Process) Signal(sig unix.Signal) error {
	raw, err := p.file.SyscallConn()
	var sent error
	if err == nil {
		err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	}
	if errors.Is(sent, unix.ESRCH) {
		sent = nil // it has ended
	}
	if err := errors.Join(err, sent); err != nil {
		return fmt.Errorf("sending %s to process %d: %w", unix.SignalName(sig), p.PID, err)
	}
	return nil
}

// Stop sends SIGTERM, and SIGKILL after grace.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := p.Wait(ctx); err == nil {
		return nil
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	return p.Wait(context.Background())
}

// Close releases the process without a signal, and reaps a dead child.
func (p *Process) Close() (status string) {
	status = "status unknown"
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(p.PID, &ws, unix.WNOHANG, nil); err == nil && pid == p.PID {
		if status = fmt.Sprintf("exit status %d", ws.ExitStatus()); ws.Signaled() {
			status = "signal: " + ws.Signal().String()
		}
	}
	_ = p.file.Close() // closing a pidfd has no effect on the process
	return status
}

// Spec is the command of a program.
type Spec struct {
	Path string
	// Argv includes the process's name.
	Argv []string
	// Env is whole: nothing is inherited.
	Env []string
	Log string
	// Attr is for programs with their own namespaces.
	Attr *syscall.SysProcAttr
	// Files are descriptors from 3 on.
	Files []*os.File
}

// Start starts a program with its log.
func Start(s Spec) (*Process, error) {
	log, err := openLog(s.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Cmd{
		Path: s.Path, Args: s.Argv, Env: append([]string{}, s.Env...), Dir: "/",
		Stdout: log, Stderr: log, SysProcAttr: s.Attr, ExtraFiles: s.Files,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Argv[0], err)
	}
	pid := cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		return nil, fmt.Errorf("letting go of process %d: %w", pid, err)
	}
	return Open(pid)
}

// maxLog is the size at which a log is rotated when its writer starts.
const maxLog = 32 << 20

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("putting the log %s aside: %w", path, err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	return f, nil
}

// Find returns the process with exactly this executable and these arguments. One whose executable a new build has
// replaced must be restarted and does not count.
func Find(pids []int, path string, argv []string) (pid int, found bool) {
	return FindWhere(pids, func(pid int) bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && exe == path && slices.Equal(Argv(pid), argv)
	})
}

// FindWhere returns the process among pids that matches and is not a fresh fork of another match.
func FindWhere(pids []int, matches func(pid int) bool) (pid int, found bool) {
	matching := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return !matches(pid) })
	// A forked child has its parent's executable and arguments until it calls exec; a process that is gone may have been
	// one.
	i := slices.IndexFunc(matching, func(pid int) bool {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return false
		}
		stat, err := process.Stat()
		return err == nil && !slices.Contains(matching, stat.PPID)
	})
	if i < 0 {
		return 0, false
	}
	return matching[i], true
}

// Argv returns the command line of a process, nil if it is gone.
func Argv(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
}

// Program returns the program in a command line. The drydock executable is several programs, named by the first
// argument.
func Program(argv []string) string {
	switch {
	case len(argv) > 1 && argv[0] == "drydock":
		return argv[1]
	case len(argv) > 0:
		return filepath.Base(argv[0])
	}
	return ""
}

// Outdated reports whether a process's executable was replaced since its start.
func Outdated(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}
