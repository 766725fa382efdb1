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

// startChild starts a program without standard input. The inherited files, from inheritedFD on, remain the caller's.
func startChild(name string, argv []string, log io.Writer, children *reaper, inherited ...*os.File) (*child, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("making %s's standard input: %w", name, err)
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making %s's standard error: %w", name, err)
	}
	defer write.Close()
	c := &child{stderr: &stderrtail.Tail{Also: log}, drained: make(chan struct{}), gone: make(chan struct{})}
	files := []uintptr{null.Fd(), write.Fd(), write.Fd()}
	for _, f := range inherited {
		files = append(files, f.Fd())
	}
	c.pid, c.ended, err = fork(argv, files, children, c.gone)
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
func fork(argv []string, files []uintptr, children *reaper, gone <-chan struct{}) (pid int, ended <-chan syscall.WaitStatus, err error) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		pid, ended, err = children.start(func() (int, error) {
			return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
				Files: files, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"},
				Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
			})
		})
		failed := err != nil
		if failed {
			err = fmt.Errorf("starting %s: %w", argv[0], err)
		}
		close(started)
		if !failed {
			<-gone
		}
	}()
	<-started
	return pid, ended, err
}
