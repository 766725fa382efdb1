package metrictable

// guest returns the labels of a running guest's metric.
func guest(more ...string) []string { return append([]string{"node", "namespace", "name"}, more...) }

const (
	fromBalloon   = "from the guest's balloon driver; absent without one"
	fromAgent     = "from the guest agent, at most 32 file systems; absent without an agent"
	fromMigration = "at the source, while memory is sent"
)

var ofHandler = []Metric{
	{Name: "kubevirt_info", By: Handler, Type: Gauge, Labels: []string{"goversion", "kubeversion"},
		Help: "Version of Drydock, and of Go, always 1.", Note: "`kubeversion` is Drydock's version"},
	{Name: "kubevirt_virt_handler_ready_status", By: Handler, Type: Gauge,
		Help: "Whether virt-handler has read its node's objects and offers the node to guests.", Note: "without the node's probe 0"},
	{Name: "kubevirt_node_deprecated_machine_types", By: Handler, Type: Gauge, Labels: []string{"machine_type", "node"},
		Help: "A machine type that the node's QEMU will drop, always 1.", Note: "only q35 types: guests have no others"},
	{Name: "kubevirt_vmi_sync_total", By: Handler, Type: Counter, Labels: []string{"namespace", "name"},
		Help: "How often virt-handler has looked at a VMI and decided about it.", Note: "as long as the VMI is on the node"},
	{Name: "kubevirt_vmi_guest_os_panic_total", By: Handler, Type: Counter, Labels: []string{"namespace", "name", "type", "bugcheck_code"},
		Help: "Panics of a guest's system.", Note: "since virt-handler was started, and until ten minutes after the last one if the VMI has left the node; `type` is hyper-v with the stop code of a Windows as `bugcheck_code`, else unknown; the code is other if a VMI has had too many"},
	{Name: "kubevirt_vmi_memory_resident_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Resident memory of QEMU's process."},
	{Name: "kubevirt_vmi_memory_domain_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory of the guest's machine."},
	{Name: "kubevirt_vmi_memory_actual_balloon_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that the balloon leaves to the guest.", Note: "absent without a balloon"},
	{Name: "kubevirt_vmi_memory_available_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that the guest's system manages.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_unused_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that the guest's system uses for nothing, not even for caches.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_usable_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that the guest's system could give to programs without swapping.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_cached_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that the guest's system uses for caches of files.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_used_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Available less usable memory of the guest's system.", Note: fromBalloon + "; a recording rule in KubeVirt"},
	{Name: "kubevirt_vmi_memory_swap_in_traffic_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Bytes that the guest's system has read from its swap space.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_swap_out_traffic_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Bytes that the guest's system has written to its swap space.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_pgmajfault_total", By: Handler, Type: Counter, Labels: guest(), Help: "Page faults in the guest that had to read a disk.", Note: fromBalloon},
	{Name: "kubevirt_vmi_memory_pgminfault_total", By: Handler, Type: Counter, Labels: guest(), Help: "Page faults in the guest that had to read no disk.", Note: fromBalloon},
	{Name: "kubevirt_vmi_cpu_usage_seconds_total", By: Handler, Type: Counter, Labels: guest(), Help: "CPU time of QEMU's process, emulation included."},
	{Name: "kubevirt_vmi_cpu_user_usage_seconds_total", By: Handler, Type: Counter, Labels: guest(), Help: "CPU time of QEMU's process outside of the kernel.", Note: "the kernel counts a guest with KVM here"},
	{Name: "kubevirt_vmi_cpu_system_usage_seconds_total", By: Handler, Type: Counter, Labels: guest(), Help: "CPU time of QEMU's process in the kernel."},
	{Name: "kubevirt_vmi_vcpu_seconds_total", By: Handler, Type: Counter, Labels: guest("id", "state"), Help: "CPU time of a virtual CPU's thread.", Note: "`state` is running: unplugged CPUs have no series"},
	{Name: "kubevirt_vmi_vcpu_delay_seconds_total", By: Handler, Type: Counter, Labels: guest("id"), Help: "Time for which a virtual CPU's thread could have run and had no CPU."},
	{Name: "kubevirt_vmi_node_cpu_affinity", By: Handler, Type: Gauge, Labels: guest(), Help: "Sum of the CPUs of the node on which each virtual CPU may run."},
	{Name: "kubevirt_vmi_storage_iops_read_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Read requests of a disk."},
	{Name: "kubevirt_vmi_storage_iops_write_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Write requests of a disk."},
	{Name: "kubevirt_vmi_storage_flush_requests_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Flush requests of a disk."},
	{Name: "kubevirt_vmi_storage_read_traffic_bytes_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Bytes read from a disk."},
	{Name: "kubevirt_vmi_storage_write_traffic_bytes_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Bytes written to a disk."},
	{Name: "kubevirt_vmi_storage_read_times_seconds_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Time of a disk's read requests, summed."},
	{Name: "kubevirt_vmi_storage_write_times_seconds_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Time of a disk's write requests, summed."},
	{Name: "kubevirt_vmi_storage_flush_times_seconds_total", By: Handler, Type: Counter, Labels: guest("drive"), Help: "Time of a disk's flush requests, summed."},
	{Name: "kubevirt_vmi_network_traffic_bytes_total", By: Handler, Type: Counter, Labels: guest("interface", "type"), Help: "Bytes of an interface in one direction; the next two have the same.", Note: "`type` is rx or tx; KubeVirt deprecates it"},
	{Name: "kubevirt_vmi_network_receive_bytes_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Bytes that the guest received."},
	{Name: "kubevirt_vmi_network_transmit_bytes_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Bytes that the guest sent."},
	{Name: "kubevirt_vmi_network_receive_packets_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Packets that the guest received."},
	{Name: "kubevirt_vmi_network_transmit_packets_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Packets that the guest sent."},
	{Name: "kubevirt_vmi_network_receive_errors_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Packets to the guest that failed."},
	{Name: "kubevirt_vmi_network_transmit_errors_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Packets from the guest that failed."},
	{Name: "kubevirt_vmi_network_receive_packets_dropped_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Packets to the guest that were dropped."},
	{Name: "kubevirt_vmi_network_transmit_packets_dropped_total", By: Handler, Type: Counter, Labels: guest("interface"), Help: "Packets from the guest that were dropped."},
	{Name: "kubevirt_vmi_filesystem_capacity_bytes", By: Handler, Type: Gauge, Labels: guest("disk_name", "mount_point", "file_system_type"), Help: "Size of a file system in the guest.", Note: fromAgent},
	{Name: "kubevirt_vmi_filesystem_used_bytes", By: Handler, Type: Gauge, Labels: guest("disk_name", "mount_point", "file_system_type"), Help: "Used part of a file system in the guest.", Note: fromAgent},
	{Name: "kubevirt_vmi_guest_load_1m", By: Handler, Type: Gauge, Labels: guest(), Help: "Load of the guest's system in the last minute.", Note: "from a guest agent since 10.0"},
	{Name: "kubevirt_vmi_guest_load_5m", By: Handler, Type: Gauge, Labels: guest(), Help: "Load of the guest's system in the last five minutes.", Note: "from a guest agent since 10.0"},
	{Name: "kubevirt_vmi_guest_load_15m", By: Handler, Type: Gauge, Labels: guest(), Help: "Load of the guest's system in the last fifteen minutes.", Note: "from a guest agent since 10.0"},
	{Name: "kubevirt_vmi_guest_vcpu_queue", By: Handler, Type: Gauge, Labels: guest(), Help: "Load of the guest's system in the last minute beyond its number of virtual CPUs.", Note: "from a guest agent since 10.0; a recording rule in KubeVirt"},
	{Name: "kubevirt_vmi_migration_data_bytes_total", By: Handler, Type: Counter, Labels: guest(), Help: "Memory that a migration has to send.", Note: fromMigration},
	{Name: "kubevirt_vmi_migration_data_total_bytes", By: Handler, Type: Counter, Labels: guest(), Help: "Memory that a migration has to send, by the earlier name of kubevirt_vmi_migration_data_bytes_total.", Note: fromMigration + "; a recording rule in KubeVirt"},
	{Name: "kubevirt_vmi_migration_data_processed_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that a migration has sent.", Note: fromMigration},
	{Name: "kubevirt_vmi_migration_data_remaining_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that a migration has still to send.", Note: fromMigration},
	{Name: "kubevirt_vmi_migration_dirty_memory_rate_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that the guest changes in a second while it is migrated.", Note: fromMigration},
	{Name: "kubevirt_vmi_migration_memory_transfer_rate_bytes", By: Handler, Type: Gauge, Labels: guest(), Help: "Memory that a migration sends in a second.", Note: fromMigration},
	{Name: "drydock_vmi_migration_expected_downtime_seconds", By: Handler, Type: Gauge, Labels: guest(), Help: "How long the guest would stand still if the rest of its memory was sent now.", Note: fromMigration},
}

var ofMigrationCosts = []Metric{
	{Name: "drydock_vmi_migration_duration_seconds", By: Handler, Type: Histogram, Labels: []string{"node"},
		Help: "How long migrations away from the node have taken, from the first byte sent until the guest ran."},
	{Name: "drydock_vmi_migration_downtime_seconds", By: Handler, Type: Histogram, Labels: []string{"node"},
		Help: "How long guests stood still when they migrated away from the node, at most."},
	{Name: "drydock_vmi_migration_sent_bytes", By: Handler, Type: Histogram, Labels: []string{"node"},
		Help: "What migrations away from the node have sent."},
}
