// Package bootprobe tests whether QEMU can run a guest with an accelerator, by a small guest (folder guest) that reports
// each step of its boot.
//
// It owns that guest, QEMU's command line for it, and the verdict on one run (decision 195). It must not decide what
// several runs mean for a node, nor depend on a host's model or version.
package bootprobe

import (
	"context"
	_ "embed" // for the guest
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/launcher/stderrtail"
	"drydock.dev/drydock/internal/qemu/qmp"
)

//go:generate guest/assemble.sh

var (
	//go:embed guest/bios.bin
	biosGuest []byte
	//go:embed guest/uefi.efi
	uefiGuest []byte
)

// Accelerators, as in -accel and DRYDOCK_ACCEL.
const (
	TCG = nodeprobe.TCG
	KVM = nodeprobe.KVM
)

// Firmware boots the guest.
type Firmware string

// The guest's firmwares.
const (
	BIOS Firmware = "BIOS"
	UEFI Firmware = "UEFI"
)

const (
	// startPatience bounds QEMU's start and first answers, which only show that the accelerator can be opened.
	startPatience = time.Minute
	pollInterval  = 50 * time.Millisecond
	endPatience   = 5 * time.Second
)

const (
	monitorFD = 3 + iota
	stagesFD
	imageFD
	varsFD
)

// diskSize is the size of the boot sector's disk, in bytes: a BIOS ignores a disk smaller than a cylinder.
const diskSize = 1 << 20

// Probe is one run of the guest.
type Probe struct {
	QEMU     string
	Accel    string
	Firmware Firmware
	Deadline time.Duration
	// Root has the firmware, at its path in the image. It is empty except in tests.
	Root string
	// Ask, which may be nil, is called before the guest runs.
	Ask func(context.Context, *qmp.Client) error
	// image replaces the project's guest, and start startPatience, in tests. env adds to QEMU's environment.
	image []byte
	env   []string
	start time.Duration
}

// Run runs the guest to its end, or to the deadline.
func (p Probe) Run(ctx context.Context) Outcome {
	if p.start == 0 {
		p.start = startPatience
	}
	seen, err := p.observe(ctx)
	if err != nil {
		return Outcome{Reason: err.Error()}
	}
	return judge(seen, p.Firmware)
}

