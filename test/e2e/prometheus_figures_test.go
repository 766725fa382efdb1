//go:build e2e

package e2e

import (
	"math"
	"time"
)

// figure is the range of a metric's largest values since the test's beginning.
type figure struct {
	least, most float64
	// others is the least of the series that are not the largest one, if it is less.
	others float64
	// time means that least and most are seconds after the test's beginning, and after now.
	time bool
	// unlabeled are labels that Prometheus drops because they are empty: the status of a new VM, too, for a moment.
	unlabeled map[string]bool
	// absent is why the metric has no value here.
	absent string
}

func (f figure) within(began time.Time) (least, most float64) {
	if !f.time {
		return f.least, f.most
	}
	return float64(began.Unix()) + f.least, float64(time.Now().Unix()) + f.most
}

// is is for a value that all series have.
func is(v float64, unlabeled ...string) figure { return all(v, v, unlabeled...) }

// all is for a range that all series are in.
func all(least, most float64, unlabeled ...string) figure {
	f := figure{least: least, most: most, others: least, unlabeled: map[string]bool{}}
	for _, name := range unlabeled {
		f.unlabeled[name] = true
	}
	return f
}

// some is for a range that one series is in; the others may be 0.
func some(least, most float64, unlabeled ...string) figure {
	f := all(least, most, unlabeled...)
	f.others = 0
	return f
}

func absent(why string) figure { return figure{absent: why} }

const (
	mega = 1 << 20
	ram  = 128 * mega // of a guest: guestMemory
	year = 366 * 24 * 3600
	// many is more than a test's minutes can count, and less than a mistake in the unit.
	many = 1e6
)

var (
	// lately is a time between the test's beginning and now.
	lately = figure{least: -5, most: 5, others: math.Inf(1), time: true}
	// once is the same for a series that is 0 before.
	once = figure{least: -5, most: 5, time: true}
	// ahead is a time after now.
	ahead = figure{least: 3600, most: 100 * year, others: math.Inf(1), time: true}
)

const (
	noFault   = "another test has the fault"
	noAgent   = "the guest's agent is too old"
	noRestore = "nothing is restored"
)

// unknownOfMany are the labels that some VMIs do not have.
var unknownOfMany = []string{"node", "os", "workload", "flavor", "instance_type", "preference", "guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id"}

