package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// initProcess is the guest's first process. It starts guestd, reaps orphans, and shuts the guest down on the signals
// that busybox's poweroff, halt and reboot send. It is separate from guestd, because a process that reaps orphans also
// reaps the children of others.
func initProcess(context.Context, []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM, unix.SIGINT)
	// The kernel then sends SIGINT for ctrl-alt-del instead of restarting at once.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		return fmt.Errorf("asking for ctrl-alt-del: %w", err)
	}
	worker := exec.Command("/sbin/guestd")
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	if err := worker.Start(); err != nil {
		return fmt.Errorf("starting guestd: %w", err)
	}
	for received := range signals {
		switch received {
		case unix.SIGCHLD:
			if status, ended := reap(worker.Process.Pid); ended {
				say("guestd has ended: %s", describe(status))
			}
		case unix.SIGTERM, unix.SIGINT:
			return end(restart)
		default:
			return end(powerOff)
		}
	}
	return nil
}

// reap reaps all children that ended, and returns the status of pid if it was one of them.
func reap(pid int) (status unix.WaitStatus, ended bool) {
	for {
		var how unix.WaitStatus
		child, err := unix.Wait4(-1, &how, unix.WNOHANG, nil)
		if err != nil || child <= 0 {
			return status, ended
		}
		if child == pid {
			status, ended = how, true
		}
	}
}

// A killed process ran into the kernel's lack of memory: nobody else kills here.
func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
