package metrictable

var (
	ofVM   = []string{"name", "namespace"}
	ofVNIC = []string{"name", "namespace", "vnic_name", "binding_type", "network", "binding_name", "model"}
	ofVMIM = []string{"vmi", "vmim", "namespace"}
)

const sinceStart = "since this virt-controller leads"

var ofController = []Metric{
	{Name: "kubevirt_virt_controller_leading_status", By: Controller, Type: Gauge, Help: "Whether this virt-controller leads."},
	{Name: "kubevirt_virt_controller_ready_status", By: Controller, Type: Gauge, Help: "Whether this virt-controller could lead.", Note: "0 until its caches are filled"},
	{Name: "kubevirt_configuration_emulation_enabled", By: Controller, Type: Gauge, Help: "Whether the KubeVirt object allows guests without KVM."},
	{Name: "kubevirt_vmi_phase_count", By: Controller, Type: Gauge, Labels: []string{"node", "phase", "os", "workload", "flavor", "instance_type", "preference",
		"guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id"}, Help: "Number of VMIs of a phase and with the same properties on a node.", Note: "a recording rule in KubeVirt"},
	{Name: "kubevirt_number_of_vms", By: Controller, Type: Gauge, Labels: []string{"namespace"}, Help: "Number of VMs of a namespace.", Note: "a recording rule in KubeVirt"},
	{Name: "kubevirt_vm_info", By: Controller, Type: Gauge, Labels: []string{"name", "namespace", "os", "workload", "flavor", "machine_type",
		"instance_type", "preference", "status", "status_group", "run_strategy"}, Help: "Properties of a VM as labels, always 1.",
		Note: "`run_strategy` is Drydock's own; `os`, `workload` and `flavor` are the template's annotations `vm.kubevirt.io/…`; `status_group` is starting, running, migrating, non_running or error"},
	{Name: "kubevirt_vm_create_date_timestamp_seconds", By: Controller, Type: Gauge, Labels: ofVM, Help: "When a VM was created."},
	{Name: "kubevirt_vm_starting_status_last_transition_timestamp_seconds", By: Controller, Type: Counter, Labels: ofVM, Help: "When a VM that is starting last changed its conditions, else 0."},
	{Name: "kubevirt_vm_running_status_last_transition_timestamp_seconds", By: Controller, Type: Counter, Labels: ofVM, Help: "When a VM that runs last changed its conditions, else 0."},
	{Name: "kubevirt_vm_migrating_status_last_transition_timestamp_seconds", By: Controller, Type: Counter, Labels: ofVM, Help: "When a VM that migrates last changed its conditions, else 0."},
	{Name: "kubevirt_vm_non_running_status_last_transition_timestamp_seconds", By: Controller, Type: Counter, Labels: ofVM, Help: "When a VM that is off, stopping or paused last changed its conditions, else 0."},
	{Name: "kubevirt_vm_error_status_last_transition_timestamp_seconds", By: Controller, Type: Counter, Labels: ofVM, Help: "When a VM with an error last changed its conditions, else 0."},
	{Name: "kubevirt_vm_resource_requests", By: Controller, Type: Gauge, Labels: []string{"name", "namespace", "resource", "unit", "source"}, Help: "CPUs and memory that a VM asks for, by the field that says so.",
		Note: "of a VM with an instance type while it has a VMI; `source` is domain, requests, guest, hugepages, default or guest_effective"},
	{Name: "kubevirt_vm_resource_limits", By: Controller, Type: Gauge, Labels: []string{"name", "namespace", "resource", "unit"}, Help: "Limits of CPU and memory in a VM's template."},
	{Name: "kubevirt_vm_disk_allocated_size_bytes", By: Controller, Type: Gauge, Labels: []string{"name", "namespace", "persistentvolumeclaim", "volume_mode", "device"}, Help: "Size that the claim of a VM's disk asks for."},
	{Name: "kubevirt_vm_vnic_info", By: Controller, Type: Gauge, Labels: ofVNIC, Help: "Properties of an interface in a VM's template as labels, always 1."},
	{Name: "kubevirt_vmi_vnic_info", By: Controller, Type: Gauge, Labels: ofVNIC, Help: "Properties of a VMI's interface as labels, always 1."},
	{Name: "kubevirt_vmi_info", By: Controller, Type: Gauge, Labels: []string{"node", "namespace", "name", "phase", "os", "workload", "flavor",
		"instance_type", "preference", "guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
		"evictable", "outdated", "vmi_pod"}, Help: "Properties of a VMI as labels, always 1."},
	{Name: "kubevirt_vmi_status_addresses", By: Controller, Type: Gauge, Labels: []string{"node", "namespace", "name", "vnic_name", "interface_name", "address", "type"}, Help: "Address of a VMI's interface as labels, always 1.",
		Note: "only interfaces of the spec; `type` is ExternalInterface, or SystemInterface without an address"},
	{Name: "kubevirt_vmi_launcher_memory_overhead_bytes", By: Controller, Type: Gauge, Labels: []string{"namespace", "name"}, Help: "Memory that a VMI's pod gets besides the guest's.", Note: "as the next pod would get it"},
	{Name: "kubevirt_vmi_non_evictable", By: Controller, Type: Gauge, Labels: []string{"node", "namespace", "name"}, Help: "Whether a running guest must be migrated by a drain and can't be.",
		Note: "only guests with the `evictionStrategy` LiveMigrate"},
	{Name: "kubevirt_vmi_number_of_outdated", By: Controller, Type: Gauge, Help: "Number of VMIs in pods of an older image."},
	{Name: "kubevirt_vmi_migrations_in_unset_phase", By: Controller, Type: Gauge, Help: "Number of migrations that virt-controller has not seen yet."},
	{Name: "kubevirt_vmi_migrations_in_pending_phase", By: Controller, Type: Gauge, Help: "Number of migrations that wait."},
	{Name: "kubevirt_vmi_migrations_in_scheduling_phase", By: Controller, Type: Gauge, Help: "Number of migrations whose target pod has no node or container yet."},
	{Name: "kubevirt_vmi_migrations_in_running_phase", By: Controller, Type: Gauge, Help: "Number of migrations whose target pod has a container."},
	{Name: "kubevirt_vmi_migration_succeeded", By: Controller, Type: Gauge, Labels: ofVMIM, Help: "A migration that has succeeded, always 1.", Note: "as long as the object exists"},
	{Name: "kubevirt_vmi_migration_failed", By: Controller, Type: Gauge, Labels: ofVMIM, Help: "A migration that has failed, always 1.", Note: "as long as the object exists"},
	{Name: "kubevirt_vmi_migration_start_time_seconds", By: Controller, Type: Gauge, Labels: []string{"node", "namespace", "name", "migration_name"}, Help: "When a VMI's last migration began to send."},
	{Name: "kubevirt_vmi_migration_end_time_seconds", By: Controller, Type: Gauge, Labels: []string{"node", "namespace", "name", "migration_name", "status"}, Help: "When a VMI's last migration ended.", Note: "`status` is succeeded or failed"},
	{Name: "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds", By: Controller, Type: Histogram, Labels: []string{"phase"}, Help: "Time from a migration's creation until it entered a phase.", Note: sinceStart},
	{Name: "kubevirt_vmi_phase_transition_time_seconds", By: Controller, Type: Histogram, Labels: []string{"phase", "last_phase"}, Help: "Time that a VMI spent in its last phase before it entered this one.", Note: sinceStart},
	{Name: "kubevirt_vmi_phase_transition_time_from_creation_seconds", By: Controller, Type: Histogram, Labels: []string{"phase"}, Help: "Time from a VMI's creation until it entered a phase.", Note: sinceStart},
	{Name: "kubevirt_vmi_phase_transition_time_from_deletion_seconds", By: Controller, Type: Histogram, Labels: []string{"phase"}, Help: "Time from a VMI's deletion until it entered its last phase.", Note: sinceStart},
	{Name: "kubevirt_vmsnapshot_disks_restored_from_source", By: Controller, Type: Gauge, Labels: []string{"vm_name", "vm_namespace"}, Help: "Number of claims that were restored from snapshots of a VM.", Note: "a recording rule in KubeVirt"},
	{Name: "kubevirt_vmsnapshot_disks_restored_from_source_bytes", By: Controller, Type: Gauge, Labels: []string{"vm_name", "vm_namespace"}, Help: "Size that claims ask for which were restored from snapshots of a VM.", Note: "a recording rule in KubeVirt"},
	{Name: "kubevirt_vmsnapshot_succeeded_timestamp_seconds", By: Controller, Type: Gauge, Labels: []string{"name", "snapshot_name", "namespace"}, Help: "When the disks of a snapshot that has succeeded were snapshotted.", Note: "as long as the object exists; `name` is the VM"},
}

