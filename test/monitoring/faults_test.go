package monitoring

import (
	"slices"
	"strings"
	"time"

	"drydock.dev/drydock/internal/ruletable"
)

// fault is a change of the healthy cluster, with all alerts that fire because of it.
type fault struct {
	name   string
	change string
	// turns are further changes, one at each step, again and again.
	turns  []string
	alerts []string
	// slow is how long it takes until the fault is seen in rates.
	slow time.Duration
	// step is how often the rules are evaluated, if that is not usual.
	step time.Duration
	// lasting faults have alerts that look back for longer than the test.
	lasting bool
}

// after returns how long the fault lasts.
func (f *fault) after() time.Duration {
	longest := 30 * time.Minute
	for _, a := range ruletable.Alerts() {
		if slices.Contains(f.alerts, a.Name+"/"+string(a.Severity)) {
			longest = max(longest, a.For)
		}
	}
	return f.slow + longest + beyond
}

// scraped returns the labels of a pod, of both jobs.
func scraped(component, n string) []string {
	labels := `namespace="kubevirt",pod="` + component + `-` + n + `"}`
	return []string{"{" + labels, `{job="again",` + labels}
}

// lost is a component whose pods are gone.
func lost(component, word string) string {
	lines := ""
	for _, n := range []string{"1", "2"} {
		for _, pod := range scraped(component, n) {
			lines += "up" + pod + " gone\nkubevirt_virt_" + word + "_ready_status" + pod + " gone\n"
		}
	}
	return lines
}

// unready is a component whose pods say that they are not ready.
func unready(component, word string, pods ...string) string {
	lines := ""
	for _, n := range pods {
		for _, pod := range scraped(component, n) {
			lines += `kubevirt_virt_` + word + `_ready_status` + pod + " 0\n"
		}
	}
	return lines
}

// failing is a component most of whose requests fail.
func failing(component, code string) string {
	return `kubevirt_rest_client_requests_total{namespace="kubevirt",pod="` + component + `-1",code="` + code + `"} +30`
}

// times repeats a line with the numbers from 1 in place of N.
func times(n int, line string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(line, "N", string(rune('a'+i))) + "\n")
	}
	return b.String()
}

const (
	ofWeb  = `{namespace="shop",name="web",node="node1"}`
	calm   = "kubevirt_vmi_memory_pgmajfault_total" + ofWeb + " +0\nkubevirt_vmi_memory_swap_in_traffic_bytes" + ofWeb + " +0\nkubevirt_vmi_memory_swap_out_traffic_bytes" + ofWeb + " +0\n"
	silent = "up{namespace=\"kubevirt\",pod=\"virt-api-1\"} 0\nup{job=\"again\",namespace=\"kubevirt\",pod=\"virt-api-1\"} 0\n" +
		"kubevirt_virt_api_ready_status{namespace=\"kubevirt\",pod=\"virt-api-1\"} gone\nkubevirt_virt_api_ready_status{job=\"again\",namespace=\"kubevirt\",pod=\"virt-api-1\"} gone"
	ofNew   = `kubevirt_vmi_info{namespace="shop",name="new",node="",phase="scheduling"}`
	crashed = `kubevirt_vm_info{namespace="shop",name="new",status="crashloopbackoff",status_group="error"}`
	starts  = `kubevirt_vm_info{namespace="shop",name="new",status="starting",status_group="starting"}`
	rootFS  = `kubevirt_vmi_filesystem_used_bytes{namespace="shop",name="web",node="node1",disk_name="vda1",mount_point="/",file_system_type="ext4"}`
)

