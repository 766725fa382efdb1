package main

import (
	"context"
	"os/exec"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"

	"drydock.dev/drydock/bench/report"
)

func describeMachine(ctx context.Context, r *report.Report) {
	r.Machine = machine()
	r.Versions["go"] = runtime.Version()
	r.Versions["qemu"] = said(ctx, "qemu-system-x86_64", "--version")
	r.Versions["drydock"] = said(ctx, "git", "describe", "--always", "--dirty")
	r.Logf("%d CPUs (%s), %d MiB, load %.2f; Drydock %s, %s",
		r.Machine.CPUs, r.Machine.CPU, r.Machine.MemoryMiB, r.Machine.Load, r.Versions["drydock"], r.Versions["qemu"])
	if r.Machine.Load > 1 {
		r.Logf("This machine has other work to do: the figures of this run are worth little.")
	}
}

// Unknown fields stay empty.
func machine() report.Machine {
	out := report.Machine{CPUs: runtime.NumCPU()}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return out
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		out.CPU = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		out.MemoryMiB = int(*memory.MemTotalBytes >> 20)
	}
	if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil && len(release) > 0 {
		out.Kernel = release[0]
	}
	// The processes that wanted a CPU in the last minute.
	if load, err := fs.LoadAvg(); err == nil {
		out.Load = load.Load1
	}
	return out
}

// said returns the first line of a program's output, empty on failure.
func said(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
