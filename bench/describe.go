package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/client-go/discovery"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// describe says on what and of what the figures are.
func describe(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	var err error
	r.Machine = report.Machine{CPU: cpuModel(), CPUs: runtime.NumCPU(), MemoryMiB: memoryMiB(), Kernel: firstLine("/proc/sys/kernel/osrelease")}
	if r.Machine.Load, err = strconv.ParseFloat(strings.Fields(firstLine("/proc/loadavg"))[0], 64); err != nil {
		return fmt.Errorf("reading the machine's load: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	nodes, err := c.Run(ctx, "drydock", "kubectl", "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion} {.items[*].metadata.labels.kubevirt\\.io/kvm}")
	if err != nil {
		return err
	}
	runtimeVersion, kvm, _ := strings.Cut(nodes, " ")
	r.Machine.KVM = strings.Contains(kvm, "true")
	r.Versions["kubernetes"] = version.GitVersion
	r.Versions["containerd"] = runtimeVersion
	r.Versions["go"] = runtime.Version()
	r.Versions["qemu"] = said(ctx, "qemu-system-x86_64", "--version")
	r.Versions["drydock"] = said(ctx, "git", "describe", "--always", "--dirty")
	r.Logf("%d CPUs (%s), %d MiB, load %.2f; Drydock %s, Kubernetes %s, %s",
		r.Machine.CPUs, r.Machine.CPU, r.Machine.MemoryMiB, r.Machine.Load, r.Versions["drydock"], version.GitVersion, r.Versions["qemu"])
	if r.Machine.Load > 1 {
		r.Logf("This machine has other work to do: the figures of this run are worth little.")
	}
	return nil
}

// said is the first line that a program prints, or nothing.
func said(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func cpuModel() string { return field("/proc/cpuinfo", "model name") }

func memoryMiB() int {
	kib, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	if err != nil {
		return 0
	}
	return kib >> 10
}

// field is the value of the first "name: value" in a file of the kernel's.
func field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
