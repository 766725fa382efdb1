//go:build apiserver

package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// No real scheduler takes the pod.
func testSpec() v1.VirtualMachineInstanceSpec {
	memory := resource.MustParse("128Mi")
	return v1.VirtualMachineInstanceSpec{
		SchedulerName: "the-test",
		Domain:        v1.DomainSpec{Memory: &v1.Memory{Guest: &memory}},
	}
}

func TestAVMIsWholeLifeCostsFourWrites(t *testing.T) {
	w := newWorld(t, clockStands)
	w.createVMI("vmi")

	pod := w.awaitLauncher("vmi")
	w.bind(pod)
	vmi := w.awaitPhase("vmi", v1.Scheduled)
	if vmi.Status.NodeName != testNode || vmi.Labels[v1.NodeNameLabel] != testNode || vmi.Status.ActivePods[pod.UID] != testNode {
		t.Errorf("the VMI does not name its node: status %q, label %q, active pods %v",
			vmi.Status.NodeName, vmi.Labels[v1.NodeNameLabel], vmi.Status.ActivePods)
	}
	w.phase("vmi", v1.Running)
	w.awaitSettled()

	w.do("deleting the VMI", w.client.Delete(w.ctx, w.vmi("vmi")))
	w.awaitSettled() // only virt-handler ends the guest
	w.phase("vmi", v1.Succeeded)
	w.awaitPodDeletion(pod)
	w.removePod(pod)
	w.awaitGone("vmi")
	w.expectWrites(
		"POST pods",
		"PATCH virtualmachineinstances", // Scheduled
		"DELETE pods",
		"PATCH virtualmachineinstances", // the finalizer
	)
}

func TestASchedulerThatTakesItsTimeIsSaid(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	pod := w.awaitLauncher("vmi")
	w.awaitPhase("vmi", v1.Scheduling)
	w.bind(pod)
	w.awaitPhase("vmi", v1.Scheduled)
	w.awaitSettled()
	w.expectWrites(
		"POST pods",
		"PATCH virtualmachineinstances", // Scheduling
		"PATCH virtualmachineinstances", // Scheduled
	)
}

func TestAVMIWaitsForItsClaimAndSaysSo(t *testing.T) {
	w := newWorld(t)
	vmi := &v1.VirtualMachineInstance{Spec: testSpec()}
	vmi.Name, vmi.Namespace = "vmi", w.namespace
	vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		},
	}}}
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
	w.awaitPhase("vmi", v1.Pending)
	w.eventually("the condition that names the claim", func() (bool, string) {
		for _, c := range w.vmi("vmi").Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceSynchronized {
				want := "PVC " + w.namespace + "/data does not exist, waiting for it to appear"
				return c.Reason == "FailedPvcNotFound" && c.Message == want, c.Message
			}
		}
		return false, "there is none"
	})
	w.awaitSettled()

	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		VolumeMode:  new(corev1.PersistentVolumeBlock),
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	claim.Name, claim.Namespace = "data", w.namespace
	w.do("creating the claim", w.client.Create(w.ctx, claim))
	pod := w.awaitLauncher("vmi")
	if n := len(pod.Spec.Containers[0].VolumeDevices); n != 1 {
		t.Errorf("a block claim must be a device of the container, there are %d", n)
	}
}

// complain plays a kubelet that can't mount a volume of a pod.
func (w *world) complain(pod *corev1.Pod, message string) {
	w.t.Helper()
	w.do("complaining as the kubelet", w.client.Create(w.ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "complaint", Namespace: w.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: "FailedMount", Message: message, LastTimestamp: metav1.Now(),
	}))
}

func TestAVolumeThatCannotBeMountedIsSaid(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	pod := w.awaitLauncher("vmi")
	w.bind(pod)
	w.awaitPhase("vmi", v1.Scheduled)
	const complaint = `MountVolume.SetUp failed for volume "vol-x" : secret "x" not found`
	w.complain(pod, complaint)
	w.goesBy(time.Minute)
	w.eventually("the complaint on the VMI", func() (bool, string) {
		for _, c := range w.vmi("vmi").Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceSynchronized {
				return c.Reason == "FailedMount" && c.Message == complaint, c.Message
			}
		}
		return false, "there is none"
	})
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "compute", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
	w.eventually("the complaint to go", func() (bool, string) {
		for _, c := range w.vmi("vmi").Status.Conditions {
			if c.Type == v1.VirtualMachineInstanceSynchronized {
				return false, c.Message
			}
		}
		return true, ""
	})
}
