package launcherpod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// The resources of the console's container: cat has 0.2 MiB of its own. The limits are for virt-launcher, which cat
// replaces, and for the container runtime's first process. With limits of its own, the container needs none of a quota.
var (
	consoleLogMemory, consoleLogMostMemory = resource.MustParse("2Mi"), resource.MustParse("32Mi")
	consoleLogCPU, consoleLogMostCPU       = resource.MustParse("1m"), resource.MustParse("100m")
	// consoleLogGuaranteedCPU is request and limit beside a guest of the class Guaranteed, whose pod loses it otherwise.
	consoleLogGuaranteedCPU = resource.MustParse("15m")
)

// consoleLogBytes bounds the volume, which has nothing but a FIFO.
const consoleLogBytes = 1 << 20

// LogsConsole reports whether the guest's serial console is logged: only if its VMI asks for it (decision 663).
func LogsConsole(spec *v1.VirtualMachineInstanceSpec) bool {
	d := spec.Domain.Devices
	return d.LogSerialConsole != nil && *d.LogSerialConsole && (d.AutoattachSerialConsole == nil || *d.AutoattachSerialConsole)
}

// logConsole adds the container whose standard output is the guest's serial console. It shares nothing with the guest's
// but the folder of a FIFO. It is a sidecar: the kubelet starts it before the guest's container, restarts it alone, and
// ends it after the guest's. It must have no startup probe, for which the guest would wait.
func logConsole(pod *corev1.Pod, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	if !LogsConsole(&vmi.Spec) {
		return
	}
	compute := &pod.Spec.Containers[0]
	volume, mount := emptyDir(layout.ConsoleLogVolume, corev1.StorageMediumMemory), corev1.VolumeMount{Name: layout.ConsoleLogVolume, MountPath: layout.ConsoleLogDir}
	volume.EmptyDir.SizeLimit = resource.NewQuantity(consoleLogBytes, resource.BinarySI)
	pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	compute.Args = append(compute.Args, "--console-log="+layout.ConsoleLogDir)
	compute.VolumeMounts = append(compute.VolumeMounts, mount)
	security := containerSecurity()
	security.ReadOnlyRootFilesystem = new(true)
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
		Name:            layout.ConsoleLogContainer,
		RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
		Image:           compute.Image,
		ImagePullPolicy: settings.ImagePullPolicy,
		Command:         []string{layout.LauncherBinary, "console-log"},
		Resources:       consoleLogResources(compute.Resources),
		VolumeMounts:    []corev1.VolumeMount{mount},
		SecurityContext: security,
	})
}

func consoleLogResources(beside corev1.ResourceRequirements) corev1.ResourceRequirements {
	limits := corev1.ResourceList{corev1.ResourceCPU: consoleLogMostCPU, corev1.ResourceMemory: consoleLogMostMemory}
	if guaranteed(beside) {
		limits[corev1.ResourceCPU] = consoleLogGuaranteedCPU
		return corev1.ResourceRequirements{Requests: limits.DeepCopy(), Limits: limits}
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: consoleLogCPU, corev1.ResourceMemory: consoleLogMemory}, Limits: limits,
	}
}

func guaranteed(r corev1.ResourceRequirements) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := r.Limits[name]
		if request, requested := r.Requests[name]; !limited || requested && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}

// addConsoleLogRequests adds the requests of the console's container to those of a container that stands for the pod.
func addConsoleLogRequests(r *corev1.ResourceRequirements, spec *v1.VirtualMachineInstanceSpec) {
	if !LogsConsole(spec) {
		return
	}
	more := consoleLogResources(*r)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		for _, lists := range [][2]corev1.ResourceList{{r.Requests, more.Requests}, {r.Limits, more.Limits}} {
			if q, has := lists[0][name]; has {
				q.Add(lists[1][name])
				lists[0][name] = q
			}
		}
	}
}
