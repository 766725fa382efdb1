package ruletable

import (
	"slices"
	"time"
)

const (
	aWhile   = 10 * time.Minute
	aQuarter = 15 * time.Minute
)

// Where guests may be emulated, nodes without KVM take them, too.
const noEmulation = `max(kubevirt_configuration_emulation_enabled) == 0`

var aboutNodes = []Alert{
	{Name: "LowKVMNodesCount", Expr: `cluster:kubevirt_nodes_with_kvm:count < 2 and cluster:kubevirt_nodes_allocatable:count > 1 and ` + noEmulation, For: 5 * time.Minute, Severity: Warning, Impact: Warning,
		Summary: "Fewer than two nodes have KVM.", Description: "Guests can't be migrated: {{ $value }} nodes have KVM, and the KubeVirt object does not allow emulation."},
	{Name: "KubeVirtNoAvailableNodesToRunVMs", Expr: `cluster:kubevirt_nodes_allocatable:count == 0 or (cluster:kubevirt_nodes_with_kvm:count == 0 and ` + noEmulation + `)`, For: 5 * time.Minute, Severity: Warning, Impact: Critical,
		Summary: "No node can take a guest.", Description: "Every node is cordoned or has no virt-handler, or none has KVM and the KubeVirt object does not allow emulation."},
	{Name: "OrphanedVirtualMachineInstances", Expr: `sum by (node) (kubevirt_vmi_phase_count{phase=~"scheduled|running", node!=""}) > 0 unless on (node) drydock_node_ready_status == 1`, For: aWhile, Severity: Warning, Impact: Warning,
		Summary: "The node {{ $labels.node }} has guests and no virt-handler that is ready.", Description: "{{ $value }} guests run on without anybody who stops, migrates or reports them."},
}

// component is one of Drydock's, with the names of its alerts.
type component struct {
	pods, word                  string
	down, lowReady, none, burst string
}

// running has each pod that Prometheus knows.
func (c component) running() string { return `group by (pod) (up{` + home(c.pods) + `})` }

// fresh counts the pods that were not there ten minutes ago.
func (c component) fresh() string {
	return `count(` + c.running() + ` unless group by (pod) (up{` + home(c.pods) + `} offset 10m))`
}

func (c component) ready() string { return readiness(c.word) + `{` + home(c.pods) + `}` }

// health returns the alerts that each component has.
func (c component) health() []Alert {
	of := "cluster:kubevirt_virt_" + c.word
	failed := `sum(rate(kubevirt_rest_client_requests_total{` + home(c.pods) + `, code=~"4..|5..|<error>"}[5m])) / sum(rate(kubevirt_rest_client_requests_total{` + home(c.pods) + `}[5m]))`
	return []Alert{
		{Name: c.down, Expr: of + `_pods_running:count == 0`, For: aWhile, Severity: Critical, Impact: Critical, Summary: "No pod of " + c.pods + " runs."},
		// It is about one pod: in an update, some pod is not ready all the time, but never the same one.
		{Name: c.lowReady, Expr: c.running() + ` unless on (pod) max by (pod) (` + c.ready() + `) == 1 and on () ` + of + `_ready:sum > 0`, For: aWhile, Severity: Warning, Impact: Warning,
			Summary: "A pod of " + c.pods + " runs and is not ready.", Description: "It is {{ $labels.pod }}."},
		{Name: c.none, Expr: of + `_ready:sum == 0`, For: aWhile, Severity: Critical, Impact: Critical, Summary: "No pod of " + c.pods + " is ready."},
		{Name: c.burst, Expr: failed + ` >= 0.8`, For: 5 * time.Minute, Severity: Critical, Impact: Critical,
			Summary: "Most requests of " + c.pods + " to the API server fail.", Description: "{{ $value | humanizePercentage }} of them failed in the last five minutes."},
	}
}

