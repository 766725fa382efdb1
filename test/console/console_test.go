package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The terminal has echo and a prompt.
func openShell(t *testing.T) *Console {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("opening a terminal: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatalf("unlocking the terminal: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatalf("asking for the terminal's number: %v", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("opening the terminal's other end: %v", err)
	}
	shell := exec.Command("/bin/sh", "-i")
	shell.Env = []string{"PS1=# ", "PATH=" + os.Getenv("PATH")}
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatalf("starting a shell: %v", err)
	}
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
		_ = slave.Close()
		_ = master.Close()
	})
	return New(master)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestRunReturnsWhatACommandPrintsAndItsStatus(t *testing.T) {
	ctx := testContext(t)
	c := openShell(t)
	if err := c.Login(ctx); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, commands, output string
		status                 int
	}{
		{"one line", "echo hello", "hello", 0},
		{"several lines", "echo one\necho two", "one\ntwo", 0},
		{"nothing", "true", "", 0},
		{"an exit status", "(exit 7)", "", 7},
		{"no newline at the end", "printf abc", "abc", 0},
		{"what looks like prompts", "echo '# '; echo 'login: '", "# \nlogin: ", 0},
		{"what looks like a mark", "echo '>>>1 0'", ">>>1 0", 0},
		{"a reader of input", "cat; echo done", "done", 0},
		{"colors", `printf '\033[31mred\033[0m\n'`, "red", 0},
		{"a comment at the end", "echo a # comment", "a", 0},
		{"much output", "seq 2000 | tail -1; seq 500", "2000\n" + strings.Join(seq(500), "\n"), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			output, status, err := c.Run(ctx, test.commands)
			if err != nil {
				t.Fatal(err)
			}
			if output != test.output || status != test.status {
				t.Errorf("got %q and status %d, want %q and %d", output, status, test.output, test.status)
			}
		})
	}
}

func seq(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprint(i+1))
	}
	return lines
}

func TestAShellKeepsItsFolderBetweenCommands(t *testing.T) {
	ctx := testContext(t)
	c := openShell(t)
	if err := c.Login(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Run(ctx, "cd /usr; fruit=apple"); err != nil {
		t.Fatal(err)
	}
	output, _, err := c.Run(ctx, "pwd; echo $fruit")
	if err != nil {
		t.Fatal(err)
	}
	if output != "/usr\napple" {
		t.Errorf("the shell forgot: %q", output)
	}
}

func TestASessionThatWasLeftBehindIsTakenOver(t *testing.T) {
	ctx := testContext(t)
	c := openShell(t)
	for range 2 {
		if err := c.Login(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if output, _, err := c.Run(ctx, "echo again"); err != nil || output != "again" {
		t.Errorf("got %q, %v", output, err)
	}
}

func TestALineThatATerminalCannotTakeIsRefused(t *testing.T) {
	c := openShell(t)
	_, _, err := c.Run(testContext(t), strings.Repeat("x", 5000))
	if err == nil || !strings.Contains(err.Error(), "a line has 5000 bytes, a terminal takes 4000") {
		t.Errorf("got the error %v", err)
	}
}

func TestExpectEndsWithItsContextAndSaysWhatTheConsoleShows(t *testing.T) {
	c := openShell(t)
	if err := c.Login(testContext(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Expect(ctx, regexp.MustCompile("never"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "drydock-console> ") {
		t.Errorf("got the error %v", err)
	}
}

func TestExpectReturnsGroupsAndLeavesTheRest(t *testing.T) {
	ctx := testContext(t)
	c := openShell(t)
	if err := c.Login(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Send("echo a=1 b=2; echo c=3\n"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a=1", "b=2", "c=3"} {
		match, err := c.Expect(ctx, regexp.MustCompile(`(\w)=(\d)`))
		if err != nil {
			t.Fatal(err)
		}
		if match[0] != want || match[1]+"="+match[2] != want {
			t.Errorf("got %q, want %s", match, want)
		}
	}
}

func TestEscapeSequencesAreDroppedHoweverTheyAreCut(t *testing.T) {
	const shown = "\x1b[2J\x1b[01;01Ha\x1b[6nb\r\n\x1bc\x1b(Bc\x00"
	for cut := range len(shown) {
		var clean cleaner
		text := clean.append(nil, []byte(shown[:cut]))
		text = clean.append(text, []byte(shown[cut:]))
		if string(text) != "ab\nc" {
			t.Errorf("cut at %d: got %q", cut, text)
		}
	}
}
