package podpath

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheNumberOfAThreadInItsNamespace(t *testing.T) {
	const text = "Name:\tqemu\nPid:\t4711\nNSpid:\t4711\t17\t9\nThreads:\t3\n"
	file := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if inner, ok := innerNumber(file); inner != 9 || !ok {
		t.Errorf("the thread is %d, %v", inner, ok)
	}
	if _, ok := innerNumber(file + "2"); ok {
		t.Error("a thread that has ended is known")
	}
}

func TestThreadsOfAProcess(t *testing.T) {
	if threads := ThreadsOf(os.Getpid()); threads[os.Getpid()] == 0 {
		t.Errorf("the process's first thread is missing: %v", threads)
	}
	if threads := ThreadsOf(1 << 30); len(threads) != 0 {
		t.Errorf("a process that does not exist has threads: %v", threads)
	}
}
