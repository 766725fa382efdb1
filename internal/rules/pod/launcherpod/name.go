package launcherpod

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// ProvisioningPrefix begins the names of provisioning pods.
const ProvisioningPrefix = "virt-provisioning-"

// Name returns the name of the launcher pod in which a VMI starts, by the VMI's name and UID: a repeated creation, even
// on a stale view, gives one pod (decision 002).
func Name(vmi *v1.VirtualMachineInstance) string { return podName(layout.LauncherPrefix, vmi) }

// NameStem returns the names of the VMI's launcher pods without their suffix. Very long names share a stem.
func NameStem(vmi string) string {
	return nameStem(layout.PodName(layout.LauncherPrefix, vmi, "-"+layout.Digest("")))
}

// NameStemOf returns the stem of a launcher pod's name, "" for another pod.
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

// IsNamedFor reports whether a launcher pod belongs to a VMI of that name. The pod's name, which nobody can change,
// decides; its label counts only if the name was cut.
func IsNamedFor(pod metav1.Object, vmi string) bool {
	stem := NameStem(vmi)
	if NameStemOf(pod) != stem {
		return false
	}
	return stem == layout.LauncherPrefix+vmi || pod.GetLabels()[NameLabel] == NameLabelValue(vmi)
}

// TargetName returns the name of the only target pod that a migration ever has: it follows from the migration's UID
// (decision 002).
func TargetName(vmi *v1.VirtualMachineInstance, migration types.UID) string {
	return layout.PodName(layout.LauncherPrefix, vmi.Name, "-"+layout.Digest(string(migration)))
}

// CurrentName returns the launcher pod in which the guest runs or will start: the source's until a migrating guest has
// arrived.
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

// OtherName returns the name of a migration's target pod, or of its source once the guest has arrived; "" without a
// migration.
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

// OtherNode returns that pod's node.
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

// Arrived reports whether the guest is in a target pod.
func Arrived(vmi *v1.VirtualMachineInstance) bool {
	return switchover.Arrived(&vmi.Status) && vmi.Status.MigrationState.TargetPod != ""
}

// ProvisioningName returns the provisioning pod's name.
func ProvisioningName(vmi *v1.VirtualMachineInstance) string { return podName(ProvisioningPrefix, vmi) }

func podName(prefix string, vmi *v1.VirtualMachineInstance) string {
	return layout.PodName(prefix, vmi.Name, "-"+layout.Digest(string(vmi.UID)))
}
