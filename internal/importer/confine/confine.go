// Package confine runs programs that read hostile content (qemu-img, xz) under limits on their memory and CPU time.
//
// The limits are set after the program's start and before it gets anything to read by pipe. A program that opens a file
// itself is still loading its libraries for that millisecond. The worker's container limits which files they can access.
package confine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// Limits are a program's resources.
type Limits struct {
	// Memory is the address space in bytes; CPU is the CPU time.
	Memory uint64
	CPU    time.Duration
}

const maxSaid = 4 << 10 // bytes of kept output

// Program is a program with limits.
type Program struct {
	*exec.Cmd
	limits Limits
	output tail
}

// New returns a program. It replaces the command's environment, standard error and wait delay.
func New(cmd *exec.Cmd, limits Limits) *Program {
	p := &Program{Cmd: cmd, limits: limits}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TMPDIR=/nowhere", "MALLOC_ARENA_MAX=1"}
	cmd.Stderr = &p.output
	cmd.WaitDelay = 10 * time.Second
	return p
}

// threadStack is for every thread: qemu-img starts up to 64, and 8 MiB each would exceed any useful limit of the address
// space.
const threadStack = 1 << 20

// lowerStacks lowers the limit that programs inherit. This process has its stacks already.
var lowerStacks = sync.OnceValue(func() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Cur, threadStack)
	return unix.Setrlimit(unix.RLIMIT_STACK, &limit)
})

// Start starts the program under its limits.
func (p *Program) Start() error {
	if err := lowerStacks(); err != nil {
		return fmt.Errorf("limiting the stacks of %s: %w", p.Args[0], err)
	}
	if err := p.Cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Args[0], err)
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_AS:   p.limits.Memory,
		unix.RLIMIT_CPU:  uint64(math.Ceil(p.limits.CPU.Seconds())),
		unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Prlimit(p.Process.Pid, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			return errors.Join(fmt.Errorf("limiting %s: %w", p.Args[0], err), p.Process.Kill(), p.Cmd.Wait())
		}
	}
	return nil
}

// Wait waits for the program's end. It returns a Fault if the limits have ended it.
func (p *Program) Wait() error {
	err := p.Cmd.Wait()
	if err == nil {
		return nil
	}
	said := p.Output()
	if status, is := p.ProcessState.Sys().(syscall.WaitStatus); is && status.Signaled() {
		if status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGKILL && p.ProcessState.UserTime() >= p.limits.CPU {
			return job.Faultf(transfer.ReasonLimit, "reading the image took more than %s of computing: it is damaged, or made to cost time", p.limits.CPU)
		}
	}
	if strings.Contains(strings.ToLower(said), "allocate memory") {
		return job.Faultf(transfer.ReasonLimit, "reading the image took more than %s of memory: it is damaged, or made to cost memory", job.Bytes(int64(p.limits.Memory)))
	}
	return fmt.Errorf("%s: %w: %s", p.Args[0], err, said)
}

// Output returns the end of the program's standard error.
func (p *Program) Output() string { return strings.TrimSpace(p.output.String()) }

type tail struct{ bytes.Buffer }

func (t *tail) Write(b []byte) (int, error) {
	if t.Len()+len(b) > 2*maxSaid {
		kept := bytes.Clone(t.Bytes()[max(0, t.Len()-maxSaid):])
		t.Reset()
		t.Buffer.Write(kept)
		t.Buffer.Write(b[max(0, len(b)-maxSaid):])
		return len(b), nil
	}
	return t.Buffer.Write(b)
}
