package launcher

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/consolelog"
)

// reader is the container of the console's log.
type reader struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *lockedBuffer
	ended chan error
}

func startReader(t *testing.T, dir string) *reader {
	t.Helper()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, out: &lockedBuffer{}, ended: make(chan error, 1)}
	r.cmd = exec.Command(os.Args[0], "console-log", "-dir", dir, "-cat", cat)
	r.cmd.Env = append(os.Environ(), asLauncher+"=1")
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.cmd.Wait() }()
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

func (r *reader) endsWell() {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("the reader has ended by %v", err)
		}
	case <-time.After(patience):
		r.t.Error("the reader does not end")
	}
}

// isCat reports whether cat has replaced virt-launcher.
func (r *reader) isCat() bool {
	p, err := procfs.NewProc(r.cmd.Process.Pid)
	if err != nil {
		return false
	}
	name, err := p.Comm()
	return err == nil && name == "cat"
}

func (r *running) startWithConsole(more ...string) *client {
	r.t.Helper()
	c, state := r.connect()
	if !state.LogsConsole {
		r.t.Fatal("the launcher does not log the console")
	}
	args := r.qemuArgs(append([]string{
		"-machine", "graphics=off", "-device", "isa-serial,chardev=char-serial0",
		"-chardev", fmt.Sprintf("socket,id=char-serial0,path=%s,server=on,wait=off,logfile=/proc/self/fd/%d", filepath.Join(r.dir, layout.SerialSocket), layout.ConsoleLogDescriptor),
	}, more...)...)
	if reply := c.ask(launch.Request{Start: &launch.Start{Args: args, GracePeriodSeconds: 1}}); reply.Error != "" {
		r.t.Fatalf("starting QEMU: %s", reply.Error)
	}
	return c
}

func TestTheSerialConsoleIsTheOutputOfItsContainer(t *testing.T) {
	for name, readerFirst := range map[string]bool{"the reader is first": true, "the launcher is first": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var log *reader
			if readerFirst {
				log = startReader(t, dir)
				waitFor(t, "the pipe", func() bool { _, err := os.Stat(filepath.Join(dir, layout.ConsoleLogPipe)); return err == nil })
			}
			r := launchProcess(t, os.Args[0], "-console-log", dir)
			c := r.startWithConsole()
			if !readerFirst {
				log = startReader(t, dir)
			}
			waitFor(t, "the BIOS' words", func() bool { return strings.Contains(log.out.String(), "SeaBIOS (version") })
			waitFor(t, "cat", log.isCat)
			if kib := privateKiB(t, log.cmd.Process.Pid); kib > 1024 {
				t.Errorf("the reader costs %d KiB", kib)
			} else {
				t.Logf("the reader costs %d KiB", kib)
			}
			_ = r.monitor().Execute(t.Context(), "quit", nil, nil)
			r.finish(0, c.exited())
			log.endsWell()
			if out := log.out.String(); strings.Contains(out, "\x1b") || !strings.HasSuffix(out, "\n") {
				t.Errorf("%q", out)
			}
		})
	}
}

