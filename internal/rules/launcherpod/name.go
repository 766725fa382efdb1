package launcherpod

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/switchover"
)

const provisioningPrefix = "virt-provisioning-"

// Name is the name of the launcher pod that a VMI starts in. It follows from the VMI's
// name and UID, so that creating it twice, on whatever stale view, gives one pod, and a
// VMI of the same name created later has another. Where the guest is after a migration,
// CurrentName says.
// See decision 002.
func Name(vmi *v1.VirtualMachineInstance) string { return podName(layout.LauncherPrefix, vmi) }

// NameStem is what the names of all launcher pods of VMIs of a name have before their suffix. Very long names of VMIs
// have a stem in common.
func NameStem(vmi string) string {
	return nameStem(layout.PodName(layout.LauncherPrefix, vmi, "-"+layout.Digest("")))
}

// NameStemOf is the stem of a pod's name, "" for one that is no launcher pod's.
func NameStemOf(pod metav1.Object) string {
	if !strings.HasPrefix(pod.GetName(), layout.LauncherPrefix) {
		return ""
	}
	return nameStem(pod.GetName())
}

func nameStem(pod string) string {
	if end := strings.LastIndexByte(pod, '-'); end > 0 {
		return pod[:end]
	}
	return ""
}

// IsNamedFor reports whether a launcher pod is one of VMIs of a name. A pod's name says so, which nobody can change; only
// where that was cut, its label tells it from others.
func IsNamedFor(pod metav1.Object, vmi string) bool {
	stem := NameStem(vmi)
	if NameStemOf(pod) != stem {
		return false
	}
	return stem == layout.LauncherPrefix+vmi || pod.GetLabels()[NameLabel] == NameLabelValue(vmi)
}

// TargetName is the name of the pod that a migration has the guest go to. It follows from
// the migration's UID by the same rule: a migration has one target pod, ever.
// See decision 289.
func TargetName(vmi *v1.VirtualMachineInstance, migration types.UID) string {
	return layout.PodName(layout.LauncherPrefix, vmi.Name, "-"+layout.Digest(string(migration)))
}

// CurrentName is the name of the launcher pod that the VMI's guest runs in, or is to run
// in: that of the target once a migration has completed and the VMI's node is the target's,
// and until then that of its source.
func CurrentName(vmi *v1.VirtualMachineInstance) string {
	m := vmi.Status.MigrationState
	switch {
	case m == nil || m.SourcePod == "":
		return Name(vmi)
	case Arrived(vmi):
		return m.TargetPod
	}
	return m.SourcePod
}

// OtherName is the name of the VMI's other launcher pod: that of the target of a migration,
// or of its source once the guest has arrived; "" for a VMI that has never been migrated.
func OtherName(vmi *v1.VirtualMachineInstance) string {
	m := vmi.Status.MigrationState
	switch {
	case m == nil || m.SourcePod == "":
		return ""
	case Arrived(vmi):
		return m.SourcePod
	}
	return m.TargetPod
}

// OtherNode is the node of that pod.
func OtherNode(vmi *v1.VirtualMachineInstance) string {
	switch m := vmi.Status.MigrationState; {
	case OtherName(vmi) == "":
		return ""
	case Arrived(vmi):
		return m.SourceNode
	default:
		return m.TargetNode
	}
}

// Arrived reports whether the VMI's last migration has completed and the VMI says so.
func Arrived(vmi *v1.VirtualMachineInstance) bool {
	m := vmi.Status.MigrationState
	return m != nil && switchover.Completed(m) && m.TargetPod != "" && vmi.Status.NodeName == m.TargetNode
}

// ProvisioningName is the provisioning pod's name, by the same rule.
func ProvisioningName(vmi *v1.VirtualMachineInstance) string { return podName(provisioningPrefix, vmi) }

func podName(prefix string, vmi *v1.VirtualMachineInstance) string {
	return layout.PodName(prefix, vmi.Name, "-"+layout.Digest(string(vmi.UID)))
}
