//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// TestAHaltedVMIsLockedForOnePodAtATime lets two maintenance pods write to a halted VM's disk. The first is
// deleted by force, and the second must wait for its end. The VM must not start meanwhile, and its guest must
// later read both. Only a kubelet and the disk show that a pod writes no more when the next one does.
func TestAHaltedVMIsLockedForOnePodAtATime(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vmi := newVMI(ns, "vm")
	withData(t, vmi)
	create(t, newVM(vmi, v1.RunStrategyHalted))
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusStopped)
	maintenancePodsAreJudged(t, ns)

	first := maintainer(ns, "first", "echo first > /disk; exec sleep 1000")
	create(t, first)
	awaitPod(t, first, "its container", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	awaitOnDisk(t, first, "first")
	awaitPrintable(t, ns, "vm", "Maintenance")
	create(t, maintainer(ns, "second", `read -r word < /disk; echo "$word second" > /disk`))
	startIsRefused(t, ns)
	gate := first.DeepCopy()
	gate.Finalizers = nil
	if err := cluster.client.Patch(t.Context(), gate, client.MergeFrom(first)); err == nil || !strings.Contains(err.Error(), "only virt-controller takes the finalizer off") {
		t.Errorf("a finalizer that a tenant takes off: %v", err)
	}
	awaitPod(t, maintainer(ns, "second", ""), "the sentence why it waits", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == layout.MaintenanceLockCondition && strings.Contains(c.Message, "the VM is locked for the pod first") {
				return p.Spec.NodeName == ""
			}
		}
		return false
	})
	if err := cluster.client.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("deleting the first pod by force: %v", err)
	}
	awaitPod(t, maintainer(ns, "second", ""), "its end", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	awaitGone(t, first)
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusStopped)
	do(t, ns, "start", "vm")
	awaitPrintable(t, ns, "vm", v1.VirtualMachineStatusRunning)
	g := login(t, ns, "vm")
	g.sees("what both pods have written", "head -n 1 "+g.device("DATA"), "first second")
}

// TestAVMIIsTakenToMaintenanceAndBack takes a VMI to maintenance, which must shut its guest down; a pod writes to
// the disk, and the next guest must read it. The API server's test of this name has no guest.
func TestAVMIIsTakenToMaintenanceAndBack(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vmi := newVMI(ns, "vm")
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(120))
	withData(t, vmi)
	g := boot(t, vmi)
	startStrategy(t, vmi, `"Maintenance"`)
	g.expect(`guest: powering off`)
	awaitVMI(t, ns, "vm", "be without a guest", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == v1.Pending && vmi.Status.NodeName == "" && len(vmi.Status.ActivePods) == 0
	})

	pod := maintainer(ns, "pod", "echo repaired > /disk; exec sleep 1000")
	create(t, pod)
	awaitPod(t, pod, "its container", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	awaitOnDisk(t, pod, "repaired")
	awaitVMI(t, ns, "vm", "be in maintenance", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.Phase == "Maintenance" })
	startStrategy(t, vmi, "null")
	deleteObject(t, pod)
	awaitGone(t, pod)
	awaitRunning(t, ns, "vm")
	g = login(t, ns, "vm")
	g.sees("what the pod has written", "head -n 1 "+g.device("DATA"), "repaired")
}

func startStrategy(t *testing.T, vmi *v1.VirtualMachineInstance, strategy string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"startStrategy":`+strategy+`}}`))
	if err := cluster.client.Patch(t.Context(), objectFor(vmi.Namespace, vmi.Name), patch); err != nil {
		t.Fatalf("changing the start strategy to %s: %v", strategy, err)
	}
}

func withData(t *testing.T, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeMode: new(corev1.PersistentVolumeBlock), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")}},
		},
	})
	addDisk(vmi, v1.Disk{Name: "data", Serial: "DATA", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
}

// maintenancePodsAreJudged creates pods that must be refused.
func maintenancePodsAreJudged(t *testing.T, ns string) {
	t.Helper()
	nowhere, forced, long := maintainer(ns, "nowhere", ""), maintainer(ns, "forced", ""), maintainer(ns, strings.Repeat("a", 64), "")
	nowhere.Labels[layout.MaintenanceForLabel], forced.Spec.NodeName = "nothing", "node1"
	for want, pod := range map[string]*corev1.Pod{
		"there is no VM of this name":        nowhere,
		"can't be given a node":              forced,
		"must be no more than 63 characters": long,
	} {
		if err := cluster.client.Create(t.Context(), pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answered %v, want a refusal: %s", err, want)
		}
	}
}

func startIsRefused(t *testing.T, ns string) {
	t.Helper()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vm"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runStrategy":"Always"}}`))
	if err := cluster.client.Patch(t.Context(), vm, patch); err == nil || !strings.Contains(err.Error(), "Failed to start vm as it is in maintenance mode") {
		t.Errorf("a run strategy that starts it: %v", err)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"kubevirt.io/maintenance":null}}}`))
	if err := cluster.client.Patch(t.Context(), vm, label); err == nil || !strings.Contains(err.Error(), "only virt-controller locks a VM") {
		t.Errorf("a lock that a tenant takes away: %v", err)
	}
}

func maintainer(ns, name, script string) *corev1.Pod {
	pod := toolsPod(ns, name)
	pod.Labels = map[string]string{layout.MaintenanceForLabel: "vm"}
	pod.Spec.RestartPolicy, pod.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyNever, new(int64(1))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
	c := &pod.Spec.Containers[0]
	c.Command, c.VolumeDevices = []string{"busybox", "sh", "-c", script}, []corev1.VolumeDevice{{Name: "data", DevicePath: "/disk"}}
	return pod
}

func awaitOnDisk(t *testing.T, pod *corev1.Pod, line string) {
	t.Helper()
	eventually(t, "what the pod "+pod.Name+" writes", func(context.Context) error {
		got, err := inPod(t, pod.Namespace, pod.Name, "head -n 1 /disk")
		if err == nil && got != line {
			err = fmt.Errorf("the disk begins with %.100q, want %q", got, line)
		}
		return err
	})
}

func awaitPod(t *testing.T, pod *corev1.Pod, what string, seen func(*corev1.Pod) bool) {
	t.Helper()
	await(t, pod, &corev1.PodList{}, what, seen)
}
