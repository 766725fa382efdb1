package launcher

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

func (r *running) startWithShare(folder string) (c *client, reply launch.Reply) {
	r.t.Helper()
	c, _ = r.connect()
	return c, c.ask(launch.Request{Start: &launch.Start{Shares: []launch.Share{{Name: "data", Folder: folder}}, Args: r.qemuArgs(
		"-m", "16M", "-object", "memory-backend-memfd,id=ram0,size=16M,share=on", "-machine", "memory-backend=ram0",
		"-chardev", "socket,id=char-data,path="+filepath.Join(r.dir, layout.ShareSocket("data")),
		"-device", "vhost-user-fs-pci,chardev=char-data,tag=data")}})
}

func TestTheProgramOfAShareEndsWithItsQEMU(t *testing.T) {
	r := newLauncher(t)
	c, reply := r.startWithShare(t.TempDir())
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	virtiofsd := r.child("virtiofsd")
	if virtiofsd == 0 {
		t.Fatal("there is no virtiofsd")
	}
	if reply := c.ask(launch.Request{Stop: &launch.Stop{}}); reply.Error != "" {
		t.Fatal(reply.Error)
	}
	exit := c.exited()
	if alive(virtiofsd) {
		t.Error("virtiofsd has outlived QEMU")
	}
	r.finish(0, exit)
}

func TestAGuestGoesOnWithoutTheProgramOfItsShare(t *testing.T) {
	r := newLauncher(t)
	_, reply := r.startWithShare(t.TempDir())
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	if err := syscall.Kill(r.child("virtiofsd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the word of it in the log", func() bool {
		return strings.Contains(r.log.String(), "the program that shares data with the guest (virtiofsd) was ended by signal 9")
	})
	var status struct{ Running bool }
	if err := r.monitor().Execute(t.Context(), "query-status", nil, &status); err != nil || !status.Running {
		t.Errorf("the guest runs: %v, %v", status.Running, err)
	}
}

func TestAShareWithoutItsFolderFailsTheStart(t *testing.T) {
	r := newLauncher(t)
	c, reply := r.startWithShare(filepath.Join(t.TempDir(), "missing"))
	if reply.Error == "" {
		t.Fatal("QEMU has started")
	}
	exit := c.exited()
	if exit.Reason != launch.ReasonStartFailed || !strings.HasPrefix(exit.Message, "the program that shares data with the guest (virtiofsd) ended with code 1: ") {
		t.Errorf("exit %+v", exit)
	}
	r.finish(1, exit)
}
