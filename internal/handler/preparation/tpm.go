package preparation

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/rules/machine"
)

func (p *Pod) tpm(spec *v1.VirtualMachineInstanceSpec, incoming types.UID) (*launch.TPM, error) {
	current := ""
	if machine.KeepsTPM(spec) {
		var err error
		if current, err = disk.CurrentTPM(p.disks()); err != nil {
			return nil, err
		}
	}
	return machine.TPM(spec, current, incoming), nil
}

func (p *Pod) disks() disk.Pod { return disk.Pod{Root: p.Link.Peer.Root, User: layout.QEMUUser} }

// UseIncomingTPM makes the next start use the TPM state that came with the guest. Call it when the source can no longer
// resume the guest, and before the guest runs here: until then both copies are equal (decision 442).
func (p *Pod) UseIncomingTPM(vmi *v1.VirtualMachineInstance, migration types.UID) error {
	if !machine.KeepsTPM(&vmi.Spec) {
		return nil
	}
	return disk.SetCurrentTPM(p.disks(), layout.IncomingTPM(string(migration)))
}
