package vmcontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// StatusMaintenance is the printable status of a halted, locked VM. KubeVirt has none.
const StatusMaintenance v1.VirtualMachinePrintableStatus = "Maintenance"

// ConditionMaintenance is true while a VM is locked, and names the pod.
const ConditionMaintenance v1.VirtualMachineConditionType = "drydock.dev/Maintenance"

func (d *decision) maintained() bool {
	_, locked := lock.Of(d.o.VM)
	return locked
}

func (d *decision) maintenanceCondition() v1.VirtualMachineCondition {
	l, _ := lock.Of(d.o.VM)
	return v1.VirtualMachineCondition{
		Type: ConditionMaintenance, Status: corev1.ConditionTrue, Reason: "Locked",
		Message: fmt.Sprintf("the disks are locked for the pod %s since %s", l.Pod, l.Since),
	}
}
