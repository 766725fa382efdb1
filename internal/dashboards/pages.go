package dashboards

// rate returns the gain of a counter in a second.
func rate(counter string) string { return "rate(" + counter + "[$__rate_interval])" }

// quantiles returns queries of a histogram's median and of its largest values.
func quantiles(histogram, by string) []Query {
	legend := ""
	if by != "" {
		legend, by = " {{"+by+"}}", ", "+by
	}
	of := ` sum by (le` + by + `) (` + rate(histogram) + `))`
	return []Query{{"histogram_quantile(0.5," + of, "median" + legend}, {"histogram_quantile(0.95," + of, "95 %" + legend}}
}

func one(expr, legend string) []Query { return []Query{{expr, legend}} }

const (
	inNamespace = `{namespace=~"$namespace"}`
	topTen      = `topk(10, sum by (namespace, name) (`
	byName      = "{{namespace}}/{{name}}"
)

var fleet = Dashboard{
	Name: "fleet", Title: "Fleet",
	Variables: []Variable{{Name: "namespace", Metric: "kubevirt_vm_info", Label: "namespace", Several: true}},
	Rows: []Row{
		{"Now", []Panel{
			{"VMs", Number, Count, one(`sum(namespace:kubevirt_vm:sum`+inNamespace+`)`, "")},
			{"Guests that run", Number, Count, one(`count(kubevirt_vmi_info{namespace=~"$namespace", phase="running"})`, "")},
			{"VMs with an error", Number, Count, one(`count(kubevirt_vm_info{namespace=~"$namespace", status_group="error"}) or vector(0)`, "")},
			{"Guests that stand still", Number, Count, one(`count(drydock_vmi_stopped`+inNamespace+`) or vector(0)`, "")},
			{"Guests on silent nodes", Number, Count, one(`sum(drydock_node_silent_guests) or vector(0)`, "")},
			{"Nodes that take guests", Number, Count, one(`cluster:kubevirt_nodes_allocatable:count`, "")},
		}},
		{"VMs", []Panel{
			{"VMs by status", Graph, Count, one(`count by (status) (kubevirt_vm_info`+inNamespace+`)`, "{{status}}")},
			{"VMIs by phase", Graph, Count, one(`count by (phase) (kubevirt_vmi_info`+inNamespace+`)`, "{{phase}}")},
			{"Guests by node", Graph, Count, one(`count by (node) (kubevirt_vmi_info{namespace=~"$namespace", phase="running"})`, "{{node}}")},
			{"Time until guests run", Graph, Seconds, quantiles(`kubevirt_vmi_phase_transition_time_from_creation_seconds_bucket{phase="Running"}`, "")},
			{"Guests that can't be migrated and must be", Table, Count, one(`kubevirt_vmi_non_evictable{namespace=~"$namespace"} == 1`, "")},
			{"Guests that stand still", Table, Count, one(`drydock_vmi_stopped`+inNamespace, "")},
		}},
		{"Usage", []Panel{
			{"CPU by namespace", Graph, Count, one(`sum by (namespace) (`+rate(`kubevirt_vmi_cpu_usage_seconds_total`+inNamespace)+`)`, "{{namespace}}")},
			{"Memory of QEMU by namespace", Graph, Bytes, one(`sum by (namespace) (kubevirt_vmi_memory_resident_bytes`+inNamespace+`)`, "{{namespace}}")},
			{"CPU by node", Graph, Count, one(`sum by (node) (`+rate(`kubevirt_vmi_cpu_usage_seconds_total`+inNamespace)+`)`, "{{node}}")},
			{"Most CPU", Graph, Count, one(topTen+rate(`kubevirt_vmi_cpu_usage_seconds_total`+inNamespace)+`))`, byName)},
			{"Longest waits for a CPU", Graph, Count, one(topTen+rate(`kubevirt_vmi_vcpu_delay_seconds_total`+inNamespace)+`))`, byName)},
			{"Least memory left", Graph, Ratio, one(`bottomk(10, vmi:kubevirt_vmi_memory_headroom_ratio:sum`+inNamespace+`)`, byName)},
			{"Most network traffic", Graph, BytesPerSecond, one(topTen+rate(`kubevirt_vmi_network_receive_bytes_total`+inNamespace)+` + `+rate(`kubevirt_vmi_network_transmit_bytes_total`+inNamespace)+`))`, byName)},
			{"Most disk traffic", Graph, BytesPerSecond, one(topTen+rate(`kubevirt_vmi_storage_read_traffic_bytes_total`+inNamespace)+` + `+rate(`kubevirt_vmi_storage_write_traffic_bytes_total`+inNamespace)+`))`, byName)},
			{"Fullest file systems", Graph, Ratio, one(`topk(10, kubevirt_vmi_filesystem_used_bytes`+inNamespace+` / kubevirt_vmi_filesystem_capacity_bytes`+inNamespace+`)`, byName+" {{mount_point}}")},
		}},
	},
}