// ofCluster is for alerts, which need no other source of figures about Drydock's pods and the cluster's nodes.
var ofCluster = []Metric{
	{Name: "drydock_nodes", By: Controller, Type: Gauge, Help: "Number of nodes."},
	{Name: "drydock_nodes_schedulable", By: Controller, Type: Gauge, Help: "Number of nodes that take new guests.", Note: "virt-handler offers them, and they are not cordoned"},
	{Name: "drydock_nodes_with_kvm", By: Controller, Type: Gauge, Help: "Number of nodes that offer KVM to guests."},
	{Name: "drydock_node_silent_guests", By: Controller, Type: Gauge, Labels: []string{"node"}, Help: "Number of guests on a node that does not answer Kubernetes.", Note: "only nodes that have some"},
	{Name: "drydock_vmi_stopped", By: Controller, Type: Gauge, Labels: guest("reason"), Help: "A guest that stands still, always 1.",
		Note: "`reason` is that of the VMI's condition: PausedByUser, PausedIOError, PausedByWatchdog, PausedByDebugger, GuestSuspended or UnknownRunState"},
	{Name: "drydock_launcher_pods", By: Controller, Type: Gauge, Labels: []string{"phase"}, Help: "Number of launcher pods of a phase."},
	{Name: "drydock_component_pods_desired", By: Controller, Type: Gauge, Labels: []string{"component"}, Help: "Number of pods that a component should have.", Note: "of virt-handler, one for each node that its DaemonSet wants"},
	{Name: "drydock_component_pods_ready", By: Controller, Type: Gauge, Labels: []string{"component"}, Help: "Number of a component's pods that are Ready."},
}
