package metrics

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration/workloadupdate"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
)

// Dashboards join other metrics with these. Only run_strategy is Drydock's own. Prometheus drops labels without a
// value.
var (
	vmInfo = prometheus.NewDesc("kubevirt_vm_info",
		"Information about virtual machines.",
		[]string{"name", "namespace", "os", "workload", "flavor", "machine_type", "instance_type", "preference",
			"status", "status_group", "run_strategy"}, nil)
	vmiInfo = prometheus.NewDesc("kubevirt_vmi_info",
		"Information about virtual machine instances.",
		[]string{"node", "namespace", "name", "phase", "os", "workload", "flavor", "instance_type", "preference",
			"guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
			"evictable", "outdated", "vmi_pod"}, nil)
)

// maxLabel bounds, in bytes, the label values that tenants and guests choose.
const maxLabel = 128

func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxLabel)], "")
}

func system(annotations map[string]string) []string {
	return []string{label(annotations[commontypes.OSAnnotation]), label(annotations["vm.kubevirt.io/workload"]), label(annotations["vm.kubevirt.io/flavor"])}
}

// otherName replaces the names of namespaced instance types and preferences, of which there can be any number.
const otherName = "<other>"

func reference(cluster, namespaced string) string {
	switch {
	case cluster != "":
		return label(cluster)
	case namespaced != "":
		return otherName
	}
	return ""
}

func machineInfo(vm *v1.VirtualMachine) prometheus.Metric {
	strategy, err := vm.RunStrategy()
	if err != nil {
		strategy = "Invalid"
	}
	said, machineType := system(nil), ""
	if t := vm.Spec.Template; t != nil {
		said = system(t.ObjectMeta.Annotations)
		if t.Spec.Domain.Machine != nil {
			machineType = label(t.Spec.Domain.Machine.Type)
		}
	}
	instanceType, preference := "", ""
	if m := vm.Spec.Instancetype; m != nil {
		instanceType = referenceOf(m.Kind, m.Name)
	}
	if m := vm.Spec.Preference; m != nil {
		preference = referenceOf(m.Kind, m.Name)
	}
	status := vm.Status.PrintableStatus
	return gauge(vmInfo, 1, slices.Concat([]string{vm.Name, vm.Namespace}, said, []string{machineType, instanceType, preference,
		strings.ToLower(string(status)), statusGroup(status), string(strategy)})...)
}

// Without a kind the reference is cluster-wide.
func referenceOf(kind, name string) string {
	if kind == "" || strings.HasPrefix(strings.ToLower(kind), "virtualmachinecluster") {
		return reference(name, "")
	}
	return reference("", name)
}

func statusGroup(status v1.VirtualMachinePrintableStatus) string {
	switch status {
	case v1.VirtualMachineStatusProvisioning, v1.VirtualMachineStatusStarting, v1.VirtualMachineStatusWaitingForVolumeBinding:
		return "starting"
	case v1.VirtualMachineStatusRunning:
		return "running"
	case v1.VirtualMachineStatusMigrating:
		return "migrating"
	case v1.VirtualMachineStatusCrashLoopBackOff, v1.VirtualMachineStatusUnknown, v1.VirtualMachineStatusUnschedulable,
		v1.VirtualMachineStatusErrImagePull, v1.VirtualMachineStatusImagePullBackOff, v1.VirtualMachineStatusPvcNotFound,
		v1.VirtualMachineStatusDataVolumeError:
		return "error"
	case "":
		return "<unknown>"
	}
	// The VM is off, stopping or paused, or a maintenance pod keeps it off.
	return "non_running"
}

func (c *Collector) instanceInfo(vmi *v1.VirtualMachineInstance, pod string) prometheus.Metric {
	machineType := ""
	if vmi.Status.Machine != nil {
		machineType = label(vmi.Status.Machine.Type)
	}
	guest := &vmi.Status.GuestOSInfo
	a := vmi.Annotations
	return gauge(vmiInfo, 1, slices.Concat(
		[]string{vmi.Status.NodeName, vmi.Namespace, vmi.Name, phase(vmi)}, system(a),
		[]string{reference(a[v1.ClusterInstancetypeAnnotation], a[v1.InstancetypeAnnotation]),
			reference(a[v1.ClusterPreferenceAnnotation], a[v1.PreferenceAnnotation]),
			label(guest.KernelRelease), machineType, label(guest.Machine), label(guest.Name), label(guest.VersionID),
			strconv.FormatBool(!c.held(vmi)), strconv.FormatBool(workloadupdate.Outdated(vmi, c.Image)), pod})...)
}

func phase(vmi *v1.VirtualMachineInstance) string {
	if vmi.Status.Phase == v1.VmPhaseUnset {
		return strings.ToLower(string(v1.Pending))
	}
	return strings.ToLower(string(vmi.Status.Phase))
}

type place struct {
	vmi  types.UID
	node string
}

func (c *Collector) launcherPods() (map[place]string, error) {
	var list corev1.PodList
	if err := c.Cache.List(context.Background(), &list, client.MatchingLabels{v1.AppLabel: layout.LauncherApp},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	pods := make(map[place]string, len(list.Items))
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == corev1.PodRunning {
			pods[place{types.UID(pod.Labels[v1.CreatedByLabel]), pod.Spec.NodeName}] = pod.Name
		}
	}
	return pods, nil
}