// few is for Deployments: too few pods of those that are wanted.
func (c component) few(name string, after time.Duration) Alert {
	return Alert{Name: name, Expr: `cluster:kubevirt_virt_` + c.word + `_up:sum / on () max(drydock_component_pods_desired{component="` + c.pods + `"}) < 0.75`, For: after, Severity: Warning, Impact: Warning,
		Summary: "Fewer than three quarters of the pods of " + c.pods + " answer.", Description: "{{ $value | humanizePercentage }} of those that its Deployment wants do."}
}

var (
	theAPI        = component{"virt-api", "api", "VirtAPIDown", "LowReadyVirtAPICount", "NoReadyVirtAPI", "VirtApiRESTErrorsBurst"}
	theController = component{"virt-controller", "controller", "VirtControllerDown", "LowReadyVirtControllersCount", "NoReadyVirtController", "VirtControllerRESTErrorsBurst"}
	theHandler    = component{"virt-handler", "handler", "VirtHandlerDown", "LowReadyVirtHandlerCount", "NoReadyVirtHandler", "VirtHandlerRESTErrorsBurst"}
)

var aboutComponents = slices.Concat(theAPI.health(), theController.health(), theHandler.health(), []Alert{
	theAPI.few("LowVirtAPICount", time.Hour),
	theController.few("LowVirtControllersCount", aWhile),
	{Name: "VirtHandlerDaemonSetRolloutFailing", Expr: `max(drydock_component_pods_desired{component="virt-handler"}) - max(drydock_component_pods_ready{component="virt-handler"}) > 0 unless ` + theHandler.fresh() + ` > 0`, For: aQuarter, Severity: Warning, Impact: Warning,
		Summary: "{{ $value }} nodes have no virt-handler that is ready.", Description: "The DaemonSet virt-handler wants more pods than are ready, and no pod is new."},
	{Name: "KubeVirtDeprecatedAPIRequested", Expr: `sum by (group, version, resource) (increase(apiserver_request_total{group=~"(.+[.])?kubevirt[.]io", verb!~"LIST|WATCH|DELETE"}[10m]) and on (group, version, resource, subresource) apiserver_requested_deprecated_apis) > 0`, Severity: Info, Impact: None,
		Summary: "Somebody uses a deprecated version of the API.", Description: "There were {{ $value | humanize }} requests for {{ $labels.resource }} of {{ $labels.group }}/{{ $labels.version }} in ten minutes."},
})

var aboutVMs = []Alert{
	{Name: "VirtLauncherPodsStuckFailed", Expr: `max(drydock_launcher_pods{phase="failed"}) >= 200`, For: aWhile, Severity: Critical, Impact: Critical,
		Summary: "{{ $value }} launcher pods have failed and are not deleted."},
	{Name: "VMCannotBeEvicted", Expr: `max by (node, namespace, name) (kubevirt_vmi_non_evictable) == 1`, For: time.Minute, Severity: Warning, Impact: None,
		Summary: "A guest must be migrated by a drain and can't be.", Description: "The VMI {{ $labels.namespace }}/{{ $labels.name }} on node {{ $labels.node }} has the evictionStrategy LiveMigrate and can't be migrated: a drain of the node will not end."},
	{Name: "KubeVirtVMIExcessiveMigrations", Expr: `count by (namespace, vmi) (max by (namespace, vmi, vmim) (max_over_time(kubevirt_vmi_migration_succeeded[1d]))) >= 12`, Severity: Warning, Impact: None,
		Summary: "A guest is migrated very often.", Description: "The VMI {{ $labels.namespace }}/{{ $labels.vmi }} was migrated {{ $value }} times in a day."},
	{Name: "OutdatedVirtualMachineInstanceWorkloads", Expr: `max(kubevirt_vmi_number_of_outdated) > 0`, For: 24 * time.Hour, Severity: Warning, Impact: None,
		Summary: "{{ $value }} guests are still in pods of an older image."},
	// A VM that crashes again and again has another status each time when it starts.
	{Name: "VirtualMachineStuckInUnhealthyState", Expr: `max by (namespace, name, status) (kubevirt_vm_info{status=~"provisioning|starting|terminating"} or kubevirt_vm_info{status_group="error"}) unless on (namespace, name) kubevirt_vmi_info{phase=~"scheduled|running"}` +
		` or max by (namespace, name, status) (max_over_time(kubevirt_vm_info{status="crashloopbackoff"}[6m]))`, For: aWhile, Severity: Warning, Impact: None,
		Summary: "A VM that is on no node does not get on.", Description: "The VM {{ $labels.namespace }}/{{ $labels.name }} has had the status {{ $labels.status }} for ten minutes."},
	{Name: "VirtualMachineStuckOnNode", Expr: `topk by (namespace, name) (1, max by (namespace, name, status) (kubevirt_vm_info{status=~"starting|stopping|terminating"} or kubevirt_vm_info{status_group="error"}))` +
		` * on (namespace, name) group_right (status) max by (namespace, name, node) (topk by (namespace, name) (1, kubevirt_vmi_info{phase=~"scheduled|running"}))`, For: 5 * time.Minute, Severity: Warning, Impact: None,
		Summary: "A VM with a VMI on a node does not get on.", Description: "The VM {{ $labels.namespace }}/{{ $labels.name }} on node {{ $labels.node }} has had the status {{ $labels.status }} for five minutes."},
}