// An error means that QEMU could not be started.
func (p Probe) observe(ctx context.Context) (observation, error) {
	files, err := p.open()
	defer files.close()
	if err != nil {
		return observation{}, fmt.Errorf("preparing the node probe's guest: %w", err)
	}
	words := &stderrtail.Tail{Also: io.Discard}
	cmd := exec.Command(p.QEMU, p.args()...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr = words
	cmd.WaitDelay = endPatience
	cmd.ExtraFiles = files.theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return observation{}, fmt.Errorf("QEMU does not start: %w", err)
	}
	for _, file := range files.theirs {
		_ = file.Close()
	}
	files.theirs = nil
	go func() {
		var kept []byte
		buffer := make([]byte, 4096)
		// Reading to the end keeps QEMU from blocking.
		for {
			n, err := files.stages.Read(buffer)
			kept = append(kept, buffer[:min(n, maxLetters-len(kept))]...)
			if err != nil {
				files.letters <- kept
				return
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the process state has the exit status
	}()
	r := run{probe: p, ended: ended, seen: observation{start: p.start, deadline: p.Deadline}}
	r.watch(ctx, files)
	if !r.seen.exited {
		_ = cmd.Process.Kill()
	}
	<-ended
	r.seen.status = cmd.ProcessState.Sys().(syscall.WaitStatus)
	r.seen.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	r.seen.words = words.Sentence()
	r.seen.letters = <-files.letters
	return r.seen, nil
}

// args describes a small VM with two CPUs, and the guest's two debug devices.
func (p Probe) args() []string {
	accel := p.Accel
	if accel == TCG {
		accel = "tcg,thread=single,tb-size=32"
	}
	inherited := func(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
	args := []string{
		"-S", "-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accel, "-cpu", "max", "-smp", "2", "-display", "none",
		"-action", "reboot=shutdown",
		"-chardev", "socket,id=qmp,fd=" + strconv.Itoa(monitorFD), "-mon", "chardev=qmp,mode=control",
		"-chardev", "file,id=stages,path=" + inherited(stagesFD), "-device", "isa-debugcon,iobase=0xe9,chardev=stages",
		"-device", "isa-debug-exit,iobase=0xf4,iosize=4",
	}
	if p.Firmware == UEFI {
		return append(args, "-m", "64",
			"-drive", "if=pflash,format=raw,readonly=on,file="+p.Root+layout.UEFICode,
			"-drive", "if=pflash,format=raw,file="+inherited(varsFD),
			"-kernel", inherited(imageFD))
	}
	return append(args, "-m", "32",
		"-blockdev", "driver=file,node-name=boot,read-only=on,filename="+inherited(imageFD),
		"-device", "virtio-blk-pci,drive=boot,bootindex=1")
}

type files struct {
	monitor io.ReadWriteCloser
	stages  *os.File
	theirs  []*os.File
	letters chan []byte
}

func (p Probe) open() (*files, error) {
	f := &files{letters: make(chan []byte, 1)}
	ours, theirs, err := qmp.SocketPair()
	if err != nil {
		return f, err
	}
	f.monitor, f.theirs = ours, append(f.theirs, theirs)
	read, write, err := os.Pipe()
	if err != nil {
		return f, fmt.Errorf("making a pipe for the stages: %w", err)
	}
	f.stages, f.theirs = read, append(f.theirs, write)
	image := p.image
	if image == nil && p.Firmware == UEFI {
		image = uefiGuest
	} else if image == nil {
		image = biosGuest
	}
	size := 0
	if p.Firmware == BIOS {
		size = diskSize
	}
	memory, err := memoryFile("guest", image, size)
	if err != nil {
		return f, err
	}
	f.theirs = append(f.theirs, memory)
	if p.Firmware != UEFI {
		return f, nil
	}
	template, err := os.ReadFile(p.Root + layout.UEFIVars)
	if err != nil {
		return f, fmt.Errorf("reading the UEFI variables: %w", err)
	}
	vars, err := memoryFile("variables", template, 0)
	if err != nil {
		return f, err
	}
	f.theirs = append(f.theirs, vars)
	return f, nil
}

func memoryFile(name string, content []byte, size int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making the file %q in memory: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.Write(content)
	if err == nil && size > len(content) {
		err = file.Truncate(int64(size))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("filling the file %q in memory: %w", name, err), file.Close())
	}
	return file, nil
}

func (f *files) close() {
	for _, file := range f.theirs {
		_ = file.Close()
	}
	if f.monitor != nil {
		_ = f.monitor.Close()
	}
	if f.stages != nil {
		_ = f.stages.Close()
	}
}

const maxLetters = 64

type run struct {
	probe Probe
	ended <-chan struct{}
	seen  observation
}

func (r *run) watch(ctx context.Context, f *files) {
	starting, cancel := context.WithTimeout(ctx, r.probe.start)
	defer cancel()
	client, err := qmp.New(starting, f.monitor, nil)
	if err != nil {
		r.failed(err)
		return
	}
	defer func() { _ = client.Close() }()
	if r.probe.Ask != nil {
		if err := r.probe.Ask(starting, client); err != nil {
			r.failed(err)
			return
		}
	}
	begin := time.Now()
	running, cancel := context.WithTimeout(ctx, r.probe.Deadline)
	defer cancel()
	r.seen.ran = true
	var refused *qmp.Error
	if err := client.Execute(running, "cont", nil, nil); err != nil && !errors.As(err, &refused) {
		r.failed(err)
		return
	}
	// The run state explains a refusal.
	r.follow(running, client)
	r.seen.took = time.Since(begin)
}

// failed records the monitor's failure. The exit status of an ended QEMU explains more.
func (r *run) failed(err error) {
	r.seen.err = err
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return
	}
	r.awaitEnd()
}

func (r *run) awaitEnd() {
	timer := time.NewTimer(endPatience)
	defer timer.Stop()
	select {
	case <-r.ended:
		r.seen.exited = true
	case <-timer.C:
	}
}

func (r *run) follow(ctx context.Context, client *qmp.Client) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-r.ended:
			r.seen.exited = true
			return
		case <-client.Done():
			r.awaitEnd()
			return
		case <-ctx.Done():
			r.seen.late = true
			return
		case <-ticker.C:
		}
		var status struct {
			Status string `json:"status"`
		}
		err := client.Execute(ctx, "query-status", nil, &status)
		if err != nil {
			continue // QEMU's end or the deadline
		}
		r.seen.state = status.Status
		if status.Status == "shutdown" {
			r.awaitEnd() // the exit code has the reason
			return
		}
		if !makesProgress(status.Status) {
			return
		}
	}
}
