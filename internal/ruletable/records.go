package ruletable

import "strings"

// home selects Drydock's own pods by the labels that Prometheus adds to scraped series.
func home(component string) string { return `namespace="kubevirt", pod=~"` + component + `-.*"` }

func readiness(word string) string { return "kubevirt_virt_" + word + "_ready_status" }

// counted returns the rules about a component's pods. Prometheus finds a pod as soon as it has an address, so `up` exists
// for each that runs. A second scrape job may have the same pods.
func counted(component, word string) []Recording {
	of := "cluster:kubevirt_virt_" + word
	return []Recording{
		{Name: of + "_up:sum", Expr: `sum(max by (pod) (up{` + home(component) + `})) or vector(0)`, Help: "Number of " + component + "'s pods whose metrics can be read."},
		{Name: of + "_pods_running:count", Expr: `count(group by (pod) (up{` + home(component) + `})) or vector(0)`, Help: "Number of " + component + "'s pods that run."},
		{Name: of + "_ready:sum", Expr: `sum(max by (pod) (` + readiness(word) + `{` + home(component) + `})) or vector(0)`, Help: "Number of " + component + "'s pods that say that they are ready."},
	}
}

var ofComponents = append(append(append(counted("virt-api", "api"), counted("virt-controller", "controller")...), counted("virt-handler", "handler")...),
	Recording{Name: "cluster:kubevirt_nodes_allocatable:count", Expr: `max(drydock_nodes_schedulable)`, Help: "Number of nodes that take new guests."},
	Recording{Name: "cluster:kubevirt_non_schedulable_nodes:sum", Expr: `max(drydock_nodes) - max(drydock_nodes_schedulable)`, Help: "Number of nodes that take no new guests."},
	Recording{Name: "cluster:kubevirt_nodes_with_kvm:count", Expr: `max(drydock_nodes_with_kvm)`, Help: "Number of nodes that offer KVM to guests."},
)

const (
	swapTraffic = `sum by (namespace, name) (rate(kubevirt_vmi_memory_swap_in_traffic_bytes[RANGE]) + rate(kubevirt_vmi_memory_swap_out_traffic_bytes[RANGE]))`
	majorFaults = `sum by (namespace, name) (rate(kubevirt_vmi_memory_pgmajfault_total[RANGE]))`
)

var ofGuests = []Recording{
	{Name: "namespace:kubevirt_vm:sum", Expr: `max by (namespace) (kubevirt_number_of_vms)`, Help: "Number of VMs of a namespace."},
	{Name: "node:kubevirt_vmi_phase:sum", Expr: `sum by (node, phase, os, workload, flavor, instance_type, preference, guest_os_kernel_release, guest_os_machine, guest_os_arch, guest_os_name, guest_os_version_id) (kubevirt_vmi_info)`,
		Help: "Number of VMIs of a phase and with the same properties on a node."},
	{Name: "vmi:kubevirt_vmi_memory_used_bytes:sum", Expr: `sum by (node, namespace, name) (kubevirt_vmi_memory_used_bytes)`, Help: "Available less usable memory of a guest's system."},
	{Name: "vmi:kubevirt_vmi_memory_available_bytes:sum", Expr: `sum by (namespace, name) (kubevirt_vmi_memory_available_bytes)`, Help: "Memory that a guest's system manages."},
	{Name: "vmi:kubevirt_vmi_memory_headroom_ratio:sum", Expr: `sum by (namespace, name) (kubevirt_vmi_memory_usable_bytes) / sum by (namespace, name) (kubevirt_vmi_memory_available_bytes > 0)`,
		Help: "Part of its memory that a guest's system could give to programs without swapping."},
	{Name: "vmi:kubevirt_vmi_pgmajfaults:rate5m", Expr: during(majorFaults, "5m"), Help: "Page faults of a guest in a second that had to read a disk."},
	{Name: "vmi:kubevirt_vmi_pgmajfaults:rate30m", Expr: during(majorFaults, "30m"), Help: "Page faults of a guest in a second that had to read a disk."},
	{Name: "vmi:kubevirt_vmi_swap_traffic_bytes:rate5m", Expr: during(swapTraffic, "5m"), Help: "Bytes that a guest's system swaps in and out in a second."},
	{Name: "vmi:kubevirt_vmi_swap_traffic_bytes:rate30m", Expr: during(swapTraffic, "30m"), Help: "Bytes that a guest's system swaps in and out in a second."},
	{Name: "vmi:kubevirt_vmi_vcpu:count", Expr: `count by (node, namespace, name) (kubevirt_vmi_vcpu_seconds_total)`, Help: "Number of a guest's virtual CPUs."},
	{Name: "vmi:kubevirt_vmi_guest_queue_length:sum", Expr: `sum by (namespace, name) (kubevirt_vmi_guest_vcpu_queue)`, Help: "Load of a guest's system beyond its number of virtual CPUs."},
	{Name: "vm:kubevirt_vmsnapshot_disks_restored:sum", Expr: `max by (vm_name, vm_namespace) (kubevirt_vmsnapshot_disks_restored_from_source)`, Help: "Number of claims that were restored from snapshots of a VM."},
	{Name: "vm:kubevirt_vmsnapshot_restored_bytes:sum", Expr: `max by (vm_name, vm_namespace) (kubevirt_vmsnapshot_disks_restored_from_source_bytes)`, Help: "Size that claims ask for which were restored from snapshots of a VM."},
}