// filesystems are those that can fill up: file systems of images are always full, and those of the kernel have no room.
const filesystems = `{file_system_type!~"(?i)(cdfs|iso9660|udf|squashfs|cramfs|erofs|(dev)?tmpfs|ramfs|rootfs|overlay|fuse.*|proc|sysfs|cgroup2?)", mount_point!="System Reserved"}`

const (
	fullness = `max by (namespace, name, disk_name, mount_point) (kubevirt_vmi_filesystem_used_bytes` + filesystems + ` / kubevirt_vmi_filesystem_capacity_bytes` + filesystems + `)`
	isFull   = "The file system {{ $labels.mount_point }} of {{ $labels.namespace }}/{{ $labels.name }} (disk {{ $labels.disk_name }}) is full by {{ $value | humanizePercentage }}."
	// panics are those of the last day. A series begins with its first panic, which increase() does not count.
	panics = `max_over_time(kubevirt_vmi_guest_os_panic_total[24h]) - (kubevirt_vmi_guest_os_panic_total offset 24h or 0 * max_over_time(kubevirt_vmi_guest_os_panic_total[24h]))`
	swaps  = `(vmi:kubevirt_vmi_pgmajfaults:rate5m > 5 or vmi:kubevirt_vmi_swap_traffic_bytes:rate5m > 1048576)`
)

var aboutGuests = []Alert{
	{Name: "GuestVCPUQueueHighWarning", Expr: asVM(`vmi:kubevirt_vmi_guest_queue_length:sum > 10`), Severity: Warning, Impact: None,
		Summary: "More than ten tasks wait for a guest's CPUs.", Description: "In {{ $labels.namespace }}/{{ $labels.name }}, {{ $value | humanize }} tasks wait."},
	{Name: "GuestVCPUQueueHighCritical", Expr: asVM(`vmi:kubevirt_vmi_guest_queue_length:sum > 20`), Severity: Critical, Impact: None,
		Summary: "More than twenty tasks wait for a guest's CPUs.", Description: "In {{ $labels.namespace }}/{{ $labels.name }}, {{ $value | humanize }} tasks wait."},
	{Name: "KubeVirtVMGuestMemoryPressure", Expr: asVM(`vmi:kubevirt_vmi_memory_headroom_ratio:sum < 0.05 and ` + swaps), For: 5 * time.Minute, Severity: Warning, Impact: None,
		Summary: "A guest swaps, as it has hardly any memory left.", Description: "{{ $labels.namespace }}/{{ $labels.name }} has {{ $value | humanizePercentage }} of its memory left."},
	{Name: "KubeVirtVMGuestMemoryAvailableLow", Expr: asVM(`vmi:kubevirt_vmi_memory_headroom_ratio:sum < 0.03 and vmi:kubevirt_vmi_swap_traffic_bytes:rate30m < 2048 and vmi:kubevirt_vmi_pgmajfaults:rate30m < 1`), For: 30 * time.Minute, Severity: Info, Impact: None,
		Summary: "A guest has hardly any memory left, and does not swap.", Description: "{{ $labels.namespace }}/{{ $labels.name }} has {{ $value | humanizePercentage }} of its memory left."},
	{Name: "GuestFilesystemAlmostOutOfSpace", Expr: asVM(fullness + ` >= 0.85 < 0.95`), For: aWhile, Severity: Warning, Impact: None,
		Summary: "A guest's file system fills up.", Description: isFull},
	{Name: "GuestFilesystemAlmostOutOfSpace", Expr: asVM(fullness + ` >= 0.95`), Severity: Critical, Impact: None,
		Summary: "A guest's file system is almost full.", Description: isFull},
	{Name: "VMNonRecoverableOSPanic", Expr: asVM(`sum by (namespace, name) (` + panics + `) > 5`), For: time.Minute, Severity: Critical, Impact: None,
		Summary: "A guest's system has panicked more than five times in a day.", Description: "It is {{ $labels.namespace }}/{{ $labels.name }}."},
}

