// Package nodeprobe is the result of `virt-launcher probe-node`, which virt-handler reads: QEMU's capabilities on a node.
// It owns the JSON, and the choice of the accelerator. It must import the standard library only.
package nodeprobe

import "slices"

// File is the result's path in the container probe-node and in virt-handler's.
const File = "/var/run/drydock/node.json"

// Accelerators, as in QEMU.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// Result is the probe's.
type Result struct {
	KVM Accelerator `json:"kvm"`
	TCG Accelerator `json:"tcg"`
	// Requested is the only permitted accelerator on the node (DRYDOCK_ACCEL), empty to let the probe choose.
	Requested  string `json:"requested,omitempty"`
	UEFIAbsent bool   `json:"uefiAbsent,omitempty"`
	// QEMU is its version, such as 10.0.13.
	QEMU string `json:"qemu"`
	// Build is its package, such as Debian 1:10.0.13+ds-0+deb13u1.
	Build string `json:"build,omitempty"`
	// CPUModels are the named models that a guest can have with all features, sorted: with KVM if usable, else emulated.
	CPUModels []string `json:"cpuModels"`
	// MachineTypes are QEMU's q35 machines, sorted, including the alias.
	MachineTypes []string `json:"machineTypes"`
	// DeprecatedMachineTypes are those that QEMU will drop.
	DeprecatedMachineTypes []string `json:"deprecatedMachineTypes,omitempty"`
	// Starved means that no guest can run, or none with KVM, because one waited too long for a CPU: the probe is
	// repeated.
	Starved bool `json:"starved,omitempty"`
	// HostModel is the newest named model of the host's vendor among CPUModels, empty without usable KVM.
	HostModel string `json:"hostModel,omitempty"`
}

// Accelerator is the result for one accelerator.
type Accelerator struct {
	Usable bool `json:"usable"`
	// Absent means that the node does not have it.
	Absent bool `json:"absent,omitempty"`
	// Reason is why it is not usable, with QEMU's message if there is one.
	Reason string `json:"reason,omitempty"`
	// Stage is the last stage of the guest that failed.
	Stage string `json:"stage,omitempty"`
	// UEFI is why a guest ran only through BIOS, empty if it ran through UEFI.
	UEFI string `json:"uefi,omitempty"`
	// Milliseconds is the duration of the guest with BIOS.
	Milliseconds int64 `json:"milliseconds,omitempty"`
}

// Use returns the accelerator of guests on the node: KVM, TCG, or "" if there is no permitted one.
func (r Result) Use() string {
	switch {
	case r.KVM.Usable && r.Requested != TCG:
		return KVM
	case r.TCG.Usable && r.Requested != KVM:
		return TCG
	}
	return ""
}

// SameVerdict reports whether two results have the same consequences, whatever their reasons and durations.
func (r Result) SameVerdict(other Result) bool {
	return r.Requested == other.Requested && r.UEFIAbsent == other.UEFIAbsent && r.QEMU == other.QEMU && r.Build == other.Build && r.HostModel == other.HostModel &&
		r.KVM.verdict() == other.KVM.verdict() && r.TCG.verdict() == other.TCG.verdict() &&
		slices.Equal(r.CPUModels, other.CPUModels) && slices.Equal(r.MachineTypes, other.MachineTypes)
}

type verdict struct{ usable, absent, uefi bool }

func (a Accelerator) verdict() verdict { return verdict{a.Usable, a.Absent, a.UEFI == ""} }
