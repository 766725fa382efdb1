//go:build apiserver

package controller

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// The pod is as admission leaves it.
func (w *world) maintain(name string, claims ...string) *corev1.Pod {
	w.t.Helper()
	return w.maintainFor("vm", name, claims...)
}

func (w *world) maintainFor(machine, name string, claims ...string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Finalizers: []string{layout.MaintenanceFinalizer},
			Labels: map[string]string{v1.AppLabel: layout.MaintenanceApp, layout.MaintenanceForLabel: machine}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}, TerminationGracePeriodSeconds: new(int64(1)),
			SchedulerName: "the-test",
			Containers:    []corev1.Container{{Name: "fix", Image: "example.com/fix:1"}},
		},
	}
	for _, claim := range claims {
		pod.Labels[layout.ClaimLabel(claim)] = ""
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	w.do("making the maintenance pod "+name, w.client.Create(w.ctx, pod))
	return pod
}

// awaitHolder waits until the VM is locked for a pod whose gate is off, and binds the pod.
func (w *world) awaitHolder(pod *corev1.Pod) {
	w.t.Helper()
	w.eventually("the gate of "+pod.Name+" to come off", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		return !lock.Gated(pod), fmt.Sprintf("conditions %+v", pod.Status.Conditions)
	})
	if !lock.HeldBy(w.vm("vm"), pod) {
		w.t.Fatalf("the pod %s may run, and the VM's lock is %+v", pod.Name, w.vm("vm").ObjectMeta)
	}
	w.bind(pod)
}

func (w *world) letsGo(pod *corev1.Pod) {
	w.t.Helper()
	w.eventually("the pod "+pod.Name+" to be let go", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod)
		return apierrors.IsNotFound(err) || err == nil && !lock.Kept(pod), fmt.Sprint(err, pod.Finalizers)
	})
}

func (w *world) finishes(pod *corev1.Pod) {
	w.t.Helper()
	w.podStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
}

// TestMaintenancePodsTakeTurns locks a VM for two pods in turn, while the loops restart. The first is deleted by
// force and must keep its lock until it has ended.
func TestMaintenancePodsTakeTurns(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyHalted)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	first := w.maintain("a-first")
	w.interrupt(3, 15*time.Millisecond)
	w.awaitHolder(first)
	second := w.maintain("b-second")
	vm := w.awaitPrintable("vm", vmcontroller.StatusMaintenance)
	said := ""
	for _, c := range vm.Status.Conditions {
		if c.Type == vmcontroller.ConditionMaintenance {
			said = c.Message
		}
	}
	if !strings.Contains(said, "locked for the pod a-first since 20") {
		t.Errorf("the condition says %q", said)
	}
	w.do("deleting the first by force", w.client.Delete(w.ctx, first, client.GracePeriodSeconds(0)))
	w.restartLoops()
	w.awaitSettled()
	w.do("reading the second", w.client.Get(w.ctx, client.ObjectKeyFromObject(second), second))
	if !lock.Gated(second) || !lock.HeldBy(w.vm("vm"), first) {
		t.Errorf("a deletion by force was taken for the end: %+v", w.vm("vm").ObjectMeta)
	}
	w.finishes(first)
	w.interrupt(3, 15*time.Millisecond)
	w.awaitHolder(second)
	w.finishes(second)
	w.letsGo(first)
	w.letsGo(second)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
}

// TestAForcedUnlockIsServedOnce plays a virt-api that gets one from an administrator.
func TestAForcedUnlockIsServedOnce(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyHalted)
	first := w.maintain("a-first")
	w.awaitHolder(first)
	second := w.maintain("b-second")
	force := func(uid string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"admin"}}}`, layout.MaintenanceReleaseAnnotation, uid, layout.MaintenanceReleaseByAnnotation)
		w.do("asking for a forced unlock", w.client.Patch(w.ctx, w.vm("vm"), client.RawPatch("application/merge-patch+json", []byte(patch))))
	}
	force("another pod's")
	w.awaitSettled()
	if !lock.HeldBy(w.vm("vm"), first) {
		t.Fatal("a request about another pod has unlocked the VM")
	}
	force(string(first.UID))
	w.awaitHolder(second)
	w.eventually("the first pod to go", func() (bool, string) {
		return apierrors.IsNotFound(w.client.Get(w.ctx, client.ObjectKeyFromObject(first), first)), "it is there"
	})
	w.do("deleting the VM", w.client.Delete(w.ctx, w.vm("vm")))
	w.awaitPodDeletion(second)
	if w.vm("vm") == nil {
		t.Fatal("the VM went before its maintenance pod has ended")
	}
	w.finishes(second)
	w.eventually("the VM to go", func() (bool, string) { return w.vm("vm") == nil, "it is there" })
}

// TestStartsAndLocksThatRace starts a VM and makes a maintenance pod at once: the pod must never run beside a VMI
// with a node. DRYDOCK_RACES sets the number of races.
func TestStartsAndLocksThatRace(t *testing.T) {
	races := 8
	if n, err := strconv.Atoi(os.Getenv("DRYDOCK_RACES")); err == nil {
		races = n
	}
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyHalted)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	for i := range races {
		pod := w.maintain(fmt.Sprintf("pod-%d", i))
		// This bypasses admission, which would refuse it in the end.
		w.strategy(v1.RunStrategyAlways)
		w.settleRace(pod)
		w.strategy(v1.RunStrategyHalted)
		w.endRace(pod)
	}
}

func (w *world) strategy(strategy v1.VirtualMachineRunStrategy) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"spec":{"runStrategy":%q}}`, strategy)))
	w.do("changing the run strategy", w.client.Patch(w.ctx, w.vm("vm"), patch))
}

