// Package launcherpod renders the pod that carries a VMI's guest: names,
// labels, placement, resources, volumes, probes.
//
// It owns how a VMI's spec becomes a pod and nothing else. It is pure: it must
// not import a client, read a clock or decide when a pod is created. The
// layout inside the pod is package layout's.
package launcherpod

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/podlabels"
	"drydock.dev/drydock/internal/rules/selinux"
)

// defaultContainer names the container that kubectl means when none is named.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// defaultGracePeriodSeconds is what a VMI without
// terminationGracePeriodSeconds gets, as the API documents.
const defaultGracePeriodSeconds = 30

// gracePeriodMarginSeconds is what the kubelet waits beyond the guest's own
// grace period, so that virt-launcher, which ends QEMU by force at the end of
// that, can still report how it ended.
const gracePeriodMarginSeconds = 15

// Facts are what rendering needs to know beside the VMI itself.
type Facts struct {
	// BlockClaims holds the names of the claims with volumeMode Block among
	// those that the VMI uses.
	BlockClaims map[string]bool
	// Devices holds the resources of DeviceNetworks.
	Devices map[string]corev1.ResourceName
}

// Render gives the launcher pod of vmi. It fails only for a VMI that admission
// should not have let through; the error names the field.
func Render(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, launcherImage string, facts Facts) (*corev1.Pod, error) {
	resources, err := podResources(vmi, settings, facts)
	if err != nil {
		return nil, err
	}
	storage, err := podStorage(vmi, facts)
	if err != nil {
		return nil, err
	}
	readiness, err := probe(vmi.Spec.ReadinessProbe, "spec.readinessProbe")
	if err != nil {
		return nil, err
	}
	liveness, err := probe(vmi.Spec.LivenessProbe, "spec.livenessProbe")
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: objectMeta(vmi),
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(PodGracePeriodSeconds(vmi)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			ServiceAccountName:            cmp.Or(storage.serviceAccount, vmi.Spec.ServiceAccountName),
			ImagePullSecrets:              storage.pullSecrets,
			Volumes:                       storage.volumes,
			SecurityContext:               podSecurity(settings),
			Containers: []corev1.Container{{
				Name:            layout.ComputeContainer,
				Image:           launcherImage,
				ImagePullPolicy: settings.ImagePullPolicy,
				Command:         []string{layout.LauncherBinary},
				Resources:       resources,
				Ports:           ports(vmi),
				VolumeMounts:    storage.mounts,
				VolumeDevices:   storage.devices,
				ReadinessProbe:  readiness,
				LivenessProbe:   liveness,
				SecurityContext: containerSecurity(),
			}},
		},
	}
	if slices.ContainsFunc(storage.volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
		// The node's files are for no group that the image names (decision 618).
		pod.Spec.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict)
	}
	if err := askForNetworks(pod, vmi, settings); err != nil {
		return nil, err
	}
	labelClaims(pod, vmi)
	place(&pod.Spec, vmi, settings)
	return pod, nil
}

// podSecurity is the same for every pod that virt-launcher runs in: QEMU's user,
// and nothing that a Pod Security level would refuse.
func podSecurity(settings clusterconfig.Settings) *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsUser:      new(int64(layout.QEMUUser)),
		RunAsGroup:     new(int64(layout.QEMUUser)),
		RunAsNonRoot:   new(true),
		FSGroup:        new(int64(layout.QEMUUser)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// A claim that belongs to QEMU already is not walked again
		// at every start.
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SELinuxOptions:      selinux.LauncherOptions(settings.SELinuxLauncherType),
	}
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// GracePeriodSeconds is how long the guest has to follow the power button.
func GracePeriodSeconds(vmi *v1.VirtualMachineInstance) int64 {
	if p := vmi.Spec.TerminationGracePeriodSeconds; p != nil {
		return *p
	}
	return defaultGracePeriodSeconds
}

func objectMeta(vmi *v1.VirtualMachineInstance) metav1.ObjectMeta {
	labels := maps.Clone(vmi.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	// What rules go by on pods is not the VMI's to say.
	podlabels.Without(labels)
	// The nodes' names are the VMI's: this pod has no node yet. Its own is added when the guest is there.
	delete(labels, v1.NodeNameLabel)
	delete(labels, v1.MigrationTargetNodeNameLabel)
	labels[v1.AppLabel] = layout.LauncherApp
	labels[v1.CreatedByLabel] = string(vmi.UID)
	labels[NameLabel] = NameLabelValue(vmi.Name)
	labels[v1.VirtualMachineInstanceIDLabel] = InstanceID(vmi.Name)
	if Kept(vmi) {
		labels[KeptLabel] = ""
	}

	annotations := maps.Clone(vmi.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	annotations[v1.DomainAnnotation] = vmi.Name
	annotations[defaultContainer] = layout.ComputeContainer
	hookBackups(vmi, annotations)

	return metav1.ObjectMeta{
		Name:            Name(vmi),
		Namespace:       vmi.Namespace,
		Labels:          labels,
		Annotations:     annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)},
	}
}

// ports declares the ports that the guest's interfaces open, so that a Service
// can name them.
func ports(vmi *v1.VirtualMachineInstance) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, iface := range vmi.Spec.Domain.Devices.Interfaces {
		for _, p := range iface.Ports {
			protocol := corev1.Protocol(p.Protocol)
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			port := corev1.ContainerPort{Name: p.Name, Protocol: protocol, ContainerPort: p.Port}
			if !slices.Contains(out, port) {
				out = append(out, port)
			}
		}
	}
	return out
}

// probe translates a VMI's probe. The kubelet reaches the guest by TCP and
// HTTP through the pod's address; what must happen inside the guest goes
// through virt-launcher to the guest agent.
func probe(p *v1.Probe, path string) (*corev1.Probe, error) {
	if p == nil {
		return nil, nil
	}
	out := &corev1.Probe{
		InitialDelaySeconds: p.InitialDelaySeconds,
		TimeoutSeconds:      p.TimeoutSeconds,
		PeriodSeconds:       p.PeriodSeconds,
		SuccessThreshold:    p.SuccessThreshold,
		FailureThreshold:    p.FailureThreshold,
	}
	timeout := fmt.Sprintf("--timeout=%ds", max(1, p.TimeoutSeconds))
	switch {
	case p.TCPSocket != nil:
		out.TCPSocket = p.TCPSocket.DeepCopy()
	case p.HTTPGet != nil:
		out.HTTPGet = p.HTTPGet.DeepCopy()
	case p.GuestAgentPing != nil:
		out.Exec = &corev1.ExecAction{Command: []string{layout.LauncherBinary, "probe", "guest-agent-ping", timeout}}
	case p.Exec != nil:
		command := []string{layout.LauncherBinary, "probe", "exec", timeout, "--"}
		out.Exec = &corev1.ExecAction{Command: append(command, p.Exec.Command...)}
	default:
		return nil, fmt.Errorf("%s: one of tcpSocket, httpGet, exec and guestAgentPing must be set", path)
	}
	return out, nil
}