const this = `{namespace="$namespace", name="$name"}`

// both returns the two directions of a figure.
func both(in, out, first, second, label string) []Query {
	return []Query{{rate(in + this), first + " {{" + label + "}}"}, {rate(out + this), second + " {{" + label + "}}"}}
}

// latency returns the mean time of a disk's requests of a kind.
func latency(word, count string) Query {
	return Query{rate("kubevirt_vmi_storage_"+word+"_times_seconds_total"+this) + " / " + rate("kubevirt_vmi_storage_"+count+"_total"+this), word + " {{drive}}"}
}

var machine = Dashboard{
	Name: "machine", Title: "One machine",
	Variables: []Variable{
		{Name: "namespace", Metric: "kubevirt_vm_info", Label: "namespace"},
		{Name: "name", Metric: `kubevirt_vm_info{namespace="$namespace"}`, Label: "name"},
	},
	Rows: []Row{
		{"State", []Panel{
			{"VM", Table, Count, one(`kubevirt_vm_info`+this, "")},
			{"VMI", Table, Count, one(`kubevirt_vmi_info`+this, "")},
			{"Addresses", Table, Count, one(`kubevirt_vmi_status_addresses`+this, "")},
			{"Why the guest stands still", Table, Count, one(`drydock_vmi_stopped`+this, "")},
		}},
		{"CPU and memory", []Panel{
			{"CPU", Graph, Count, []Query{{rate(`kubevirt_vmi_cpu_usage_seconds_total` + this), "all of QEMU"}, {rate(`kubevirt_vmi_cpu_system_usage_seconds_total` + this), "in the node's kernel"}}},
			{"Virtual CPUs", Graph, Ratio, []Query{{rate(`kubevirt_vmi_vcpu_seconds_total` + this), "{{id}} runs"}, {rate(`kubevirt_vmi_vcpu_delay_seconds_total` + this), "{{id}} waits for the node"}}},
			{"Load in the guest", Graph, Count, []Query{{`kubevirt_vmi_guest_load_1m` + this, "one minute"}, {`kubevirt_vmi_guest_load_15m` + this, "fifteen minutes"}, {`vmi:kubevirt_vmi_guest_queue_length:sum` + this, "waiting"}}},
			{"Memory in the guest", Graph, Bytes, []Query{{`kubevirt_vmi_memory_available_bytes` + this, "available"}, {`kubevirt_vmi_memory_usable_bytes` + this, "usable"}, {`kubevirt_vmi_memory_cached_bytes` + this, "caches"}, {`kubevirt_vmi_memory_unused_bytes` + this, "unused"}}},
			{"Memory on the node", Graph, Bytes, []Query{{`kubevirt_vmi_memory_resident_bytes` + this, "QEMU"}, {`kubevirt_vmi_memory_domain_bytes` + this, "the guest's machine"}, {`kubevirt_vmi_memory_actual_balloon_bytes` + this, "left by the balloon"}}},
			{"Swapping in the guest", Graph, BytesPerSecond, []Query{{rate(`kubevirt_vmi_memory_swap_in_traffic_bytes` + this), "in"}, {rate(`kubevirt_vmi_memory_swap_out_traffic_bytes` + this), "out"}}},
		}},
		{"Disks", []Panel{
			{"Traffic", Graph, BytesPerSecond, both("kubevirt_vmi_storage_read_traffic_bytes_total", "kubevirt_vmi_storage_write_traffic_bytes_total", "read", "write", "drive")},
			{"Requests", Graph, PerSecond, both("kubevirt_vmi_storage_iops_read_total", "kubevirt_vmi_storage_iops_write_total", "read", "write", "drive")},
			{"Mean time of a request", Graph, Seconds, []Query{latency("read", "iops_read"), latency("write", "iops_write"), latency("flush", "flush_requests")}},
			{"File systems", Graph, Ratio, one(`kubevirt_vmi_filesystem_used_bytes`+this+` / kubevirt_vmi_filesystem_capacity_bytes`+this, "{{mount_point}}")},
		}},
		{"Network", []Panel{
			{"Traffic", Graph, BytesPerSecond, both("kubevirt_vmi_network_receive_bytes_total", "kubevirt_vmi_network_transmit_bytes_total", "received", "sent", "interface")},
			{"Packets", Graph, PerSecond, both("kubevirt_vmi_network_receive_packets_total", "kubevirt_vmi_network_transmit_packets_total", "received", "sent", "interface")},
			{"Dropped packets", Graph, PerSecond, both("kubevirt_vmi_network_receive_packets_dropped_total", "kubevirt_vmi_network_transmit_packets_dropped_total", "received", "sent", "interface")},
			{"Open connections", Graph, Count, []Query{
				{`sum(kubevirt_console_active_connections{namespace="$namespace", vmi="$name"})`, "consoles"}, {`sum(kubevirt_vnc_active_connections{namespace="$namespace", vmi="$name"})`, "screens"},
				{`sum(kubevirt_portforward_active_tunnels{namespace="$namespace", vmi="$name"})`, "ports"},
			}},
		}},
	},
}

