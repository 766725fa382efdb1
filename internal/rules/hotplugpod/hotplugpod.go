// Package hotplugpod renders the pod that holds hotplugged volumes of a VMI
// on its node, and what protects that pod.
//
// It owns how such a pod looks and nothing else. It is pure: it must not import
// a client or decide when a pod is made; package hotplug does.
package hotplugpod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
)

// How long a pod that somebody takes away (an eviction, a deletion by hand)
// goes on holding its volumes, so that its successor runs before it ends. The
// successor is recorded as soon as the deletion is seen. GracePeriodSeconds is
// what virt-controller gives a pod that holds nothing in use any more.
const (
	lingerSeconds      = 30
	marginSeconds      = 5
	GracePeriodSeconds = 1
)

// The container does nothing: this is its process, and room for the runtime to
// start it. Without a low limit on the CPU it is there in a moment.
const (
	cpuRequest, cpuLimit       = "1m", "1"
	memoryRequest, memoryLimit = "8Mi", "64Mi"
)

// Input is what a pod is rendered from.
type Input struct {
	VMI *v1.VirtualMachineInstance
	// Launcher is the pod of the guest: the attachment pod follows it to its node
	// and goes with it.
	Launcher      *corev1.Pod
	AttachmentPod hotplug.AttachmentPod
	// Block holds the names of the claims with volumeMode Block.
	Block    map[string]bool
	Settings clusterconfig.Settings
	Image    string
	// SELinux are the pod's options; nil for none (selinux.AttachmentOptions).
	SELinux *corev1.SELinuxOptions
}

// Prefix begins the names of a VMI's attachment pods, and of no other's.
func Prefix(vmi *v1.VirtualMachineInstance) string {
	return layout.AttachmentPrefix + layout.LongDigest(string(vmi.UID))
}

// Labels are on every attachment pod of the VMI.
func Labels(vmi *v1.VirtualMachineInstance) map[string]string {
	return map[string]string{v1.AppLabel: layout.AttachmentApp, v1.CreatedByLabel: string(vmi.UID)}
}

// Render gives an attachment pod.
func Render(in Input) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: in.AttachmentPod.Name, Namespace: in.VMI.Namespace, Labels: Labels(in.VMI),
			Annotations: map[string]string{v1.DomainAnnotation: in.VMI.Name},
			// With a controller, a drain needs no --force for it.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: in.Launcher.Name, UID: in.Launcher.UID, Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			// A process that dies is started again without a volume being let go of.
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(lingerSeconds + marginSeconds)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			Affinity:                      onNode(in.Launcher.Spec.NodeName),
			// Where the guest is its disks can be, whatever the node is tainted with:
			// a cordon, a drain, pressure. A taint that ends the guest ends this, too.
			Tolerations:       []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			PriorityClassName: in.Launcher.Spec.PriorityClassName,
			SchedulerName:     in.Launcher.Spec.SchedulerName,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser:           new(int64(layout.QEMUUser)),
				RunAsGroup:          new(int64(layout.QEMUUser)),
				RunAsNonRoot:        new(true),
				FSGroup:             new(int64(layout.QEMUUser)),
				FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				SELinuxOptions:      in.SELinux,
			},
			Containers: []corev1.Container{container(in)},
		},
	}
	for _, v := range in.AttachmentPod.Volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim, ReadOnly: readOnly(in.VMI, v)},
		}})
	}
	return pod
}

// readOnly reports whether the VMI asks for the claim to be mounted for reading only,
// as it would in its own pod: storage may give it in no other way.
func readOnly(vmi *v1.VirtualMachineInstance, v hotplug.Volume) bool {
	for i := range vmi.Spec.Volumes {
		source := vmi.Spec.Volumes[i].PersistentVolumeClaim
		if vmi.Spec.Volumes[i].Name == v.Name && source != nil && source.ClaimName == v.Claim {
			return source.ReadOnly
		}
	}
	return false
}

func container(in Input) corev1.Container {
	c := corev1.Container{
		Name:            layout.AttachmentContainer,
		Image:           in.Image,
		ImagePullPolicy: in.Settings.ImagePullPolicy,
		Command:         []string{layout.LauncherBinary, "hold"},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Sleep: &corev1.SleepAction{Seconds: lingerSeconds},
		}},
		Resources: corev1.ResourceRequirements{
			Requests: resources(cpuRequest, memoryRequest),
			Limits:   resources(cpuLimit, memoryLimit),
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for _, v := range in.AttachmentPod.Volumes {
		at := layout.AttachedVolume(v.Name)
		if in.Block[v.Claim] {
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: at})
		} else {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: at})
		}
	}
	return c
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// Node is the node that an attachment pod is on, or is to come to; empty for a pod that was made
// otherwise.
func Node(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) != 1 {
		return ""
	}
	fields := required.NodeSelectorTerms[0].MatchFields
	if len(fields) != 1 || fields[0].Key != metav1.ObjectNameField || fields[0].Operator != corev1.NodeSelectorOpIn || len(fields[0].Values) != 1 {
		return ""
	}
	return fields[0].Values[0]
}

// onNode binds the pod to a node by way of the scheduler, which binds a claim
// that waits for its first consumer there, or says why it can't.
func onNode(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}}},
	}}
}