// settleRace plays the scheduler for the winner of the disks, and checks that the other does not have them.
func (w *world) settleRace(pod *corev1.Pod) {
	w.t.Helper()
	w.eventually("one of the two to have the disks", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		if !lock.Gated(pod) {
			w.awaitSettled()
			if vmi := w.vmi("vm"); vmi != nil && vmi.Status.Phase == v1.Scheduled {
				w.t.Fatalf("the pod %s may run beside the VMI: %+v", pod.Name, vmi.Status)
			}
			return true, ""
		}
		vmi := w.vmi("vm")
		if vmi == nil {
			return false, "neither has them"
		}
		if launcher := w.awaitPod(vmi); launcher.Spec.NodeName == "" {
			w.bind(launcher)
		}
		if w.vmi("vm").Status.Phase != v1.Scheduled {
			return false, "the VMI waits"
		}
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		if !lock.Gated(pod) {
			w.t.Fatalf("the pod %s may run beside the VMI", pod.Name)
		}
		return true, ""
	})
}

// endRace plays the ends of the guest, if there is one, and then of the pod.
func (w *world) endRace(pod *corev1.Pod) {
	w.t.Helper()
	w.eventually("the VMI to go", func() (bool, string) {
		vmi := w.vmi("vm")
		if vmi == nil {
			return true, ""
		}
		pods := w.pods()
		for i := range pods {
			if pods[i].Labels[v1.AppLabel] == layout.LauncherApp && pods[i].DeletionTimestamp != nil && pods[i].Status.Phase != corev1.PodSucceeded {
				w.finishes(&pods[i])
			}
		}
		return false, string(vmi.Status.Phase)
	})
	w.eventually("the pod to get its turn", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		return !lock.Gated(pod), fmt.Sprintf("%+v", pod.Status.Conditions)
	})
	w.bind(pod)
	w.finishes(pod)
	w.letsGo(pod)
	pods := w.pods()
	for i := range pods {
		w.removePod(&pods[i])
	}
}

// TestAVMIIsTakenToMaintenanceAndBack ends a guest by its VMI's start strategy, locks the VMI, and starts it again when
// it may run and the lock is free. The loops restart again and again.
func TestAVMIIsTakenToMaintenanceAndBack(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vm")
	first := w.run("vm")
	waits := w.maintain("fix")
	w.startStrategy("vm", `"Maintenance"`)
	w.awaitPodDeletion(first)
	w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(waits), waits))
	if !lock.Gated(waits) {
		t.Fatal("a pod may run beside the guest")
	}
	w.phase("vm", v1.Succeeded) // virt-handler has seen QEMU's end
	w.interrupt(3, 15*time.Millisecond)
	w.removePod(first)
	w.eventually("the gate to come off", func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(waits), waits))
		return !lock.Gated(waits), fmt.Sprintf("conditions %+v", waits.Status.Conditions)
	})
	w.bind(waits)
	vmi := w.awaitPhase("vm", lock.Phase)
	if !lock.HeldBy(vmi, waits) || vmi.Status.NodeName != "" || len(vmi.Status.ActivePods) != 0 || vmi.Labels[v1.NodeNameLabel] != "" {
		t.Errorf("something is left of the first guest, or nobody has the lock: %+v, %+v", vmi.ObjectMeta, vmi.Status)
	}
	w.startStrategy("vm", "null")
	w.restartLoops()
	w.awaitSettled()
	for _, pod := range w.pods() {
		if pod.Labels[v1.AppLabel] == layout.LauncherApp {
			t.Errorf("the VMI is locked, and has the launcher pod %s", pod.Name)
		}
	}
	w.finishes(waits)
	w.interrupt(3, 15*time.Millisecond)
	w.letsGo(waits)
	second := w.run("vm")
	if second.Name != first.Name || second.UID == first.UID {
		t.Errorf("the guest runs in %s (%s) after %s (%s)", second.Name, second.UID, first.Name, first.UID)
	}
}

func TestAVMIThatIsMadeForMaintenanceHasNoGuest(t *testing.T) {
	w := newWorld(t)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "vm"}, Spec: testSpec()}
	vmi.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	vmi.Spec.StartStrategy = new(lock.StartStrategy)
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
	w.awaitPhase("vm", v1.Pending)
	w.awaitSettled()
	if pods := w.pods(); len(pods) > 0 {
		t.Errorf("it has the pods %+v", pods)
	}
	pod := w.maintain("fix")
	w.awaitPhase("vm", lock.Phase)
	w.do("deleting the VMI", w.client.Delete(w.ctx, w.vmi("vm")))
	w.awaitPodDeletion(pod)
	w.letsGo(pod)
	w.awaitGone("vm")
}

func (w *world) startStrategy(name, strategy string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"startStrategy":`+strategy+`}}`))
	w.do("changing the start strategy", w.client.Patch(w.ctx, w.vmi(name), patch))
}
