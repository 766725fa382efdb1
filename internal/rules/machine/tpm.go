package machine

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

const tpmID = "tpm0"

// HasTPM reports whether the guest has a TPM.
func HasTPM(spec *v1.VirtualMachineInstanceSpec) bool {
	t := spec.Domain.Devices.TPM
	return t != nil && !isFalse(t.Enabled)
}

// KeepsTPM reports whether the TPM's state outlives the guest.
func KeepsTPM(spec *v1.VirtualMachineInstanceSpec) bool {
	return HasTPM(spec) && isTrue(spec.Domain.Devices.TPM.Persistent)
}

// TPM returns the TPM to start before QEMU, nil for none. current is the folder of a persistent TPM; a migration brings
// it into a separate folder.
func TPM(spec *v1.VirtualMachineInstanceSpec, current string, incoming types.UID) *launch.TPM {
	switch {
	case !HasTPM(spec):
		return nil
	case !KeepsTPM(spec):
		return &launch.TPM{State: layout.TPMDir()}
	case incoming == "":
		return &launch.TPM{State: layout.KeptTPMDir(current), Current: current}
	}
	return &launch.TPM{State: layout.KeptTPMDir(layout.IncomingTPM(string(incoming))), Current: current}
}

// Windows and Linux find the CRB interface by ACPI.
func (b *builder) tpm() {
	if !HasTPM(&b.vmi.Spec) {
		return
	}
	b.option("chardev", "socket,id=char-"+tpmID+",path="+layout.Socket(layout.TPMSocket))
	b.option("tpmdev", "emulator,id="+tpmID+",chardev=char-"+tpmID)
	b.device(Properties{"driver": "tpm-crb", "id": "crb-" + tpmID, "tpmdev": tpmID})
}
