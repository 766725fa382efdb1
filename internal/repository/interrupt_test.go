package repository

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAnInterruptedScriptLeavesNothingBehind sends a signal to a script alone: the program that it runs, and what that
// has started, must have ended when the script ends.
func TestAnInterruptedScriptLeavesNothingBehind(t *testing.T) {
	for _, arguments := range [][]string{{"hack/lint"}, {"hack/stages", "passed", "check"}} {
		t.Run(arguments[0], func(t *testing.T) {
			interrupted(t, arguments)
		})
	}
}

func interrupted(t *testing.T, arguments []string) {
	const runs = "#!/usr/bin/env bash\nsleep 1000 &\necho $$ $! >started.new\nmv started.new started\nwait\n"
	const succeeds = "#!/usr/bin/env bash\n"
	dir := t.TempDir()
	for path, text := range map[string]string{
		"hack/goenv": "", "hack/groups": readText(t, "hack/groups"), "hack/stage": readText(t, "hack/stage"), arguments[0]: readText(t, arguments[0]),
		"go": succeeds, "git": succeeds, // neither a workspace nor a commit matters here
		"bin/lint": runs, "make": runs,
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	started := filepath.Join(dir, "started")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, "bash", arguments...)
	run.Dir, run.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "MAKE=make", "STAGE=")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var pids []string
	for ; len(pids) == 0; <-tick.C {
		select {
		case err := <-ended:
			t.Fatalf("it has ended before the signal: %v", err)
		default:
		}
		if text, err := os.ReadFile(started); err == nil {
			pids = strings.Fields(string(text))
		}
	}
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; run.ProcessState.ExitCode() != 143 {
		t.Errorf("it has ended by %v (%v), want exit code 143", run.ProcessState, err)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d still runs", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
