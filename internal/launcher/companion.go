package launcher

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
)

const companionEndsWithin = 5 * time.Second

// companion is a program beside QEMU, on whose socket QEMU connects when it starts. It ends with QEMU and with the launcher.
type companion struct {
	*child
	subject string // of the sentence about its failure
	// status is the exit status, valid after gone.
	status syscall.WaitStatus
}

// startCompanion starts a program that inherits its socket as inheritedFD, which listens before QEMU starts.
func startCompanion(p childProgram, subject, socket string, config Config, children *reaper) (*companion, error) {
	listener, err := companionSocket(socket)
	if err != nil {
		return nil, fmt.Errorf("making the socket of %s: %w", subject, err)
	}
	defer listener.Close()
	c, err := startChild(p, config.log().of(p.name), children, listener)
	if err != nil {
		return nil, err
	}
	return &companion{child: c, subject: subject}, nil
}

func companionSocket(path string) (*os.File, error) {
	listener, err := listen(path)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("%T is no unix socket", listener)
	}
	// Nobody listens later, so the file may stay.
	socket.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	return socket.File()
}

// accompany takes the result of a start.
func (l *launcher) accompany(c *companion, err error) error {
	if err != nil {
		return err
	}
	l.companions = append(l.companions, c)
	l.spawn(func() { l.watch(c) })
	return nil
}

// watch records the end of a companion. A guest whose companion fails continues without it (decision 440).
func (l *launcher) watch(c *companion) {
	status := <-c.ended
	<-c.drained
	c.status = status
	close(c.gone)
	if text := c.failure(); text != "" {
		l.post(func() { l.logf("%s", text) })
	}
}

// endCompanions waits until they have ended after QEMU, and kills those that don't: swtpm's state must be complete before
// the guest's end is reported. A QEMU that never answered may not be connected to them, and they don't notice its end then.
func (l *launcher) endCompanions() {
	patience := companionEndsWithin
	if !l.guest.started {
		patience = 0
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, c := range l.companions {
		select {
		case <-c.gone:
			continue
		case <-timer.C:
			timer.Reset(0)
		}
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
		<-c.gone
	}
}

func (c *companion) failure() string {
	select {
	case <-c.gone:
	default:
		return ""
	}
	switch {
	case c.status.Signaled():
		return fmt.Sprintf("%s was ended by signal %d (%s)", c.subject, c.status.Signal(), c.status.Signal())
	case c.status.ExitStatus() != 0:
		return fmt.Sprintf("%s ended with code %d: %s", c.subject, c.status.ExitStatus(), c.stderr.Sentence())
	}
	return ""
}

// explain adds the companion's failure to a failed QEMU's message: QEMU can't start without it, and ends when a guest
// without its TPM is reset.
func (c *companion) explain(exit *launch.Exit) {
	failure := c.failure()
	if failure == "" || exit.Reason != launch.ReasonStartFailed && exit.Reason != launch.ReasonCrashed {
		return
	}
	exit.Message = failure + "; QEMU: " + exit.Message
}