var faults = []fault{
	{name: "one node has KVM", change: `drydock_nodes_with_kvm{pod="virt-controller-1"} 1`, alerts: []string{"LowKVMNodesCount/warning"}},
	{name: "one node has KVM, and guests may be emulated", change: "drydock_nodes_with_kvm{pod=\"virt-controller-1\"} 1\nkubevirt_configuration_emulation_enabled{pod=\"virt-controller-1\"} 1"},
	{name: "no node has KVM", change: `drydock_nodes_with_kvm{pod="virt-controller-1"} 0`, alerts: []string{"KubeVirtNoAvailableNodesToRunVMs/warning", "LowKVMNodesCount/warning"}},
	{name: "all nodes are cordoned", change: `drydock_nodes_schedulable{pod="virt-controller-1"} 0`, alerts: []string{"KubeVirtNoAvailableNodesToRunVMs/warning"}},

	{name: "virt-api is gone", change: lost("virt-api", "api"), alerts: []string{"LowVirtAPICount/warning", "NoReadyVirtAPI/critical", "VirtAPIDown/critical"}},
	{name: "virt-controller is gone", change: lost("virt-controller", "controller"), alerts: []string{"LowVirtControllersCount/warning", "NoReadyVirtController/critical", "VirtControllerDown/critical"}},
	{name: "virt-handler is gone", change: lost("virt-handler", "handler") + "drydock_node_ready_status{node=\"node1\",pod=\"virt-handler-1\"} gone\ndrydock_node_ready_status{node=\"node2\",pod=\"virt-handler-2\"} gone",
		alerts: []string{"NoReadyVirtHandler/critical", "OrphanedVirtualMachineInstances/warning", "VirtHandlerDown/critical"}},
	{name: "one virt-api is not ready", change: unready("virt-api", "api", "1"), alerts: []string{"LowReadyVirtAPICount/warning"}},
	{name: "one virt-controller is not ready", change: unready("virt-controller", "controller", "2"), alerts: []string{"LowReadyVirtControllersCount/warning"}},
	{name: "one virt-handler is not ready", change: unready("virt-handler", "handler", "2"), alerts: []string{"LowReadyVirtHandlerCount/warning"}},
	{name: "no virt-api is ready", change: unready("virt-api", "api", "1", "2"), alerts: []string{"NoReadyVirtAPI/critical"}},
	{name: "no virt-controller is ready", change: unready("virt-controller", "controller", "1", "2"), alerts: []string{"NoReadyVirtController/critical"}},
	{name: "no virt-handler is ready", change: unready("virt-handler", "handler", "1", "2"), alerts: []string{"NoReadyVirtHandler/critical"}},
	{name: "one virt-api does not answer", change: silent, alerts: []string{"LowReadyVirtAPICount/warning", "LowVirtAPICount/warning"}},
	{name: "virt-api's requests are refused", change: failing("virt-api", "403"), alerts: []string{"VirtApiRESTErrorsBurst/critical"}},
	{name: "virt-controller's requests fail", change: failing("virt-controller", "500"), alerts: []string{"VirtControllerRESTErrorsBurst/critical"}},
	{name: "virt-handler's requests get no answer", change: failing("virt-handler", "<error>"), alerts: []string{"VirtHandlerRESTErrorsBurst/critical"}},
	{name: "a node has no virt-handler", change: `drydock_component_pods_ready{component="virt-handler",pod="virt-controller-1"} 1`, alerts: []string{"VirtHandlerDaemonSetRolloutFailing/warning"}},
	{name: "a node with a guest has no virt-handler that is ready", change: `drydock_node_ready_status{node="node2",pod="virt-handler-2"} 0`, alerts: []string{"OrphanedVirtualMachineInstances/warning"}},
	{name: "somebody uses a deprecated version", change: `apiserver_request_total{group="kubevirt.io",version="v1alpha3",resource="virtualmachines",verb="POST"} +1`, alerts: []string{"KubeVirtDeprecatedAPIRequested/info"}},
	{name: "one of the API servers restarts", change: `apiserver_request_total{group="kubevirt.io",version="v1alpha3",resource="virtualmachines",verb="POST",instance="another"} 0`},

	{name: "launcher pods stay", change: `drydock_launcher_pods{phase="failed",pod="virt-controller-1"} 200`, alerts: []string{"VirtLauncherPodsStuckFailed/critical"}},
	{name: "a guest can't be migrated", change: `kubevirt_vmi_non_evictable` + ofWeb + ` 1`, alerts: []string{"VMCannotBeEvicted/warning"}},
	{name: "a guest is migrated all the time", change: times(11, `kubevirt_vmi_migration_succeeded{namespace="shop",vmi="web",vmim="N"} 1`), alerts: []string{"KubeVirtVMIExcessiveMigrations/warning"}, lasting: true},
	{name: "guests stay in old pods", change: `kubevirt_vmi_number_of_outdated{pod="virt-controller-1"} 2`, alerts: []string{"OutdatedVirtualMachineInstanceWorkloads/warning"}, step: 20 * time.Minute},
	{name: "an import never ends", change: `kubevirt_vm_info{namespace="shop",name="new",status="provisioning",status_group="starting"} 1`, alerts: []string{"VirtualMachineStuckInUnhealthyState/warning"}},
	{name: "an image of a guest's pod can't be pulled", change: "kubevirt_vm_info{namespace=\"shop\",name=\"new\",status=\"imagepullbackoff\",status_group=\"error\"} 1\n" + ofNew + ` 1`, alerts: []string{"VirtualMachineStuckInUnhealthyState/warning"}},
	{name: "no node has room for a guest", change: "kubevirt_vm_info{namespace=\"shop\",name=\"new\",status=\"errorunschedulable\",status_group=\"error\"} 1\n" + ofNew + ` 1`, alerts: []string{"VirtualMachineStuckInUnhealthyState/warning"}},
	{name: "a guest crashes at once, again and again", change: crashed + " 1", turns: []string{"", crashed + " gone\n" + starts + " 1\n" + ofNew + " 1", crashed + " 1\n" + starts + " gone\n" + ofNew + " gone"}, alerts: []string{"VirtualMachineStuckInUnhealthyState/warning"}},
	{name: "a guest does not stop", change: "kubevirt_vm_info{namespace=\"shop\",name=\"web\",status=\"running\",status_group=\"running\"} gone\nkubevirt_vm_info{namespace=\"shop\",name=\"web\",status=\"stopping\",status_group=\"non_running\"} 1", alerts: []string{"VirtualMachineStuckOnNode/warning"}},

	{name: "tasks wait for CPUs", change: "kubevirt_vmi_guest_vcpu_queue" + ofWeb + " 11", alerts: []string{"GuestVCPUQueueHighWarning/warning"}},
	{name: "many tasks wait for CPUs", change: "kubevirt_vmi_guest_vcpu_queue" + ofWeb + " 21", alerts: []string{"GuestVCPUQueueHighCritical/critical", "GuestVCPUQueueHighWarning/warning"}},
	{name: "a guest swaps", change: "kubevirt_vmi_memory_usable_bytes" + ofWeb + " 49", alerts: []string{"KubeVirtVMGuestMemoryPressure/warning"}},
	{name: "a guest has no memory left and no swap space", change: "kubevirt_vmi_memory_usable_bytes" + ofWeb + " 29\n" + calm, alerts: []string{"KubeVirtVMGuestMemoryAvailableLow/info"}, slow: 30 * time.Minute},
	{name: "a file system fills up", change: rootFS + " 85", alerts: []string{"GuestFilesystemAlmostOutOfSpace/warning"}},
	{name: "a file system is full", change: rootFS + " 95", alerts: []string{"GuestFilesystemAlmostOutOfSpace/critical"}},
	{name: "a guest panics again and again, each time on another node", change: times(6, `kubevirt_vmi_guest_os_panic_total{namespace="shop",name="web",type="unknown",pod="virt-handler-N"} 1`), alerts: []string{"VMNonRecoverableOSPanic/critical"}, lasting: true},

	{name: "the storage is full", change: "drydock_vmi_stopped{namespace=\"shop\",name=\"web\",node=\"node1\",reason=\"PausedIOError\"} 1", alerts: []string{"DrydockDiskNotWritable/critical"}},
	{name: "a watchdog fired", change: "drydock_vmi_stopped{namespace=\"shop\",name=\"web\",node=\"node1\",reason=\"PausedByWatchdog\"} 1", alerts: []string{"DrydockGuestStopped/critical"}},
	{name: "a node is silent", change: `drydock_node_silent_guests{node="node2"} 1`, alerts: []string{"DrydockNodeSilentWithGuests/critical"}},
	{name: "virt-api does not renew", change: "drydock_certificate_expiry_timestamp_seconds{secret=\"kubevirt-virt-api-certs\",part=\"authority\",pod=\"virt-api-1\"} 5000\ndrydock_certificate_renewal_timestamp_seconds{secret=\"kubevirt-virt-api-certs\",part=\"authority\",pod=\"virt-api-1\"} 1000", alerts: []string{"DrydockCertificateNearEnd/critical"}},
	{name: "virt-handler does not renew", change: "drydock_node_certificate_expiry_timestamp_seconds{node=\"node1\",pod=\"virt-handler-1\"} 5000\ndrydock_node_certificate_renewal_timestamp_seconds{node=\"node1\",pod=\"virt-handler-1\"} 1000", alerts: []string{"DrydockCertificateNearEnd/warning"}},
}