var figures = map[string]figure{
	"kubevirt_info":                                       is(1),
	"kubevirt_virt_handler_ready_status":                  is(1),
	"drydock_node_ready_status":                           is(1),
	"drydock_node_certificate_expiry_timestamp_seconds":   ahead,
	"drydock_node_certificate_renewal_timestamp_seconds":  ahead,
	"kubevirt_node_deprecated_machine_types":              absent("it depends on the release of QEMU"),
	"kubevirt_vmi_sync_total":                             all(1, many),
	"kubevirt_vmi_guest_os_panic_total":                   absent(noFault),
	"kubevirt_vmi_memory_resident_bytes":                  all(ram/4, 8*ram),
	"kubevirt_vmi_memory_domain_bytes":                    is(ram),
	"kubevirt_vmi_memory_actual_balloon_bytes":            all(ram/4, ram+mega),
	"kubevirt_vmi_memory_available_bytes":                 all(ram/4, ram),
	"kubevirt_vmi_memory_unused_bytes":                    all(mega, ram),
	"kubevirt_vmi_memory_usable_bytes":                    all(mega, ram),
	"kubevirt_vmi_memory_cached_bytes":                    all(mega/16, ram),
	"kubevirt_vmi_memory_used_bytes":                      all(mega, ram),
	"kubevirt_vmi_memory_swap_in_traffic_bytes":           is(0),
	"kubevirt_vmi_memory_swap_out_traffic_bytes":          is(0),
	"kubevirt_vmi_memory_pgmajfault_total":                all(0, many),
	"kubevirt_vmi_memory_pgminfault_total":                all(100, 100*many),
	"kubevirt_vmi_dirty_rate_bytes_per_second":            some(mega/8, 1024*mega),
	"kubevirt_vmi_cpu_usage_seconds_total":                all(0.2, 7200),
	"kubevirt_vmi_cpu_user_usage_seconds_total":           all(0.1, 7200),
	"kubevirt_vmi_cpu_system_usage_seconds_total":         all(0.01, 7200),
	"kubevirt_vmi_vcpu_seconds_total":                     all(0.1, 7200),
	"kubevirt_vmi_vcpu_delay_seconds_total":               all(0, 7200),
	"kubevirt_vmi_vcpu_wait_seconds_total":                all(0, 7200),
	"kubevirt_vmi_node_cpu_affinity":                      all(1, 4096),
	"kubevirt_vmi_storage_iops_read_total":                some(1, many),
	"kubevirt_vmi_storage_iops_write_total":               some(1, many),
	"kubevirt_vmi_storage_flush_requests_total":           some(1, many),
	"kubevirt_vmi_storage_read_traffic_bytes_total":       some(mega, 1024*mega),
	"kubevirt_vmi_storage_write_traffic_bytes_total":      some(2*mega, 1024*mega),
	"kubevirt_vmi_storage_read_times_seconds_total":       some(1e-6, 600),
	"kubevirt_vmi_storage_write_times_seconds_total":      some(1e-6, 600),
	"kubevirt_vmi_storage_flush_times_seconds_total":      some(1e-6, 600),
	"kubevirt_vmi_network_traffic_bytes_total":            some(300, 100*mega),
	"kubevirt_vmi_network_receive_bytes_total":            some(300, 100*mega),
	"kubevirt_vmi_network_transmit_bytes_total":           some(300, 100*mega),
	"kubevirt_vmi_network_receive_packets_total":          some(5, many),
	"kubevirt_vmi_network_transmit_packets_total":         some(5, many),
	"kubevirt_vmi_network_receive_errors_total":           is(0),
	"kubevirt_vmi_network_transmit_errors_total":          is(0),
	"kubevirt_vmi_network_receive_packets_dropped_total":  all(0, many),
	"kubevirt_vmi_network_transmit_packets_dropped_total": all(0, many),
	"kubevirt_vmi_filesystem_capacity_bytes":              some(mega, 1024*mega, "disk_name"),
	"kubevirt_vmi_filesystem_used_bytes":                  some(2*mega, 1024*mega, "disk_name"),
	"kubevirt_vmi_guest_load_1m":                          absent(noAgent),
	"kubevirt_vmi_guest_load_5m":                          absent(noAgent),
	"kubevirt_vmi_guest_load_15m":                         absent(noAgent),
	"kubevirt_vmi_guest_vcpu_queue":                       absent(noAgent),
	"kubevirt_vmi_migration_data_bytes_total":             all(ram/4, 16*ram),
	"kubevirt_vmi_migration_data_total_bytes":             all(ram/4, 16*ram),
	"kubevirt_vmi_migration_data_processed_bytes":         all(mega/4, 16*ram),
	"kubevirt_vmi_migration_data_remaining_bytes":         all(mega/4, 16*ram),
	"kubevirt_vmi_migration_dirty_memory_rate_bytes":      all(0, 16*ram),
	"kubevirt_vmi_migration_memory_transfer_rate_bytes":   all(mega/16, 64*mega),
	"drydock_vmi_migration_expected_downtime_seconds":     all(0, 600),
	"drydock_vmi_migration_duration_seconds":              some(1, many),
	"drydock_vmi_migration_downtime_seconds":              some(1, many),
	"drydock_vmi_migration_sent_bytes":                    some(1, many),

	"kubevirt_virt_controller_leading_status":                            some(1, 1),
	"kubevirt_virt_controller_ready_status":                              is(1),
	"kubevirt_configuration_emulation_enabled":                           is(1),
	"kubevirt_vmi_phase_count":                                           some(1, 100, unknownOfMany...),
	"kubevirt_number_of_vms":                                             is(2),
	"kubevirt_vm_info":                                                   is(1, "status", "os", "workload", "flavor", "instance_type", "preference", "machine_type"),
	"kubevirt_vm_create_date_timestamp_seconds":                          lately,
	"kubevirt_vm_starting_status_last_transition_timestamp_seconds":      once,
	"kubevirt_vm_running_status_last_transition_timestamp_seconds":       once,
	"kubevirt_vm_migrating_status_last_transition_timestamp_seconds":     once,
	"kubevirt_vm_non_running_status_last_transition_timestamp_seconds":   all(0, 4e9),
	"kubevirt_vm_error_status_last_transition_timestamp_seconds":         all(0, 4e9),
	"kubevirt_vm_resource_requests":                                      all(0.05, 1024*mega),
	"kubevirt_vm_resource_limits":                                        is(1),
	"kubevirt_vm_disk_allocated_size_bytes":                              all(mega, 1024*mega),
	"kubevirt_vm_vnic_info":                                              is(1, "binding_name", "model", "network"),
	"kubevirt_vmi_vnic_info":                                             is(1, "binding_name", "model", "network"),
	"kubevirt_vmi_info":                                                  is(1, append([]string{"vmi_pod"}, unknownOfMany...)...),
	"kubevirt_vmi_status_addresses":                                      is(1, "address", "interface_name", "vnic_name"),
	"kubevirt_vmi_launcher_memory_overhead_bytes":                        all(32*mega, 1024*mega),
	"kubevirt_vmi_non_evictable":                                         all(0, 1),
	"kubevirt_vmi_number_of_outdated":                                    is(0),
	"kubevirt_vmi_migrations_in_unset_phase":                             all(0, 10),
	"kubevirt_vmi_migrations_in_pending_phase":                           all(0, 10),
	"kubevirt_vmi_migrations_in_scheduling_phase":                        all(0, 10),
	"kubevirt_vmi_migrations_in_running_phase":                           some(1, 10),
	"kubevirt_vmi_migration_succeeded":                                   is(1),
	"kubevirt_vmi_migration_failed":                                      absent(noFault),
	"kubevirt_vmi_migration_start_time_seconds":                          lately,
	"kubevirt_vmi_migration_end_time_seconds":                            lately,
	"kubevirt_vmi_migration_phase_transition_time_from_creation_seconds": some(1, many),
	"kubevirt_vmi_phase_transition_time_seconds":                         some(1, many, "last_phase"),
	"kubevirt_vmi_phase_transition_time_from_creation_seconds":           some(1, many),
	"kubevirt_vmi_phase_transition_time_from_deletion_seconds":           absent("no guest ends before"),
	"kubevirt_vmsnapshot_disks_restored_from_source":                     absent(noRestore),
	"kubevirt_vmsnapshot_disks_restored_from_source_bytes":               absent(noRestore),
	"kubevirt_vmsnapshot_succeeded_timestamp_seconds":                    lately,

	"drydock_nodes":                  is(2),
	"drydock_nodes_schedulable":      all(1, 2),
	"drydock_nodes_with_kvm":         all(0, 2),
	"drydock_node_silent_guests":     absent("its alert has the fault, later in this test"),
	"drydock_vmi_stopped":            absent("its alert has the fault, later in this test"),
	"drydock_launcher_pods":          some(2, 100),
	"drydock_component_pods_desired": all(1, 10),
	"drydock_component_pods_ready":   all(1, 10),

	"kubevirt_virt_api_ready_status":                     is(1),
	"kubevirt_console_active_connections":                some(1, 10),
	"kubevirt_vnc_active_connections":                    is(1),
	"kubevirt_portforward_active_tunnels":                is(1),
	"kubevirt_vmi_last_api_connection_timestamp_seconds": lately,
	"drydock_certificate_expiry_timestamp_seconds":       ahead,
	"drydock_certificate_renewal_timestamp_seconds":      ahead,

	"kubevirt_rest_client_requests_total":                  some(1, many, "resource", "verb"),
	"kubevirt_rest_client_request_latency_seconds":         some(1, many),
	"kubevirt_rest_client_rate_limiter_duration_seconds":   some(1, many),
	"kubevirt_workqueue_depth":                             all(0, 1000),
	"kubevirt_workqueue_adds_total":                        some(1, many),
	"kubevirt_workqueue_retries_total":                     all(0, many),
	"kubevirt_workqueue_queue_duration_seconds":            some(1, many),
	"kubevirt_workqueue_work_duration_seconds":             some(1, many),
	"kubevirt_workqueue_unfinished_work_seconds":           all(0, 600),
	"kubevirt_workqueue_longest_running_processor_seconds": all(0, 600),
}
