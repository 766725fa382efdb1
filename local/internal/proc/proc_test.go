package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// log is a writer that goroutines share.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func sleeper(t *testing.T, marker string) Component {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return Component{Name: "sleeper", Spec: Spec{Path: path, Argv: []string{"sleep", marker}, Log: filepath.Join(t.TempDir(), "log")}}
}

// patience bounds one wait on a busy machine.
const patience = 4 * time.Minute

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); !holds(); <-tick {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

func TestAKilledComponentIsStartedAgain(t *testing.T) {
	r := &Runner{Log: &log{}}
	task := r.Run(t.Context(), sleeper(t, "1001"))
	defer task.Stop()
	if err := task.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := task.PID()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second process", func() bool { return task.PID() != 0 && task.PID() != first })
}

func TestStopEndsTheProcess(t *testing.T) {
	r := &Runner{Log: &log{}}
	task := r.Run(t.Context(), sleeper(t, "1002"))
	if err := task.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := task.PID()
	task.Stop()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is still there after Stop: %v", pid, err)
	}
}

func TestAProcessThatIgnoresTheRequestIsKilled(t *testing.T) {
	script := filepath.Join(t.TempDir(), "ready")
	p, err := Start(Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "trap '' TERM; touch " + script + "; while :; do sleep 1; done"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the trap", func() bool { _, err := os.Stat(script); return err == nil })
	if err := p.Stop(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := p.Close(); got != "signal: killed" {
		t.Errorf("the process ended by %q", got)
	}
}

func TestNeedsComeBeforeTheStartAndReadyAfterIt(t *testing.T) {
	needed, serving := make(chan struct{}), make(chan struct{})
	c := sleeper(t, "1003")
	c.Needs = func(ctx context.Context) error {
		select {
		case <-needed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.Ready = func(context.Context) error {
		select {
		case <-serving:
			return nil
		default:
			return errors.New("not yet")
		}
	}
	r := &Runner{Log: &log{}}
	task := r.Run(t.Context(), c)
	defer task.Stop()
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := task.Await(short); err == nil || task.PID() != 0 {
		t.Errorf("it started as process %d without what it needs: %v", task.PID(), err)
	}
	close(needed)
	eventually(t, "the start", func() bool { return task.PID() != 0 })
	short, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := task.Await(short); err == nil {
		t.Error("it is ready before it serves")
	}
	close(serving)
	if err := task.Await(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASecondRunnerTakesOver(t *testing.T) {
	c := sleeper(t, "1004")
	// The first supervisor starts the process and exits.
	orphan, err := Start(c.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var first, second log
	candidates := func() ([]int, error) { return []int{os.Getpid(), orphan.PID}, nil }
	eventually(t, "the process shows its own name", func() bool { _, ok := Find([]int{orphan.PID}, c.Spec.Path, c.Spec.Argv); return ok })
	task := (&Runner{Log: &second, Candidates: candidates}).Run(t.Context(), c)
	defer task.Stop()
	if err := task.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if task.PID() != orphan.PID {
		t.Fatalf("process %d was started although %d runs: %s%s", task.PID(), orphan.PID, first.String(), second.String())
	}
	if err := orphan.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a process in place of the adopted one", func() bool { return task.PID() != 0 && task.PID() != orphan.PID })
}

func TestFindAsksForTheExactCommandLine(t *testing.T) {
	c := sleeper(t, "1005")
	p, err := Start(c.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	defer func() { _ = p.Stop(0) }() // cleaning up
	eventually(t, "the process shows its own name", func() bool { _, ok := Find([]int{p.PID}, c.Spec.Path, c.Spec.Argv); return ok })
	for _, argv := range [][]string{{"sleep"}, {"sleep", "1006"}, {"sleep", "1005", "1"}} {
		if pid, ok := Find([]int{p.PID}, c.Spec.Path, argv); ok {
			t.Errorf("%q was found as process %d", argv, pid)
		}
	}
	if _, ok := Find([]int{p.PID}, "/other/sleep", c.Spec.Argv); ok {
		t.Error("another program was taken for it")
	}
}

func TestAChildThatHasJustBeenForkedIsNotTakenForItsParent(t *testing.T) {
	// The shell in parentheses is a fork that runs on as the shell itself.
	cmd := exec.Command("sh", "-c", "(read -r _; exit); exit")
	shell, err := filepath.EvalSymlinks(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(stdin.Close(), cmd.Wait()) }() // cleaning up
	var child int
	eventually(t, "the shell's child", func() bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Sscan(string(data), &child)
		return err == nil
	})

	pid, found := Find([]int{child, cmd.Process.Pid}, shell, cmd.Args)

	if !found || pid != cmd.Process.Pid {
		t.Errorf("found process %d (%v), want the shell %d and not its child %d", pid, found, cmd.Process.Pid, child)
	}
}

// TestAChildThatIsGoneMeanwhileIsNotTakenForItsParent: it was looked at between its fork and its exec.
func TestAChildThatIsGoneMeanwhileIsNotTakenForItsParent(t *testing.T) {
	child := exec.Command("sleep", "0")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	pids := []int{child.Process.Pid, os.Getpid()}
	if pid, found := FindWhere(pids, func(int) bool { return true }); !found || pid != os.Getpid() {
		t.Errorf("found process %d (%v) of %v, of which only the second is there", pid, found, pids)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	p, err := Start(sleeper(t, "1007").Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait returned %v", err)
	}
	if err := p.Stop(5 * time.Second); err != nil { // an interrupted Wait must not affect the next
		t.Error(err)
	}
}

// TestAWaitThatEndsWithItsContextLeavesNoDeadline: the process is dead and the context ends meanwhile.
func TestAWaitThatEndsWithItsContextLeavesNoDeadline(t *testing.T) {
	p, err := Start(sleeper(t, "1008").Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Stop(patience); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = p.Wait(ctx) // it says either of the two
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABigLogIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "x.log")
	for i := range 2 {
		f, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(maxLog+1), f.Close()); err != nil {
			t.Fatal(fmt.Errorf("round %d: %w", i, err))
		}
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != maxLog+1 {
		t.Errorf("the old log: %v, %v", info, err)
	}
}

func TestProgram(t *testing.T) {
	for want, argv := range map[string][]string{
		"kubelet":    {"drydock", "kubelet", "--config=/x"},
		"containerd": {"/opt/bin/containerd", "--config=/x"},
		"etcd":       {"drydock", "etcd"},
		"drydock":    {"drydock"},
		"":           nil,
	} {
		if got := Program(argv); got != want {
			t.Errorf("%q runs %q, want %q", argv, got, want)
		}
	}
}
