package pinning

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
)

// Process implements Node for a pod by the numbers of its processes. A number may become another process's at any time.
type Process struct {
	Launcher int
	// Alive returns an error if the launcher has ended.
	Alive func() error
	QEMU  func() int // first called by Observe
}

// CPUs implements Node.
func (p Process) CPUs() ([]int, error) {
	numbers, err := p.Affinity(p.Launcher)
	if err != nil {
		return nil, fmt.Errorf("asking for the CPUs of virt-launcher: %w", err)
	}
	return numbers, p.Alive()
}

// Locate implements Node.
func (Process) Locate(cpus []int) []cpupinning.HostCPU {
	list := make([]cpupinning.HostCPU, 0, len(cpus))
	for _, n := range cpus {
		list = append(list, hostCPU(n))
	}
	return list
}

// hostCPU reads a CPU's place. Where the kernel does not tell it, each CPU is a core of one package.
func hostCPU(number int) cpupinning.HostCPU {
	folder := filepath.Join("/sys/devices/system/cpu", "cpu"+strconv.Itoa(number), "topology")
	return cpupinning.HostCPU{
		Number: number, Package: readNumber(filepath.Join(folder, "physical_package_id"), 0), Core: readNumber(filepath.Join(folder, "core_id"), number),
	}
}

func readNumber(file string, unknown int) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknown
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return unknown
	}
	return n
}

// Threads implements Node.
func (p Process) Threads() map[int]int {
	qemu := p.QEMU()
	process, err := p.open(filepath.Join("/proc", strconv.Itoa(qemu)))
	if err != nil {
		return nil
	}
	defer process.Close()
	threads := podpath.ThreadsOf(qemu)
	if alive(process) != nil {
		return nil
	}
	return threads
}

// Affinity implements Node.
func (Process) Affinity(thread int) ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(thread, &set); err != nil {
		return nil, fmt.Errorf("asking for the CPUs of thread %d: %w", thread, err)
	}
	var cpus []int
	for n := range len(set) * 64 {
		if set.IsSet(n) {
			cpus = append(cpus, n)
		}
	}
	return cpus, nil
}

// SetAffinity implements Node.
func (p Process) SetAffinity(thread int, cpus []int) error {
	task, err := p.open(filepath.Join("/proc", strconv.Itoa(p.QEMU()), "task", strconv.Itoa(thread)))
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer task.Close()
	return pin(thread, cpus, func() error { return alive(task) })
}

// pin sets the CPUs of a thread. If the thread has ended meanwhile, its number may have been another's already, which gets
// back all CPUs that its cgroup has.
func pin(thread int, cpus []int, alive func() error) error {
	var set unix.CPUSet
	for _, n := range cpus {
		set.Set(n)
	}
	err := unix.SchedSetaffinity(thread, &set)
	if gone(alive()) {
		if err == nil {
			set.Fill()
			_ = unix.SchedSetaffinity(thread, &set)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("setting the CPUs of thread %d: %w", thread, err)
	}
	return nil
}

// open opens the folder in /proc of a process or thread in the launcher's PID namespace: whoever listens at the monitor's
// socket may have ended, and its number may be anyone's. The open folder belongs to this process or thread alone.
func (p Process) open(folder string) (*os.File, error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	launcher, err := os.Stat(filepath.Join("/proc", strconv.Itoa(p.Launcher), "ns/pid"))
	if err == nil {
		err = p.Alive()
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("finding virt-launcher's PID namespace: %w", err)
	}
	// A descriptor's own path leads to the same process, or to none.
	in, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/ns/pid", file.Fd()))
	switch {
	case err != nil:
		file.Close()
		return nil, err
	case !os.SameFile(launcher, in):
		file.Close()
		return nil, fmt.Errorf("%s is not in the PID namespace of virt-launcher: it is no process of its container", folder)
	}
	return file, nil
}

// alive returns an error if the process or thread of an open folder has ended.
func alive(folder *os.File) error {
	_, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/stat", folder.Fd()))
	return err
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
