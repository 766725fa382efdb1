package launcherpod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/selinux"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// GuestGate is the readiness gate of a target pod: the pod has the labels by which Services
// find the guest, and is no endpoint of theirs before the guest is in it.
// See decision 290.
const GuestGate = v1.VirtualMachineUnpaused

// Target is the migration that a target pod is for.
type Target struct {
	// Migration is its UID, and Name its name.
	Migration types.UID
	Name      string
	// SourceNode is where the guest runs, and must not come to.
	SourceNode string
	// NodeSelector is what the migration asks of the node, beside what the VMI asks for.
	// What the VMI asks for of the same label counts.
	NodeSelector map[string]string
}

// RenderTarget renders the launcher pod that a guest migrates to: the pod that the VMI
// would start in, on another node than the one where it runs, with room for all that the guest has.
func RenderTarget(vmi *v1.VirtualMachineInstance, t Target, settings clusterconfig.Settings, launcherImage string, facts Facts) (*corev1.Pod, error) {
	pod, err := Render(withItsOwn(vmi), settings, launcherImage, facts)
	if err != nil {
		return nil, err
	}
	security := pod.Spec.SecurityContext
	if security.SELinuxOptions, err = selinux.TargetOptions(security.SELinuxOptions, vmi.Status.SelinuxContext); err != nil {
		return nil, err
	}
	pod.Name = TargetName(vmi, t.Migration)
	pod.Labels[v1.MigrationJobLabel] = string(t.Migration)
	pod.Annotations[v1.MigrationJobNameAnnotation] = t.Name
	pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: GuestGate})
	for key, value := range t.NodeSelector {
		if _, ofVMI := pod.Spec.NodeSelector[key]; !ofVMI {
			pod.Spec.NodeSelector[key] = value
		}
	}
	if kvm, _ := vmistatus.RunsWithKVM(vmi); kvm && namedCPUModel(vmi) != "" {
		// Where guests may be emulated no node is asked for the model otherwise.
		pod.Spec.NodeSelector[v1.CPUModelLabel+namedCPUModel(vmi)] = "true"
	}
	fit := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{t.SourceNode}},
		},
		MatchExpressions: sameAccelerator(vmi),
	}}}
	if err := RequireNodes(pod, []*corev1.NodeSelector{fit}); err != nil {
		return nil, err
	}
	return pod, nil
}

// sameAccelerator is what a guest asks of the node that it migrates to: that guests run there
// with what it runs with itself, KVM or emulation. The node's labels are those that virt-handler
// has found out; what the guest runs with is what its virt-handler has reported (decision 350).
func sameAccelerator(vmi *v1.VirtualMachineInstance) []corev1.NodeSelectorRequirement {
	kvm, known := vmistatus.RunsWithKVM(vmi)
	if !known {
		return nil
	}
	usable := corev1.NodeSelectorRequirement{Key: layout.KVMLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{layout.KVMUsable}}
	if !kvm {
		usable.Operator = corev1.NodeSelectorOpNotIn
	}
	return []corev1.NodeSelectorRequirement{usable}
}

// IsTarget reports whether a pod says that it was made for a migration; of is that of
// which it was. What it says is good for waking a loop, and for a pod of which the VMI
// knows that it is its own.
func IsTarget(pod metav1.Object) (of types.UID, is bool) {
	uid := pod.GetLabels()[v1.MigrationJobLabel]
	return types.UID(uid), uid != "" && IsLauncher(pod)
}

// MigrationOf is the name of the migration that a target pod says it was made for, "" for
// another pod.
func MigrationOf(pod metav1.Object) string {
	if _, is := IsTarget(pod); !is {
		return ""
	}
	return pod.GetAnnotations()[v1.MigrationJobNameAnnotation]
}

// SameHost is what a guest whose CPU is the host's asks of the node that it migrates to,
// as a node selector: the CPU model that the labels of the node say where it runs. A guest
// that names its model asks for that by itself.
func SameHost(vmi *v1.VirtualMachineInstance, source map[string]string) map[string]string {
	if namedCPUModel(vmi) != "" {
		return nil
	}
	out := map[string]string{}
	for key, value := range source {
		if strings.HasPrefix(key, v1.HostModelCPULabel) {
			out[key] = value
		}
	}
	return out
}
