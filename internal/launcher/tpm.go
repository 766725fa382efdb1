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

const tpmEndsWithin = 5 * time.Second

// tpm is swtpm. It ends with QEMU and with the launcher.
type tpm struct {
	*child
	// status is the exit status, valid after gone.
	status syscall.WaitStatus
}

// startTPM starts swtpm with its state in its own folder. swtpm inherits QEMU's socket, which listens before QEMU starts.
func startTPM(config Config, request *launch.TPM, children *reaper) (*tpm, error) {
	state := request.State
	if err := removeOldTPMs(request); err != nil {
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
	c, err := startChild("swtpm", argv, config.log().of("swtpm"), children, control)
	if err != nil {
		return nil, err
	}
	return &tpm{child: c}, nil
}

// removeOldTPMs removes the folders of TPMs from before a migration, and of failed migrations.
func removeOldTPMs(request *launch.TPM) error {
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
	// Nobody listens later, so the file may stay.
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

// A guest whose TPM fails continues without it (decision 440).
func (l *launcher) watchTPM(t *tpm) {
	status := <-t.ended
	<-t.drained
	t.status = status
	close(t.gone)
	if text := t.failure(); text != "" {
		l.post(func() { l.logf("%s", text) })
	}
}

// end waits until swtpm has ended after QEMU, or kills it after patience.
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

// explain adds a failure of the TPM to a failed QEMU's message: QEMU ends when a guest without its TPM is reset.
func (t *tpm) explain(exit *launch.Exit) {
	failure := t.failure()
	if failure == "" || exit.Reason != launch.ReasonStartFailed && exit.Reason != launch.ReasonCrashed {
		return
	}
	exit.Message = failure + "; QEMU: " + exit.Message
}
