// Package launcherpod renders the pod of a VMI's guest: names, labels, placement, resources, volumes, probes.
//
// It owns the conversion of a VMI's spec to a pod. It must not import a client, read a clock or decide when a pod is
// created. Package layout owns the paths inside the pod.
package launcherpod

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/pod/podlabels"
	"drydock.dev/drydock/internal/rules/pod/selinux"
)

// kubectl uses that container by default.
const defaultContainer = "kubectl.kubernetes.io/default-container"

const defaultGracePeriodSeconds = 30

// gracePeriodMarginSeconds lets virt-launcher, which kills QEMU after the guest's grace period, report the exit.
const gracePeriodMarginSeconds = 15

// Facts has the facts that are not in the VMI.
type Facts struct {
	// BlockClaims has the VMI's claims with volumeMode Block.
	BlockClaims map[string]bool
	// Devices has the resources of DeviceNetworks, by network.
	Devices map[string]corev1.ResourceName
}

// Render returns the VMI's launcher pod. It fails only for a VMI that admission should have refused.
func Render(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, launcherImage string, facts Facts) (*corev1.Pod, error) {
	resources, err := podResources(vmi, settings, facts)
	if err != nil {
		return nil, err
	}
	storage, err := podStorage(vmi, facts)
	if err != nil {
		return nil, err
	}
	readiness, err := probe(vmi.Spec.ReadinessProbe, "spec.readinessProbe", false)
	if err != nil {
		return nil, err
	}
	liveness, err := probe(vmi.Spec.LivenessProbe, "spec.livenessProbe", true)
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
				Args:            logArgs(vmi, settings),
				Resources:       resources,
				Ports:           ports(vmi),
				VolumeMounts:    storage.mounts,
				VolumeDevices:   storage.devices,
				ReadinessProbe:  readiness,
				LivenessProbe:   liveness,
				StartupProbe:    startup(liveness),
				SecurityContext: containerSecurity(),
			}},
		},
	}
	if slices.ContainsFunc(storage.volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
		// The groups of the image must not reach the node's files (decision 618).
		pod.Spec.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict)
	}
	if err := askForNetworks(pod, vmi, settings); err != nil {
		return nil, err
	}
	for _, claim := range WrittenClaims(vmi) {
		pod.Labels[ClaimLabel(claim)] = ""
	}
	logConsole(pod, vmi, settings)
	place(&pod.Spec, vmi, settings)
	return pod, nil
}

// virt-launcher knows its guest only from virt-handler, which may never come.
func logArgs(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) []string {
	of := logline.Object{Namespace: vmi.Namespace, Name: vmi.Name, UID: string(vmi.UID)}
	return append(settings.LogFormat.Args(), "--"+logline.VMI+"="+of.String())
}

// Every pod with virt-launcher has QEMU's user, and nothing that a Pod Security level refuses.
func podSecurity(settings clusterconfig.Settings) *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsUser:      new(int64(layout.QEMUUser)),
		RunAsGroup:     new(int64(layout.QEMUUser)),
		RunAsNonRoot:   new(true),
		FSGroup:        new(int64(layout.QEMUUser)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// The kubelet need not walk a claim that belongs to QEMU already.
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

// GracePeriodSeconds returns how long the guest may take to shut down.
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
	// A VMI must not set the labels by which rules select pods.
	podlabels.Without(labels)
	// These are of the VMI's node; this pod has none yet.
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
	annotations[EvictOnlyAnnotation] = ""
	delete(annotations, EvictionInProgressAnnotation)
	hookBackups(vmi, annotations)

	return metav1.ObjectMeta{
		Name:            Name(vmi),
		Namespace:       vmi.Namespace,
		Labels:          labels,
		Annotations:     annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)},
	}
}

// Services can name these ports.
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

// afterthoughtSeconds is the time to find out whether the failure of a liveness probe counts.
const afterthoughtSeconds = 2

// The kubelet sends TCP and HTTP probes to the pod's address. Others go through virt-launcher to the guest agent; as a
// liveness probe, they fail only while the guest is here and may run (decision 661).
func probe(p *v1.Probe, path string, liveness bool) (*corev1.Probe, error) {
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
	var command []string
	switch {
	case p.TCPSocket != nil:
		out.TCPSocket = p.TCPSocket.DeepCopy()
		return out, nil
	case p.HTTPGet != nil:
		out.HTTPGet = p.HTTPGet.DeepCopy()
		return out, nil
	case p.GuestAgentPing != nil:
		command = []string{"guest-agent-ping"}
	case p.Exec != nil:
		command = append([]string{"exec", "--"}, p.Exec.Command...)
	default:
		return nil, fmt.Errorf("%s: one of tcpSocket, httpGet, exec and guestAgentPing must be set", path)
	}
	timeout := min(max(1, p.TimeoutSeconds), math.MaxInt32-afterthoughtSeconds)
	flags := []string{fmt.Sprintf("--timeout=%ds", timeout)}
	if liveness {
		flags = append(flags, "--liveness")
		out.TimeoutSeconds = timeout + afterthoughtSeconds
	}
	out.Exec = &corev1.ExecAction{Command: slices.Concat([]string{layout.LauncherBinary, "probe"}, slices.Insert(command, 1, flags...))}
	return out, nil
}

// A startup probe is tried again after startupSeconds.
const startupSeconds = 3600

// The kubelet starts the other probes after this one: when the guest runs in this pod, however long it takes to arrive
// or waits for its disks.
func startup(liveness *corev1.Probe) *corev1.Probe {
	if liveness == nil {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{
			layout.LauncherBinary, "probe", "guest-began", fmt.Sprintf("--timeout=%ds", startupSeconds),
		}}},
		TimeoutSeconds: startupSeconds + afterthoughtSeconds, PeriodSeconds: 1, FailureThreshold: math.MaxInt32,
	}
}
