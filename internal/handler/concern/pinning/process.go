package pinning

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
)

// Process implements Node for a pod by the numbers of its processes.
type Process struct {
	Launcher int
	QEMU     func() int // first called by Observe
}

// CPUs implements Node.
func (p Process) CPUs() ([]cpupinning.HostCPU, error) {
	numbers, err := p.Affinity(p.Launcher)
	if err != nil {
		return nil, fmt.Errorf("asking for the CPUs of virt-launcher: %w", err)
	}
	list := make([]cpupinning.HostCPU, 0, len(numbers))
	for _, n := range numbers {
		list = append(list, hostCPU(n))
	}
	return list, nil
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
func (p Process) Threads() map[int]int { return podpath.ThreadsOf(p.QEMU()) }

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
func (Process) SetAffinity(thread int, cpus []int) error {
	var set unix.CPUSet
	for _, n := range cpus {
		set.Set(n)
	}
	if err := unix.SchedSetaffinity(thread, &set); err != nil {
		return fmt.Errorf("setting the CPUs of thread %d: %w", thread, err)
	}
	return nil
}