var migrations = Dashboard{
	Name: "migrations", Title: "Migrations",
	Variables: []Variable{{Name: "namespace", Metric: "kubevirt_vm_info", Label: "namespace", Several: true}},
	Rows: []Row{
		{"Now", []Panel{
			{"Waiting", Number, Count, one(`max(kubevirt_vmi_migrations_in_pending_phase)`, "")},
			{"With a pod without a node", Number, Count, one(`max(kubevirt_vmi_migrations_in_scheduling_phase)`, "")},
			{"Under way", Number, Count, one(`max(kubevirt_vmi_migrations_in_running_phase)`, "")},
			{"Succeeded, still listed", Number, Count, one(`count(kubevirt_vmi_migration_succeeded`+inNamespace+`) or vector(0)`, "")},
			{"Failed, still listed", Number, Count, one(`count(kubevirt_vmi_migration_failed`+inNamespace+`) or vector(0)`, "")},
			{"Guests in old pods", Number, Count, one(`max(kubevirt_vmi_number_of_outdated)`, "")},
		}},
		{"Memory that is sent", []Panel{
			{"Left to send", Graph, Bytes, one(`kubevirt_vmi_migration_data_remaining_bytes`+inNamespace, byName)},
			{"Sent", Graph, BytesPerSecond, one(`kubevirt_vmi_migration_memory_transfer_rate_bytes`+inNamespace, byName)},
			{"Changed by the guest", Graph, BytesPerSecond, one(`kubevirt_vmi_migration_dirty_memory_rate_bytes`+inNamespace, byName)},
			{"Standstill if the rest was sent now", Graph, Seconds, one(`drydock_vmi_migration_expected_downtime_seconds`+inNamespace, byName)},
		}},
		{"What they have cost", []Panel{
			{"Duration", Graph, Seconds, quantiles("drydock_vmi_migration_duration_seconds_bucket", "")},
			{"Standstill of guests", Graph, Seconds, quantiles("drydock_vmi_migration_downtime_seconds_bucket", "")},
			{"Bytes sent", Graph, Bytes, quantiles("drydock_vmi_migration_sent_bytes_bucket", "")},
			{"Time until each phase", Graph, Seconds, quantiles("kubevirt_vmi_migration_phase_transition_time_from_creation_seconds_bucket", "phase")},
			{"Migrations by source", Graph, PerSecond, one(`sum by (node) (`+rate(`drydock_vmi_migration_duration_seconds_count`)+`)`, "{{node}}")},
		}},
		{"Guests", []Panel{
			{"Failed migrations", Table, Count, one(`kubevirt_vmi_migration_failed`+inNamespace, "")},
			{"Guests that can't be migrated and must be", Table, Count, one(`kubevirt_vmi_non_evictable{namespace=~"$namespace"} == 1`, "")},
		}},
	},
}

