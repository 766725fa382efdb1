//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// TestMaintenanceBesideOthersOfTheDisks asks for a VM's disks while one is plugged into another VM's guest: the
// maintenance must name that guest, and wait for its end. Then the other VM is taken to maintenance with all its
// disks, including the plugged one. In the API server's tests nobody uses the disks.
func TestMaintenanceBesideOthersOfTheDisks(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claim(t, ns, "own", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "own"))
	claim(t, ns, "plugged", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "plugged"))
	user := newVM(newVMI(ns, "user"), v1.RunStrategyAlways)
	addClaimDisk(user, "own", onClaim("own"))
	other := newVM(newVMI(ns, "other"), v1.RunStrategyHalted)
	addClaimDisk(other, "data", onClaim("plugged"))
	create(t, other)
	g := bootVM(t, user)
	do(t, ns, "addvolume", "user", "--volume-name=plugged", "--persist")
	g.gets("plugged")

	// An attachment pod and the guest use the plugged disk.
	cantTake(t, ns, "other", "the claim plugged is plugged into the guest of VMI user")
	cantTake(t, ns, "user", "the run strategy of VM user is Always: stop it")
	waits := maintainer(ns, "waits", "exec sleep 1000")
	waits.Labels[layout.MaintenanceForLabel] = "other"
	waits.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "plugged"
	c := &waits.Spec.Containers[0]
	c.VolumeDevices, c.VolumeMounts = nil, []corev1.VolumeMount{{Name: "data", MountPath: "/disk"}}
	create(t, waits)
	awaitWait(t, waits, "the claim plugged is plugged into the guest of VMI user")

	do(t, ns, "stop", "user")
	awaitPod(t, waits, "its turn", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	awaitGone(t, objectFor(ns, "user"))
	cantTake(t, ns, "user", "the maintenance pod waits of other uses the claim plugged")
	deleteObject(t, waits)
	out := do(t, ns, "maintenance", "take", "user", "--image", toolsImage, "--pull-policy=IfNotPresent")
	pod := strings.TrimSpace(out[strings.LastIndex(out, " "):])
	if disks, err := inPod(t, ns, pod, "ls -d /disks/*/disk.img"); err != nil || disks != "/disks/own/disk.img\n/disks/plugged/disk.img" {
		t.Errorf("the maintenance pod of a VM with a plugged disk has (%v):\n%s", err, disks)
	}
	do(t, ns, "maintenance", "release", "user")
	awaitPrintable(t, ns, "user", v1.VirtualMachineStatusStopped)
}

// TestASnapshotWaitsForMaintenance asks for a snapshot while a pod has the VM's disks: it must wait, say for whom, and be
// taken when the pod is gone. Only here does a pod use the disks, and a driver take the snapshot. That maintenance waits
// for a snapshot is tested against the API server.
func TestASnapshotWaitsForMaintenance(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, onDevice(newDataVolume(ns, "data", "16Mi", blankDisk())))
	awaitFilled(t, ns, "data")
	vm := newVM(newVMI(ns, "vm"), v1.RunStrategyHalted)
	addClaimDisk(vm, "data", onClaim("data"))
	create(t, vm)
	pod := maintainer(ns, "pod", "echo repaired > /disk && exec sleep 1000")
	create(t, pod)
	awaitOnDisk(t, pod, "repaired")

	snap := snapshot(t, ns, "snap", func(s *snapshotv1.VirtualMachineSnapshotStatus) bool {
		return strings.Contains(fmt.Sprint(s.Conditions), "the VM vm is in maintenance mode: its disks are locked for the pod pod")
	})
	deleteObject(t, pod)
	await(t, snap, &snapshotv1.VirtualMachineSnapshotList{}, "the end", func(s *snapshotv1.VirtualMachineSnapshot) bool {
		return s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
	})
}

// onClaim returns a volume on a claim.
func onClaim(name string) v1.VolumeSource {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = name
	return v1.VolumeSource{PersistentVolumeClaim: source}
}

// cantTake makes virtctl take a VM to maintenance without waiting. It must fail with these words, and leave no pod.
func cantTake(t *testing.T, ns, vm, words string) {
	t.Helper()
	out, err := virtctl(t.Context(), "-n", ns, "maintenance", "take", vm, "--wait=false", "--image", toolsImage)
	if err == nil || !strings.Contains(out, words) {
		t.Errorf("virtctl maintenance take %s --wait=false (error: %v) does not say %q: %s", vm, err, words, out)
	}
	if out := do(t, ns, "maintenance", "list", vm); out != "no pod has the disks of a machine, or waits for them" {
		t.Errorf("after a refusal there is a pod: %s", out)
	}
}

func awaitWait(t *testing.T, pod *corev1.Pod, words string) {
	t.Helper()
	awaitPod(t, pod, "the words "+words, func(p *corev1.Pod) bool {
		c := podstatus.Condition(p, layout.MaintenanceLockCondition)
		return c != nil && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, words)
	})
}
