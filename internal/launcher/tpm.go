package launcher

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// tpmEndsWithin is how long swtpm, whose QEMU has ended, has to follow before it is killed.
const tpmEndsWithin = 5 * time.Second

// tpm is swtpm, which emulates the TPM of one guest. QEMU's end ends it, and so does the launcher's.
type tpm struct {
	*child
	// status says how it has ended once it is gone.
	status syscall.WaitStatus
}

// startTPM starts swtpm with its state in a folder, which nobody else has. swtpm inherits the socket that QEMU connects
// to, which listens before QEMU is started, so that QEMU finds it.
func startTPM(config Config, request *launch.TPM, children *reaper) (*tpm, error) {
	state := request.State
	if err := tidyTPMs(request); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the TPM's state: %w", err)
	}
	control, err := tpmSocket(filepath.Join(config.Dir, layout.TPMSocket))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	argv := []string{
		config.TPM, "socket", "--tpm2", "--terminate",
		"--tpmstate", "dir=" + state + ",mode=0600",
		"--ctrl", fmt.Sprintf("type=unixio,fd=%d", inheritedFD),
	}
	c, err := startChild("swtpm", argv, control, config.Log, children)
	if err != nil {
		return nil, err
	}
	return &tpm{child: c}, nil
}

// tidyTPMs removes what earlier TPMs have left beside those that matter: of the guest before it migrated, and of
// migrations that failed.
func tidyTPMs(request *launch.TPM) error {
	if request.Current == "" {
		return nil
	}
	folder, own := filepath.Split(request.State)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("looking for what earlier TPMs have left: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && strings.HasPrefix(name, layout.FirstTPM) && name != own && name != request.Current {
			if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("removing what an earlier TPM has left: %w", err)
			}
		}
	}
	return nil
}

// tpmSocket is a socket that listens at path, for the launcher's own user.
func tpmSocket(path string) (*os.File, error) {
	listener, err := listen(path)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("making the TPM's socket: %T is no unix socket", listener)
	}
	// It is there until swtpm has ended, and beyond: nobody listens then.
	socket.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("making the TPM's socket: %w", err)
	}
	file, err := socket.File()
	if err != nil {
		return nil, fmt.Errorf("making the TPM's socket: %w", err)
	}
	return file, nil
}

// watchTPM follows swtpm until its end. A guest whose TPM fails goes on without (decision 440).
func (l *launcher) watchTPM(t *tpm) {
	status := <-t.ended
	<-t.drained
	t.status = status
	close(t.gone)
	if text := t.failure(); text != "" {
		l.post(func() { l.logf("%s", text) })
	}
}

// endTPM waits for the end of swtpm, so that what it stores is whole when the launcher tells of the
// guest's end. To a QEMU that never answered it may not be connected, and does not notice its end.
func (l *launcher) endTPM() {
	patience := tpmEndsWithin
	if !l.guest.started {
		patience = 0
	}
	l.tpm.end(patience)
}

// end waits until swtpm has ended, which it does when QEMU has, and kills it if it does not: what
// it has stored is whole then.
func (t *tpm) end(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.gone:
	case <-timer.C:
		_ = syscall.Kill(t.pid, syscall.SIGKILL)
		<-t.gone
	}
}

// failure says how swtpm has failed; empty while it runs, and when it has ended in order.
func (t *tpm) failure() string {
	select {
	case <-t.gone:
	default:
		return ""
	}
	switch {
	case t.status.Signaled():
		return fmt.Sprintf("the guest's TPM (swtpm) was ended by signal %d (%s)", t.status.Signal(), t.status.Signal())
	case t.status.ExitStatus() != 0:
		return fmt.Sprintf("the guest's TPM (swtpm) ended with code %d: %s", t.status.ExitStatus(), t.stderr.Sentence())
	}
	return ""
}

// explain adds to the end of a QEMU that failed that its TPM had failed: QEMU ends when a guest
// without its TPM is reset.
func (t *tpm) explain(exit *launch.Exit) {
	failure := t.failure()
	if failure == "" || exit.Reason != launch.ReasonStartFailed && exit.Reason != launch.ReasonCrashed {
		return
	}
	exit.Message = failure + "; QEMU: " + exit.Message
}
