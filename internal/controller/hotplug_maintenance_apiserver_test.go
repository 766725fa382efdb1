//go:build apiserver

package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

func (w *world) awaitObstacle(pod *corev1.Pod, part string) {
	w.t.Helper()
	w.eventually("the pod "+pod.Name+" to be told of its obstacle", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		if !lock.Gated(pod) {
			w.t.Fatalf("the pod %s may run", pod.Name)
		}
		c := podstatus.Condition(pod, layout.MaintenanceLockCondition)
		if c == nil {
			return false, "it is told nothing"
		}
		return strings.Contains(c.Message, part), c.Message
	})
}

// TestAVolumeWaitsForAnotherVMsMaintenance plugs a claim that a VM's maintenance pod uses. The guest must get it
// only after that pod has ended, while the loops restart. Another volume must not wait.
func TestAVolumeWaitsForAnotherVMsMaintenance(t *testing.T) {
	w := newPlugWorld(t)
	w.createVM("vm", v1.RunStrategyHalted)
	w.claim("a", "")
	w.claim("b", "")
	fix := w.maintain("fix", "a")
	w.awaitHolder(fix)
	w.add("a", "b")
	if s := w.awaitVolume("a", v1.VolumePending); s.Reason != hotplug.ReasonClaimInUse ||
		s.Message != "PVC a is used by the maintenance pod fix of vm; the volume is attached when that has ended" {
		t.Errorf("the volume's status says %s: %s", s.Reason, s.Message)
	}
	free := w.awaitAttachmentPods(1)[0]
	w.plug(&free)
	w.interrupt(3, 15*time.Millisecond)
	w.do("deleting the pod by force", w.client.Delete(w.ctx, fix, client.GracePeriodSeconds(0)))
	w.awaitSettled()
	if pods := w.attachmentPods(); len(pods) != 1 {
		t.Errorf("%d attachment pods are there while the claim is in maintenance", len(pods))
	}
	w.finishes(fix)
	both := w.awaitAttachmentPods(2)
	w.plug(&both[1])
	w.letsGo(fix)
}

// TestMaintenanceWaitsForAPluggedDisk plugs a VM's disk into another guest, whose attachment pod is replaced
// meanwhile.
func TestMaintenanceWaitsForAPluggedDisk(t *testing.T) {
	w := newPlugWorld(t)
	w.createVM("vm", v1.RunStrategyHalted)
	w.claim("a", "")
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	w.plug(&first)
	fix := w.maintain("fix", "a")
	w.awaitObstacle(fix, "the claim a is plugged into the guest of VMI vmi (pod "+first.Name+")")
	w.history.DeleteExternally(string(first.UID))
	w.do("deleting the attachment pod by force", w.client.Delete(w.ctx, &first, client.GracePeriodSeconds(0)))
	second := w.awaitAttachmentPods(1)[0]
	w.start(&second)
	w.setVolume("a", v1.VolumeReady, &second)
	w.interrupt(3, 15*time.Millisecond)
	w.awaitObstacle(fix, "the claim a is plugged into the guest of VMI vmi (pod "+second.Name+")")
	w.unplug("a")
	w.awaitNoAttachmentPod(&second)
	w.awaitHolder(fix)
}

// TestPluggedDisksGoToMaintenanceAndComeBack: the attachment pod must be gone before the maintenance pod runs,
// and the disk be plugged again with the guest.
func TestPluggedDisksGoToMaintenanceAndComeBack(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	w.plug(&first)
	launcher := w.awaitPod(w.vmi("vmi"))
	fix := w.maintainFor("vmi", "fix", "a")
	w.startStrategy("vmi", `"Maintenance"`)
	w.awaitPodDeletion(launcher)
	w.phase("vmi", v1.Succeeded)
	w.awaitPodDeletion(&first)
	w.removePod(launcher)
	w.awaitObstacle(fix, "the claim a is plugged into the guest of VMI vmi (pod "+first.Name+")")
	w.removePod(&first)
	w.eventually("the gate to come off", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(fix), fix))
		return !lock.Gated(fix), podstatus.Condition(fix, layout.MaintenanceLockCondition).String()
	})
	w.bind(fix)
	if vmi := w.awaitPhase("vmi", lock.Phase); !lock.HeldBy(vmi, fix) || len(hotplug.EntriesOf(vmi)) > 0 {
		t.Errorf("the lock is %+v, and the volumes are %+v", vmi.ObjectMeta, vmi.Status.VolumeStatus)
	}
	if pods := w.attachmentPods(); len(pods) > 0 {
		t.Errorf("attachment pods are there in maintenance: %+v", pods)
	}
	w.startStrategy("vmi", "null")
	w.finishes(fix)
	w.letsGo(fix)
	w.run("vmi")
	again := w.awaitAttachmentPods(1)[0]
	w.plug(&again)
}

// TestMaintenanceWaitsForASnapshot plays the snapshot loop: a maintenance pod must wait until the snapshot is done.
func TestMaintenanceWaitsForASnapshot(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyHalted)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	snapshotted := func(by string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"snapshotInProgress":`+by+`}}`))
		w.do("saying that the VM is snapshotted", w.client.Status().Patch(w.ctx, w.vm("vm"), patch))
	}
	snapshotted(`"cut"`)
	fix := w.maintain("fix")
	w.awaitObstacle(fix, "the VM's disks are being snapshotted by the VirtualMachineSnapshot cut")
	snapshotted("null")
	w.awaitHolder(fix)
}
