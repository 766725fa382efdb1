package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	// LauncherImage is the image of launcher pods and of the bare pods for comparison.
	LauncherImage = layout.DevelLauncherImage
	// GuestImage is the test guest's containerDisk.
	GuestImage = "drydock.dev/test-guest:devel"
	// GuestMemoryMiB is the memory of all guests.
	GuestMemoryMiB = 128
)

// VMI returns a small machine with the test guest.
func VMI(namespace, name string) *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{
				Memory: &v1.Memory{Guest: new(resource.MustParse(fmt.Sprintf("%dMi", GuestMemoryMiB)))},
				Devices: v1.Devices{Disks: []v1.Disk{{
					Name:       "root",
					DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
				}}},
			},
			Volumes: []v1.Volume{{
				Name:         "root",
				VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: GuestImage}},
			}},
			TerminationGracePeriodSeconds: new(int64(20)),
		},
	}
}

// VM returns a VM that always runs a VMI.
func VM(vmi *v1.VirtualMachineInstance) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyAlways),
			Template:    &v1.VirtualMachineInstanceTemplateSpec{Spec: vmi.Spec},
		},
	}
}

// boundAtOnce is the embedded cluster's StorageClass with immediate binding.
const boundAtOnce = "local-immediate"

// BlockClaim returns a small block claim with immediate binding.
func BlockClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(boundAtOnce), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode: new(corev1.PersistentVolumeBlock),
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
		},
	}
}

// AddDisk adds the claim of that name to a VM.
func AddDisk(vm *v1.VirtualMachine, name string) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
		Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}})
}

// AddDevice adds a claim as /name to a pod's only container.
func AddDevice(pod *corev1.Pod, name, claim string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	container := &pod.Spec.Containers[0]
	container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: "/" + name})
}

// BarePod returns an idle pod, with the fields that `kubectl run` sets.
func BarePod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "hold", Image: LauncherImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{layout.LauncherBinary, "hold"},
			}},
		},
	}
}