// asVM adds the label vm, by which consoles link an alert with its VM.
func asVM(expr string) string { return `label_replace(` + expr + `, "vm", "$1", "name", "(.+)")` }

// left selects certificates of which half of the time between the day when they were due and their end has gone.
func left(metric string) string {
	expiry, due := metric+"_expiry_timestamp_seconds", metric+"_renewal_timestamp_seconds"
	return expiry + ` - time() < (` + expiry + ` - ` + due + `) / 2`
}

// aboutDrydock are Drydock's own.
var aboutDrydock = []Alert{
	{Name: "DrydockDiskNotWritable", Expr: asVM(`max by (node, namespace, name) (max_over_time(drydock_vmi_stopped{reason="PausedIOError"}[3m]))`), For: 5 * time.Minute, Severity: Critical, Impact: None,
		// A guest that is resumed and stopped again runs in between.
		Summary: "A guest stands still because one of its disks fails.", Description: "QEMU has stopped {{ $labels.namespace }}/{{ $labels.name }} on node {{ $labels.node }}: a disk can't be read or written, or its storage is full."},
	{Name: "DrydockGuestStopped", Expr: asVM(`max by (node, namespace, name, reason) (drydock_vmi_stopped{reason=~"PausedByWatchdog|PausedByDebugger|UnknownRunState"})`), For: 2 * time.Minute, Severity: Critical, Impact: None,
		Summary: "QEMU has stopped a guest, and no user asked for it.", Description: "{{ $labels.namespace }}/{{ $labels.name }} on node {{ $labels.node }} stands still: {{ $labels.reason }}."},
	{Name: "DrydockNodeSilentWithGuests", Expr: `max by (node) (drydock_node_silent_guests) > 0`, For: 2 * time.Minute, Severity: Critical, Impact: Warning,
		Summary: "The node {{ $labels.node }} does not answer, and has {{ $value }} guests.", Description: "Nobody knows whether they run. They are not started elsewhere before the node is known to be off."},
	{Name: "DrydockCertificateNearEnd", Expr: left("drydock_certificate"), Severity: Critical, Impact: Critical,
		Summary: "A certificate of Drydock was not renewed and will expire.", Description: "It is the {{ $labels.part }} in the Secret {{ $labels.secret }}."},
	{Name: "DrydockCertificateNearEnd", Expr: left("drydock_node_certificate"), Severity: Warning, Impact: Warning,
		Summary: "The certificate of virt-handler on node {{ $labels.node }} was not renewed and will expire.", Description: "After that, consoles, screens and migrations of the node's guests fail."},
}

var missingAlerts = []Missing{
	{"VirtOperatorDown", noOperator},
	{"LowVirtOperatorCount", noOperator},
	{"VirtOperatorRESTErrorsBurst", noOperator},
	{"LowReadyVirtOperatorsCount", noOperator},
	{"NoReadyVirtOperator", noOperator},
	{"NoLeadingVirtOperator", noOperator},
}
