package metrictable

const operator = "Drydock has no virt-operator."

var missing = []Missing{
	{Name: "kubevirt_virt_operator_leading_status", Why: operator},
	{Name: "kubevirt_virt_operator_ready_status", Why: operator},
	{Name: "kubevirt_usbredir_active_connections", Why: "USB devices of clients do not get to guests."},
	{Name: "kubevirt_vmi_gpu_info", Why: "A VMI's spec has its GPUs, and its pod's requests count them."},
	{Name: "kubevirt_vm_labels", Why: "Its labels are those of VMs, whose names and number tenants choose: it would need an administrator's list of them.", Later: true},
	{Name: "kubevirt_vm_created_by_pod_total", Why: "KubeVirt deprecates it. Admission does not learn which requests succeed.", Later: true},
}