const (
	components = `virt-api|virt-controller|virt-handler|compute`
	compute    = `pod=~"virt-launcher-.*", container="compute"`
	asked      = `max by (namespace, pod, container) (kube_pod_container_resource_requests{resource="memory", `
)

// beyond returns the memory of the pod of each container that exceeds its request most.
func beyond(metric string) string {
	return `topk by (container) (1, max by (node, namespace, pod, container) (` + metric + `{container=~"` + components + `", pod=~"virt-.*"})` +
		` - on (namespace, pod, container) group_left () ` + asked + `container=~"` + components + `", pod=~"virt-.*"}))`
}

func margin(metric string) string {
	return asked + compute + `}) - on (namespace, pod, container) max by (namespace, pod, container) (` + metric + `{` + compute + `})`
}

const deltaHelp = "Memory of the pod that exceeds its request most, for each container of Drydock."

// ofOthers are empty without kube-state-metrics, the kubelet's metrics of containers, or kube-apiserver's.
var ofOthers = []Recording{
	{Name: "container:kubevirt_memory_delta_from_requested_bytes:max", Expr: beyond("container_memory_working_set_bytes"), Labels: map[string]string{"reason": "memory_working_set_delta_from_request"}, Help: deltaHelp},
	{Name: "container:kubevirt_memory_delta_from_requested_bytes:max", Expr: beyond("container_memory_rss"), Labels: map[string]string{"reason": "memory_rss_delta_from_request"}, Help: deltaHelp},
	{Name: "pod_container:kubevirt_vm_memory_request_margin_based_on_working_set_bytes:sum", Expr: margin("container_memory_working_set_bytes"), Help: "Memory request of a launcher pod less its working set."},
	{Name: "pod_container:kubevirt_vm_memory_request_margin_based_on_rss_bytes:sum", Expr: margin("container_memory_rss"), Help: "Memory request of a launcher pod less its resident memory."},
	{Name: "pvc:kubevirt_vmsnapshot_labels:info", Expr: `label_replace(label_replace(kube_persistentvolumeclaim_labels{label_restore_kubevirt_io_source_vm_name!="", label_restore_kubevirt_io_source_vm_namespace!=""}, "vm_name", "$1", "label_restore_kubevirt_io_source_vm_name", "(.*)"), "vm_namespace", "$1", "label_restore_kubevirt_io_source_vm_namespace", "(.*)")`,
		Help: "A claim that was restored from a snapshot of a VM, always 1."},
	{Name: "cluster:kubevirt_api_request_deprecated_total:sum", Expr: `sum by (group, version, resource, subresource, verb) (apiserver_request_total{group=~"(.+[.])?kubevirt[.]io"}) and on (group, version, resource, subresource) apiserver_requested_deprecated_apis`,
		Help: "Requests to deprecated versions of KubeVirt's API."},
}

