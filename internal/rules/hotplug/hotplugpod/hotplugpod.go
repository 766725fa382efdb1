// Package hotplugpod renders the pod that holds a VMI's hotplugged volumes on its node, and its PodDisruptionBudget.
//
// It owns only their content, and must not import a client. Package hotplug decides when a pod is created.
package hotplugpod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// An evicted pod, or one deleted by hand, holds its volumes for lingerSeconds, so that its successor runs first.
// GracePeriodSeconds is for pods whose volumes are no longer in use.
const (
	lingerSeconds      = 30
	marginSeconds      = 5
	GracePeriodSeconds = 1
)

// The container does nothing. A low CPU limit would delay its start.
const (
	cpuRequest, cpuLimit       = "1m", "1"
	memoryRequest, memoryLimit = "8Mi", "64Mi"
)

// Input is the input of Render.
type Input struct {
	VMI           *v1.VirtualMachineInstance
	Launcher      *corev1.Pod // determines the node, and owns the attachment pod
	AttachmentPod hotplug.AttachmentPod
	Block         map[string]bool // the claims with volumeMode Block
	Settings      clusterconfig.Settings
	Image         string
	SELinux       *corev1.SELinuxOptions // nil for none (selinux.AttachmentOptions)
}

// Prefix begins the names of this VMI's attachment pods, and no others.
func Prefix(vmi *v1.VirtualMachineInstance) string {
	return layout.AttachmentPrefix + layout.LongDigest(string(vmi.UID))
}

// Labels returns the labels of the VMI's attachment pods.
func Labels(vmi *v1.VirtualMachineInstance) map[string]string {
	return map[string]string{v1.AppLabel: layout.AttachmentApp, v1.CreatedByLabel: string(vmi.UID)}
}

// Render returns an attachment pod.
func Render(in Input) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: in.AttachmentPod.Name, Namespace: in.VMI.Namespace, Labels: Labels(in.VMI),
			Annotations: map[string]string{v1.DomainAnnotation: in.VMI.Name},
			// Without a controller, a drain would need --force.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: in.Launcher.Name, UID: in.Launcher.UID, Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			// The kubelet restarts a crashed process without unmounting a volume.
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(lingerSeconds + marginSeconds)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			Affinity:                      onNode(in.Launcher.Spec.NodeName),
			// The disks may be wherever the guest is. A taint that ends the guest also ends this pod.
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

// readOnly reports whether the VMI wants the claim mounted read-only: its storage may permit no other mount.
func readOnly(vmi *v1.VirtualMachineInstance, v hotplug.Volume) bool {
	volume := volumeclaim.Named(vmi.Spec.Volumes, v.Name)
	if volume == nil {
		return false
	}
	source := volume.PersistentVolumeClaim
	return source != nil && source.ClaimName == v.Claim && source.ReadOnly
}

func container(in Input) corev1.Container {
	c := corev1.Container{
		Name:            layout.AttachmentContainer,
		Image:           in.Image,
		ImagePullPolicy: in.Settings.ImagePullPolicy,
		Command:         []string{layout.LauncherBinary, "hold"},
		Args:            in.Settings.LogFormat.Args(),
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

// Node returns the pod's current or required node, "" for a pod that was not created by Render.
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

// onNode leaves the pod to the scheduler, which binds a claim that waits for its first consumer, or reports why it can't.
func onNode(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}}},
	}}
}