// ours selects the series of Drydock's own pods.
const ours = `{namespace="kubevirt", pod=~"$component-.*"}`

func ready(component, word string) []Query {
	of := "cluster:kubevirt_virt_" + word
	return []Query{{of + "_ready:sum", "ready"}, {of + "_pods_running:count", "running"}, {`max(drydock_component_pods_desired{component="` + component + `"})`, "wanted"}}
}

var controlPlane = Dashboard{
	Name: "control-plane", Title: "Control plane",
	Variables: []Variable{{Name: "component", Metric: "drydock_component_pods_desired", Label: "component", Several: true}},
	Rows: []Row{
		{"Pods", []Panel{
			{"virt-api", Graph, Count, ready("virt-api", "api")},
			{"virt-controller", Graph, Count, ready("virt-controller", "controller")},
			{"virt-handler", Graph, Count, ready("virt-handler", "handler")},
			{"The leader", Table, Count, one(`max by (pod) (kubevirt_virt_controller_leading_status) == 1`, "")},
			{"Versions", Table, Count, one(`count by (kubeversion, goversion) (kubevirt_info)`, "")},
		}},
		{"Nodes", []Panel{
			{"Nodes", Graph, Count, []Query{{`max(drydock_nodes)`, "all"}, {`cluster:kubevirt_nodes_allocatable:count`, "take guests"}, {`cluster:kubevirt_nodes_with_kvm:count`, "have KVM"}}},
			{"Nodes whose virt-handler is not ready", Table, Count, one(`drydock_node_ready_status == 0`, "")},
			{"Guests on silent nodes", Graph, Count, one(`max by (node) (drydock_node_silent_guests)`, "{{node}}")},
		}},
		{"Requests to the API server", []Panel{
			{"By status", Graph, PerSecond, one(`sum by (code) (`+rate(`kubevirt_rest_client_requests_total`+ours)+`)`, "{{code}}")},
			{"By resource and verb", Graph, PerSecond, one(`topk(10, sum by (resource, verb) (`+rate(`kubevirt_rest_client_requests_total`+ours)+`))`, "{{verb}} {{resource}}")},
			{"Time of a request", Graph, Seconds, quantiles(`kubevirt_rest_client_request_latency_seconds_bucket`+ours, "verb")},
			{"Waiting for the limit of the rate", Graph, Seconds, quantiles(`kubevirt_rest_client_rate_limiter_duration_seconds_bucket`+ours, "")},
		}},
		{"Loops", []Panel{
			{"Waiting objects", Graph, Count, one(`sum by (name) (kubevirt_workqueue_depth`+ours+`)`, "{{name}}")},
			{"Objects", Graph, PerSecond, one(`sum by (name) (`+rate(`kubevirt_workqueue_adds_total`+ours)+`)`, "{{name}}")},
			{"Retries", Graph, PerSecond, one(`sum by (name) (`+rate(`kubevirt_workqueue_retries_total`+ours)+`)`, "{{name}}")},
			{"Time in the queue", Graph, Seconds, quantiles(`kubevirt_workqueue_queue_duration_seconds_bucket`+ours, "name")},
			{"Time for an object", Graph, Seconds, quantiles(`kubevirt_workqueue_work_duration_seconds_bucket`+ours, "name")},
			{"The longest object", Graph, Seconds, one(`max by (name) (kubevirt_workqueue_longest_running_processor_seconds`+ours+`)`, "{{name}}")},
		}},
		{"Certificates", []Panel{
			{"Time left in Secrets", Graph, Seconds, one(`min by (secret, part) (drydock_certificate_expiry_timestamp_seconds) - time()`, "{{secret}} {{part}}")},
			{"Time left on nodes", Graph, Seconds, one(`min by (node) (drydock_node_certificate_expiry_timestamp_seconds) - time()`, "{{node}}")},
		}},
	},
}
