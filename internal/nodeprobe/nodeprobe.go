// Package nodeprobe is what `virt-launcher probe-node` writes and virt-handler
// reads: what QEMU can do on a node.
//
// It owns the JSON only; finding it out is virt-launcher's, acting on it
// virt-handler's. It must import the standard library only.
package nodeprobe

// File is where the DaemonSet's init container leaves the result for virt-handler.
const File = "/var/run/drydock/node.json"

// Result is what was found.
type Result struct {
	KVM KVM `json:"kvm"`
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

// KVM tells whether a guest ran with it.
type KVM struct {
	Usable bool `json:"usable"`
	// Reason says why not, in QEMU's words.
	Reason string `json:"reason,omitempty"`
}
