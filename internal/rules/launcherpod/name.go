package launcherpod

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const provisioningPrefix = "virt-provisioning-"

// Name is the launcher pod's name. It follows from the VMI's name and UID, so
// that creating it twice, on whatever stale view, gives one pod, and a VMI of
// the same name created later has another.
// See decision 002.
func Name(vmi *v1.VirtualMachineInstance) string { return podName(layout.LauncherPrefix, vmi) }

// ProvisioningName is the provisioning pod's name, by the same rule.
func ProvisioningName(vmi *v1.VirtualMachineInstance) string { return podName(provisioningPrefix, vmi) }

func podName(prefix string, vmi *v1.VirtualMachineInstance) string {
	return layout.PodName(prefix, vmi.Name, "-"+layout.Digest(string(vmi.UID)))
}
