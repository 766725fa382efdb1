package metrics

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/migration/workloadupdate"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
)

// Dashboards join other metrics with these. Prometheus drops labels without a value.
var (
	vmInfo  = metrictable.Of("kubevirt_vm_info")
	vmiInfo = metrictable.Of("kubevirt_vmi_info")
)

func system(annotations map[string]string) []string {
	return []string{label(annotations[commontypes.OSAnnotation]), label(annotations["vm.kubevirt.io/workload"]), label(annotations[commontypes.FlavorAnnotation])}
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
	return vmInfo.At(1, slices.Concat([]string{vm.Name, vm.Namespace}, said, []string{machineType, instanceType, preference,
		strings.ToLower(string(status)), statusGroup(status), string(strategy)})...)
}

// Without a kind the reference is cluster-wide.
func referenceOf(kind, name string) string {
	if kind == "" || strings.HasPrefix(strings.ToLower(kind), "virtualmachinecluster") {
		return reference(name, "")
	}
	return reference("", name)
}

// These group the printable statuses.
const (
	groupStarting   = "starting"
	groupRunning    = "running"
	groupMigrating  = "migrating"
	groupNonRunning = "non_running"
	groupError      = "error"
)

func statusGroup(status v1.VirtualMachinePrintableStatus) string {
	switch status {
	case v1.VirtualMachineStatusProvisioning, v1.VirtualMachineStatusStarting, v1.VirtualMachineStatusWaitingForVolumeBinding:
		return groupStarting
	case v1.VirtualMachineStatusRunning:
		return groupRunning
	case v1.VirtualMachineStatusMigrating:
		return groupMigrating
	case v1.VirtualMachineStatusCrashLoopBackOff, v1.VirtualMachineStatusUnknown, v1.VirtualMachineStatusUnschedulable,
		v1.VirtualMachineStatusErrImagePull, v1.VirtualMachineStatusImagePullBackOff, v1.VirtualMachineStatusPvcNotFound,
		v1.VirtualMachineStatusDataVolumeError:
		return groupError
	case "":
		return "<unknown>"
	}
	// The VM is off, stopping or paused, or a maintenance pod keeps it off.
	return groupNonRunning
}

// properties are those of a VMI that others may have, too: values of the labels of kubevirt_vmi_phase_count, in its order.
type properties [12]string

func (c *Collector) propertiesOf(vmi *v1.VirtualMachineInstance) properties {
	machineType := ""
	if vmi.Status.Machine != nil {
		machineType = label(vmi.Status.Machine.Type)
	}
	guest, a, template := &vmi.Status.GuestOSInfo, vmi.Annotations, system(vmi.Annotations)
	said := c.systems.bound(vmi.UID, time.Now(), label(guest.KernelRelease), label(guest.Machine), label(guest.Name), label(guest.VersionID))
	return properties{
		vmi.Status.NodeName, phase(vmi), template[0], template[1], template[2],
		reference(a[v1.ClusterInstancetypeAnnotation], a[v1.InstancetypeAnnotation]), reference(a[v1.ClusterPreferenceAnnotation], a[v1.PreferenceAnnotation]),
		said[0], machineType, said[1], said[2], said[3],
	}
}

func (c *Collector) instanceInfo(ctx context.Context, vmi *v1.VirtualMachineInstance, has properties, pod string) prometheus.Metric {
	return vmiInfo.At(1, slices.Concat([]string{has[0], vmi.Namespace, vmi.Name}, has[1:],
		[]string{strconv.FormatBool(!c.held(ctx, vmi)), strconv.FormatBool(workloadupdate.Outdated(vmi, c.Image)), pod})...)
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

func (c *Collector) launcherPods(ctx context.Context, out chan<- prometheus.Metric) (map[place]string, error) {
	var list corev1.PodList
	if err := c.Cache.List(ctx, &list, client.MatchingLabels{v1.AppLabel: layout.LauncherApp},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	collectPodPhases(out, list.Items)
	pods := make(map[place]string, len(list.Items))
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == corev1.PodRunning {
			pods[place{types.UID(pod.Labels[v1.CreatedByLabel]), pod.Spec.NodeName}] = pod.Name
		}
	}
	return pods, nil
}