// oldNames are deprecated by KubeVirt. Those that are missing in this list are metrics of Drydock. KubeVirt itself does not have
// kubevirt_allocatable_nodes_count any more, which a dashboard of kubevirt/monitoring asks for.
var oldNames = []Recording{
	also("kubevirt_allocatable_nodes", "cluster:kubevirt_nodes_allocatable:count"),
	also("kubevirt_allocatable_nodes_count", "cluster:kubevirt_nodes_allocatable:count"),
	also("kubevirt_nodes_with_kvm", "cluster:kubevirt_nodes_with_kvm:count"),
	also("kubevirt_api_request_deprecated_total", "cluster:kubevirt_api_request_deprecated_total:sum"),
	also("kubevirt_virt_api_up", "cluster:kubevirt_virt_api_up:sum"),
	also("kubevirt_virt_controller_up", "cluster:kubevirt_virt_controller_up:sum"),
	also("kubevirt_virt_controller_ready", "cluster:kubevirt_virt_controller_ready:sum"),
	also("kubevirt_virt_handler_up", "cluster:kubevirt_virt_handler_up:sum"),
	also("kubevirt_memory_delta_from_requested_bytes", "container:kubevirt_memory_delta_from_requested_bytes:max"),
	also("kubevirt_vm_container_memory_request_margin_based_on_rss_bytes", "pod_container:kubevirt_vm_memory_request_margin_based_on_rss_bytes:sum"),
	also("kubevirt_vm_container_memory_request_margin_based_on_working_set_bytes", "pod_container:kubevirt_vm_memory_request_margin_based_on_working_set_bytes:sum"),
	also("kubevirt_vmsnapshot_persistentvolumeclaim_labels", "pvc:kubevirt_vmsnapshot_labels:info"),
}

func also(old, name string) Recording {
	return Recording{Name: old, Expr: name, Help: "The earlier name of " + name + "."}
}

func during(expr, of string) string { return strings.ReplaceAll(expr, "RANGE", of) }

var foreigns = []Foreign{
	{Name: "up", By: "Prometheus", Labels: []string{"namespace", "pod"}},
	{Name: "container_memory_working_set_bytes", By: "the kubelet", Labels: []string{"node", "namespace", "pod", "container"}},
	{Name: "container_memory_rss", By: "the kubelet", Labels: []string{"node", "namespace", "pod", "container"}},
	{Name: "kube_pod_container_resource_requests", By: "kube-state-metrics", Labels: []string{"node", "namespace", "pod", "container", "resource", "unit"}},
	{Name: "kube_persistentvolumeclaim_labels", By: "kube-state-metrics with `--metric-labels-allowlist`", Labels: []string{"namespace", "persistentvolumeclaim",
		"label_restore_kubevirt_io_source_vm_name", "label_restore_kubevirt_io_source_vm_namespace"}},
	{Name: "apiserver_request_total", By: "kube-apiserver", Labels: []string{"group", "version", "resource", "subresource", "verb"}},
	{Name: "apiserver_requested_deprecated_apis", By: "kube-apiserver", Labels: []string{"group", "version", "resource", "subresource"}},
}

const noOperator = "Drydock has no virt-operator."

var missingRecordings = []Missing{
	{"cluster:kubevirt_virt_operator_up:sum", noOperator},
	{"cluster:kubevirt_virt_operator_pods_running:count", noOperator},
	{"cluster:kubevirt_virt_operator_ready:sum", noOperator},
	{"cluster:kubevirt_virt_operator_leading:sum", noOperator},
	{"kubevirt_virt_operator_up", noOperator},
	{"kubevirt_virt_operator_ready", noOperator},
	{"kubevirt_virt_operator_leading", noOperator},
	{"kubevirt_vm_created_total", "It sums up kubevirt_vm_created_by_pod_total, which is not served. KubeVirt deprecates both."},
}
