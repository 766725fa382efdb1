package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/discovery"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// describeMachine says on what and of what the figures are.
func describeMachine(ctx context.Context, r *report.Report) {
	r.Machine = report.Machine{
		CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), MemoryMiB: memoryMiB(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Load: load(),
	}
	r.Versions["go"] = runtime.Version()
	r.Versions["qemu"] = said(ctx, "qemu-system-x86_64", "--version")
	r.Versions["drydock"] = said(ctx, "git", "describe", "--always", "--dirty")
	r.Logf("%d CPUs (%s), %d MiB, load %.2f; Drydock %s, %s",
		r.Machine.CPUs, r.Machine.CPU, r.Machine.MemoryMiB, r.Machine.Load, r.Versions["drydock"], r.Versions["qemu"])
	if r.Machine.Load > 1 {
		r.Logf("This machine has other work to do: the figures of this run are worth little.")
	}
}

// load is how many processes wanted a CPU in the last minute.
func load() float64 {
	first, _, _ := strings.Cut(firstLine("/proc/loadavg"), " ")
	n, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return n
}

// describeCluster says what the cluster is made of.
func describeCluster(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	nodes, err := c.Run(ctx, "drydock", "kubectl", "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion} {.items[*].metadata.labels.drydock\\.dev/kvm}")
	if err != nil {
		return err
	}
	runtimeVersion, kvm, _ := strings.Cut(nodes, " ")
	usesKVM := slices.Contains(strings.Fields(kvm), "usable")
	r.Machine.KVM = &usesKVM
	r.Versions["kubernetes"] = version.GitVersion
	r.Versions["containerd"] = runtimeVersion
	r.Logf("Kubernetes %s, %s, KVM %t", version.GitVersion, runtimeVersion, usesKVM)
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
