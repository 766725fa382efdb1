package launcher

import (
	"context"
	"fmt"
	"os"
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

// A guest with a kernel of its own sends virtiofsd paths like "../x", which virtiofsd follows when it changes something.
func TestTheProgramOfAShareChangesNothingElse(t *testing.T) {
	if landlock() < leastLandlock {
		t.Skip("the kernel has no Landlock")
	}
	parent := t.TempDir()
	folder, program := filepath.Join(parent, "folder"), filepath.Join(parent, "virtiofsd")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(parent, "private"): "outside\n",
		program: fmt.Sprintf("#!/bin/sh\ncd %s\nmkdir ../made; ln -s x ../link; mv ../private stolen; rm -f ../private; echo x > ../written\n"+
			"mkdir a b; echo in > a/file; mv a/file b/moved; : > b/moved; rmdir a\n", folder),
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	children := newReaper()
	go children.run(ctx)
	c, err := startShare(Config{Dir: t.TempDir(), Share: program, Log: t.Output()}, launch.Share{Name: "data", Folder: folder}, children)
	if err != nil {
		t.Fatal(err)
	}
	<-c.ended
	<-c.drained
	close(c.gone)
	for path, want := range map[string]string{parent: "folder private virtiofsd", folder: "b", filepath.Join(folder, "b"): "moved"} {
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, want %s", path, got, want)
		}
	}
}
