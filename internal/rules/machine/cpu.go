package machine

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/vcpus"
)

// Values of spec.domain.cpu.features[].policy.
const (
	policyForce    = "force"
	policyRequire  = "require"
	policyOptional = "optional"
	policyDisable  = "disable"
	policyForbid   = "forbid"
)

// MaxVCPUs bounds sockets × cores × threads.
const MaxVCPUs = vcpus.Max

// Topology returns the guest's CPU topology at boot. Without one in spec.domain.cpu, the number of sockets is the CPU
// limit, or else the CPU request, rounded up.
func Topology(spec *v1.VirtualMachineInstanceSpec) v1.CPUTopology {
	t := v1.CPUTopology{Sockets: 1, Cores: 1, Threads: 1}
	cpu := spec.Domain.CPU
	if cpu != nil && (cpu.Sockets != 0 || cpu.Cores != 0 || cpu.Threads != 0) {
		t.Sockets, t.Cores, t.Threads = max(cpu.Sockets, 1), max(cpu.Cores, 1), max(cpu.Threads, 1)
		return t
	}
	for _, list := range []corev1.ResourceList{spec.Domain.Resources.Limits, spec.Domain.Resources.Requests} {
		if q, ok := list[corev1.ResourceCPU]; ok && q.Sign() > 0 {
			t.Sockets = uint32(q.Value())
			return t
		}
	}
	return t
}

// VCPUs returns the number of virtual CPUs of a topology.
func VCPUs(t v1.CPUTopology) int { return int(t.Sockets) * int(t.Cores) * int(t.Threads) }

// mostSockets returns the number of sockets with those that can be plugged.
func (b *builder) mostSockets() uint32 {
	if c := b.spec.CPU; c != nil {
		return max(b.topology.Sockets, c.MaxSockets)
	}
	return b.topology.Sockets
}

func (b *builder) mostVCPUs() int {
	return int(b.mostSockets()) * int(b.topology.Cores) * int(b.topology.Threads)
}

func (b *builder) cpu() {
	t, sockets := b.topology, b.mostSockets()
	if b.in.Sockets != 0 {
		t.Sockets = min(b.in.Sockets, sockets)
	}
	b.option("smp", fmt.Sprintf("cpus=%d,maxcpus=%d,sockets=%d,cores=%d,threads=%d",
		VCPUs(t), b.mostVCPUs(), sockets, t.Cores, t.Threads))
	cpu := []string{b.cpuModel()}
	enforce := false
	if b.spec.CPU != nil {
		for i, f := range b.spec.CPU.Features {
			on, err := featureState(f)
			if err != nil {
				b.refuse(fmt.Sprintf("cpu.features[%d]", i), "%v", err)
				continue
			}
			cpu = append(cpu, f.Name+"="+onOff(on))
			enforce = enforce || f.Policy == "" || f.Policy == policyRequire
		}
	}
	cpu = append(cpu, b.platformFlags()...)
	// QEMU checks all features or none, and without KVM almost no model is complete.
	if enforce && b.in.KVM {
		cpu = append(cpu, "enforce=on")
	}
	b.option("cpu", strings.Join(cpu, ","))
}

// QEMU has no host-model; with KVM the nearest is host, which omits features that can't be migrated. Without KVM max
// has all features that can be emulated.
func (b *builder) cpuModel() string {
	model := b.in.CPUModel
	if b.spec.CPU != nil && b.spec.CPU.Model != "" {
		model = b.spec.CPU.Model
	}
	switch model {
	case "", v1.CPUModeHostModel, v1.CPUModeHostPassthrough:
		switch {
		case b.in.KVM:
			return "host"
		case b.topology.Threads > 1:
			// max is an AMD model of a family without threads.
			return "max,vendor=GenuineIntel"
		}
		return "max"
	}
	if strings.Trim(model, "-_.ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") != "" {
		b.refuse("cpu.model", "%q is not the name of a CPU model", model)
	}
	return model
}

func featureState(f v1.CPUFeature) (bool, error) {
	if f.Name == "" || strings.Trim(f.Name, "-_.abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return false, fmt.Errorf("%q is not the name of a CPU feature", f.Name)
	}
	switch f.Policy {
	case "", policyForce, policyRequire, policyOptional:
		return true, nil
	case policyDisable, policyForbid:
		return false, nil
	}
	return false, fmt.Errorf("policy %q is none of force, require, optional, disable, forbid", f.Policy)
}