// flooding is a disk whose boot sector writes to the serial port without end: mov dx,0x3f8; mov al,'x'; out dx,al; jmp.
func flooding(t *testing.T) string {
	t.Helper()
	sector := make([]byte, 512)
	copy(sector, []byte{0xba, 0xf8, 0x03, 0xb0, 'x', 0xee, 0xeb, 0xfd})
	sector[510], sector[511] = 0x55, 0xaa
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, append(sector, make([]byte, 1<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return disk
}

func TestAGuestThatFloodsItsConsoleIsBoundedAndRuns(t *testing.T) {
	dir := t.TempDir()
	log := startReader(t, dir)
	r := launchProcess(t, os.Args[0], "-console-log", dir)
	began := time.Now()
	c := r.startWithConsole("-drive", "file="+flooding(t)+",format=raw,if=none,id=d", "-device", "ide-hd,drive=d,bootindex=0")
	waitFor(t, "a notice", func() bool { return strings.Contains(log.out.String(), "bytes of the console are missing here") })
	if most := consolelog.Burst + int(time.Since(began).Seconds()+2)*(consolelog.Rate+256) + 256<<10; len(log.out.String()) > most {
		t.Errorf("%d bytes are logged, more than %d", len(log.out.String()), most)
	}
	// A reader that stands still does not stop the guest.
	if err := log.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m := r.monitor()
	for range 5 {
		if err := m.Execute(t.Context(), "query-status", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if kib := residentKiB(t, r.cmd.Process.Pid); kib > 64<<10 {
		t.Errorf("the launcher has %d KiB", kib)
	}
	if err := log.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = m.Execute(t.Context(), "quit", nil, nil)
	r.finish(0, c.exited())
	log.endsWell()
}

func TestTheLogGoesOnWithTheNextReader(t *testing.T) {
	dir := t.TempDir()
	log := startReader(t, dir)
	r := launchProcess(t, os.Args[0], "-console-log", dir)
	c := r.startWithConsole("-drive", "file="+flooding(t)+",format=raw,if=none,id=d", "-device", "ide-hd,drive=d,bootindex=0")
	for i := range 3 {
		waitFor(t, "the guest's words", func() bool { return strings.Contains(log.out.String(), "xxxxxxxx") })
		waitFor(t, "cat", log.isCat)
		if err := log.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the launcher's word", func() bool { return strings.Count(r.log.String(), "waits for the next one") > i })
		log = startReader(t, dir)
	}
	waitFor(t, "the guest's words", func() bool { return strings.Contains(log.out.String(), "xxxxxxxx") })
	m := r.monitor()
	if err := m.Execute(t.Context(), "query-status", nil, nil); err != nil {
		t.Fatal(err)
	}
	_ = m.Execute(t.Context(), "quit", nil, nil)
	r.finish(0, c.exited())
	log.endsWell()
}

func TestALauncherEndsWithoutItsReader(t *testing.T) {
	dir := t.TempDir()
	log := startReader(t, dir)
	r := launchProcess(t, os.Args[0], "-console-log", dir)
	c := r.startWithConsole()
	waitFor(t, "cat", log.isCat)
	if err := log.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.monitor().Execute(t.Context(), "quit", nil, nil)
	r.finish(0, c.exited())
	// The container was started again meanwhile.
	next := startReader(t, dir)
	if err := next.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-next.ended:
		if err != nil {
			t.Logf("the next reader: %v", err)
		}
	case <-time.After(patience):
		t.Error("the next reader does not end")
	}
}

// consoleHere is a console of this process.
func consoleHere(t *testing.T) (c *console, said *lockedBuffer) {
	t.Helper()
	said = &lockedBuffer{}
	c, err := newConsole(t.TempDir(), func(format string, args ...any) { fmt.Fprintf(said, format+"\n", args...) })
	if err != nil {
		t.Fatal(err)
	}
	return c, said
}

func (c *console) openReader(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(c.pipe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// reads reads as many bytes as the text has.
func reads(t *testing.T, from *os.File, want string) {
	t.Helper()
	if err := from.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("read %q, want %q: %v", got[:n], want, err)
	}
}

func (c *console) isWritten(t *testing.T) {
	t.Helper()
	select {
	case <-c.written:
	case <-time.After(patience):
		t.Fatal("the log is not written")
	}
}

func TestTheNextReaderGetsWhatTheLastOneHasNotRead(t *testing.T) {
	c, said := consoleHere(t)
	c.add([]byte("one\n"))
	first := c.openReader(t)
	reads(t, first, "one\n")
	c.add([]byte("two\n"))
	waitFor(t, "the second line in the FIFO", func() bool { return len(c.next()) == 0 })
	first.Close()
	c.add([]byte("three\n"))
	waitFor(t, "the notice", func() bool { return strings.Contains(said.String(), "guest-console-log has ended") })
	c.add([]byte("four\n"))
	second := c.openReader(t)
	reads(t, second, "two\nthree\nfour\n")

	// A guest that says nothing meanwhile does not even notice.
	second.Close()
	third := c.openReader(t)
	c.add([]byte("five"))
	reads(t, third, "five")
	c.finish()
	reads(t, third, "\n")
	c.isWritten(t)
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("the launcher has said %q", said)
	}
}

func TestALogWithoutAReaderIsBoundedAndEnds(t *testing.T) {
	c, _ := consoleHere(t)
	for range 100 {
		c.add(bytes.Repeat([]byte("x"), 4<<10))
	}
	reader := c.openReader(t)
	reads(t, reader, strings.Repeat("x", 64<<10))
	c.finish()
	c.isWritten(t)
	rest := make([]byte, 1<<10)
	if n, _ := reader.Read(rest); !bytes.Contains(rest[:n], []byte("bytes of the console are missing here")) {
		t.Errorf("the log ends with %q", rest[:n])
	}
}

func TestNobodyWaitsForTheReaderOfAnEmptyLog(t *testing.T) {
	c, _ := consoleHere(t)
	c.finish()
	c.isWritten(t)
}

func TestTheReaderEndsWithALauncherThatIsKilled(t *testing.T) {
	dir := t.TempDir()
	log := startReader(t, dir)
	r := launchProcess(t, os.Args[0], "-console-log", dir)
	r.startWithConsole()
	waitFor(t, "cat", log.isCat)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	log.endsWell()
}

func TestAReaderWithoutALauncherEndsWhenItIsTold(t *testing.T) {
	dir := t.TempDir()
	log := startReader(t, dir)
	waitFor(t, "the pipe", func() bool { _, err := os.Stat(filepath.Join(dir, layout.ConsoleLogPipe)); return err == nil })
	if err := log.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-log.ended:
		t.Logf("it has ended: %v", err)
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

// A launcher that ends before its guest's start must not leave a reader that waits for it.
func TestTheReaderEndsWithALauncherWithoutAGuest(t *testing.T) {
	dir := t.TempDir()
	log := startReader(t, dir)
	r := launchProcess(t, os.Args[0], "-console-log", dir)
	r.connect()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	log.endsWell()
}

// privateKiB is the memory of a process alone, without the programs and libraries that it shares with others.
func privateKiB(t *testing.T, pid int) int {
	t.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	rollup, err := p.ProcSMapsRollup()
	if err != nil {
		t.Fatal(err)
	}
	return int((rollup.PrivateClean + rollup.PrivateDirty) >> 10)
}
