// Package nodeprobe is what `virt-launcher probe-node` writes and virt-handler
// reads: what QEMU can do on a node.
//
// It owns the JSON, and which accelerator follows from it. virt-launcher finds it out
// and virt-handler acts on it. It must import the standard library only.
package nodeprobe

// File is where the container probe-node leaves the result for virt-handler.
const File = "/var/run/drydock/node.json"

// Accelerators, as QEMU names them.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// Result is what was found.
type Result struct {
	KVM Accelerator `json:"kvm"`
	// TCG is emulation.
	TCG Accelerator `json:"tcg"`
	// Requested is the only accelerator that guests may have here (DRYDOCK_ACCEL);
	// empty when the probe is to choose.
	Requested string `json:"requested,omitempty"`
	// UEFIAbsent: there is no UEFI firmware to start a guest with.
	UEFIAbsent bool `json:"uefiAbsent,omitempty"`
	// QEMU is its version, such as 7.2.22.
	QEMU string `json:"qemu"`
	// CPUModels are the named models that a guest can have here in full,
	// sorted: with KVM where it is usable, else emulated.
	CPUModels []string `json:"cpuModels"`
	// MachineTypes are QEMU's q35 machines, sorted; the alias q35 is among them.
	MachineTypes []string `json:"machineTypes"`
	// HostModel is the newest named model of the host's vendor among
	// CPUModels, empty without usable KVM.
	HostModel string `json:"hostModel,omitempty"`
}

// Accelerator reports whether a guest ran with it.
type Accelerator struct {
	Usable bool `json:"usable"`
	// Absent: the node does not have it.
	Absent bool `json:"absent,omitempty"`
	// Reason says why it is not usable, in QEMU's words where QEMU has said any.
	Reason string `json:"reason,omitempty"`
	// Stage is the last stage that the guest reached which failed.
	Stage string `json:"stage,omitempty"`
	// UEFI says why a guest did not run through UEFI, though one did through BIOS;
	// empty when it did.
	UEFI string `json:"uefi,omitempty"`
	// Milliseconds is how long the guest took that was started by the BIOS.
	Milliseconds int64 `json:"milliseconds,omitempty"`
}

// Use is the accelerator that guests get on the node: KVM, TCG, or empty when there
// is none that they may have.
func (r Result) Use() string {
	switch {
	case r.KVM.Usable && r.Requested != TCG:
		return KVM
	case r.TCG.Usable && r.Requested != KVM:
		return TCG
	}
	return ""
}
