package launcherpod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/pod/selinux"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// GuestGate is the readiness gate of a target pod, which has the labels for the guest's Services and must not be their
// endpoint before the guest arrives.
const GuestGate = v1.VirtualMachineUnpaused

// Target describes a migration's target pod.
type Target struct {
	Migration types.UID
	Name      string
	// SourceNode, where the guest runs, is excluded.
	SourceNode string
	// NodeSelector has the migration's own requirements; the VMI's take precedence.
	NodeSelector map[string]string
}

// RenderTarget renders the VMI's pod for a migration: on another node, with room for all resources of the guest.
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
	kvm, known := vmistatus.RunsWithKVM(vmi)
	if kvm && namedCPUModel(vmi) != "" {
		// Clusters with emulation do not ask for the model otherwise.
		pod.Spec.NodeSelector[v1.CPUModelLabel+namedCPUModel(vmi)] = "true"
	}
	fit := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{t.SourceNode}},
	}}
	if known {
		// The guest keeps its accelerator. virt-handler writes both the node's label and the status (decision 350).
		usable := corev1.NodeSelectorRequirement{Key: layout.KVMLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{layout.KVMUsable}}
		if !kvm {
			usable.Operator = corev1.NodeSelectorOpNotIn
		}
		fit.MatchExpressions = []corev1.NodeSelectorRequirement{usable}
	}
	if err := RequireNodes(pod, []*corev1.NodeSelector{{NodeSelectorTerms: []corev1.NodeSelectorTerm{fit}}}); err != nil {
		return nil, err
	}
	return pod, nil
}

// IsTarget reports whether a pod has the label of a target pod; of is the migration. It trusts the pod's metadata, so
// it may only be used to enqueue, or for a pod that the VMI knows as its own.
func IsTarget(pod metav1.Object) (of types.UID, is bool) {
	uid := pod.GetLabels()[v1.MigrationJobLabel]
	return types.UID(uid), uid != "" && IsLauncher(pod)
}

// MigrationOf returns the name of a target pod's migration by its annotation, "" for another pod.
func MigrationOf(pod metav1.Object) string {
	if _, is := IsTarget(pod); !is {
		return ""
	}
	return pod.GetAnnotations()[v1.MigrationJobNameAnnotation]
}

// SameHost returns the source node's CPU model as a node selector, nil for a guest that names a model: that is required
// anyway.
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
