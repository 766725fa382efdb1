package launcher

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"drydock.dev/drydock/internal/launcher/stderrtail"
)

// child is QEMU or a companion. It dies with the launcher.
type child struct {
	pid     int
	ended   <-chan syscall.WaitStatus
	stderr  *stderrtail.Tail
	drained chan struct{} // closed when all standard error is in the tail
	gone    chan struct{} // the receiver of ended closes it
}

const inheritedFD = 3

// childProgram is a program and its arguments. writes is the only folder in which it may change anything, "" for no such limit.
type childProgram struct {
	name   string
	argv   []string
	writes string
}

// startChild starts a program without standard input. The inherited files, from inheritedFD on, remain the caller's.
func startChild(p childProgram, log io.Writer, children *reaper, inherited ...*os.File) (*child, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("making %s's standard input: %w", p.name, err)
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making %s's standard error: %w", p.name, err)
	}
	defer write.Close()
	c := &child{stderr: &stderrtail.Tail{Also: log}, drained: make(chan struct{}), gone: make(chan struct{})}
	files := []uintptr{null.Fd(), write.Fd(), write.Fd()}
	for _, f := range inherited {
		files = append(files, f.Fd())
	}
	c.pid, c.ended, err = fork(p, files, children, c.gone)
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	go func() {
		defer close(c.drained)
		defer read.Close()
		_, _ = io.Copy(c.stderr, read)
	}()
	return c, nil
}

// fork keeps its thread until the program has ended and gone is closed: the kernel sends Pdeathsig when the forking
// thread dies.
func fork(p childProgram, files []uintptr, children *reaper, gone <-chan struct{}) (pid int, ended <-chan syscall.WaitStatus, err error) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if p.writes == "" {
			defer runtime.UnlockOSThread() // A confined thread ends with this goroutine.
		}
		pid, ended, err = children.start(func() (int, error) {
			if p.writes != "" {
				if err := confine(p.writes); err != nil {
					return 0, err
				}
			}
			return syscall.ForkExec(p.argv[0], p.argv, &syscall.ProcAttr{
				Files: files, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"},
				Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
			})
		})
		failed := err != nil
		if failed {
			err = fmt.Errorf("starting %s: %w", p.argv[0], err)
		}
		close(started)
		if !failed {
			<-gone
		}
	}()
	<-started
	return pid, ended, err
}
