//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/condition"
)

func (w *world) setStrategy(name string, strategy v1.VirtualMachineRunStrategy) {
	w.t.Helper()
	vm := w.vm(name)
	before := vm.DeepCopy()
	vm.Spec.RunStrategy = &strategy
	w.do("changing the run strategy", w.client.Patch(w.ctx, vm, client.MergeFrom(before)))
}

func (w *world) request(name string, requests ...v1.VirtualMachineStateChangeRequest) {
	w.t.Helper()
	vm := w.vm(name)
	before := vm.DeepCopy()
	vm.Status.StateChangeRequests = requests
	w.do("requesting", w.client.Status().Patch(w.ctx, vm, client.MergeFrom(before)))
}

// endDeletion plays virt-handler and kubelet when a running VMI is deleted.
func (w *world) endDeletion(name string, pod *corev1.Pod) {
	w.t.Helper()
	w.eventually("VMI "+name+" to be deleted", func() (bool, string) {
		return w.vmi(name).DeletionTimestamp != nil, "it is not"
	})
	w.phase(name, v1.Succeeded)
	w.awaitPodDeletion(pod)
	w.removePod(pod)
}

func (w *world) successor(than *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	w.t.Helper()
	var vmi *v1.VirtualMachineInstance
	w.eventually("another VMI "+than.Name, func() (bool, string) {
		vmi = w.vmi(than.Name)
		return vmi != nil && vmi.UID != than.UID, "there is none"
	})
	return vmi
}

func (w *world) noSuccessor(than *v1.VirtualMachineInstance) {
	w.t.Helper()
	w.awaitSettled()
	if vmi := w.vmi(than.Name); vmi != nil && vmi.UID != than.UID {
		w.t.Fatalf("VM %s was started again", than.Name)
	}
}

func TestAVMIsStartedAndStoppedWithFewWrites(t *testing.T) {
	w := newWorld(t, clockStands)
	w.createVM("vm", v1.RunStrategyAlways)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStarting)
	pod := w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	if !vm.Status.Created || !vm.Status.Ready || vm.Status.RunStrategy != v1.RunStrategyAlways {
		t.Errorf("created %v, ready %v, run strategy %q", vm.Status.Created, vm.Status.Ready, vm.Status.RunStrategy)
	}
	w.awaitSettled()
	started := []string{
		"PATCH virtualmachines", // the finalizer
		"POST controllerrevisions",
		"POST virtualmachineinstances",
		"POST events",
		"PATCH virtualmachines/status", // Starting
		"POST pods",
		"PATCH virtualmachineinstances", // Scheduled
		"PATCH virtualmachines/status",  // Running
	}
	w.expectWrites(started...)

	w.setStrategy("vm", v1.RunStrategyHalted)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopping)
	w.endDeletion("vm", pod)
	w.awaitGone("vm")
	vm = w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	if vm.Status.Created || vm.Status.Ready {
		t.Errorf("a stopped VM says created %v, ready %v", vm.Status.Created, vm.Status.Ready)
	}
	w.awaitSettled()
	w.expectWrites(append(started,
		"PATCH virtualmachines/status", // Stopping
		"DELETE virtualmachineinstances",
		"POST events",
		"DELETE pods",
		"PATCH virtualmachineinstances", // the finalizer
		"PATCH virtualmachines/status",  // Stopped
	)...)
}

func TestAGuestThatPowersOff(t *testing.T) {
	tests := map[v1.VirtualMachineRunStrategy]struct {
		phase v1.VirtualMachineInstancePhase
		again bool
	}{
		v1.RunStrategyAlways:         {v1.Succeeded, true},
		v1.RunStrategyRerunOnFailure: {v1.Succeeded, false},
		v1.RunStrategyOnce:           {v1.Succeeded, false},
	}
	for strategy, test := range tests {
		t.Run("under "+string(strategy), func(t *testing.T) {
			w := newWorld(t)
			w.createVM("vm", strategy)
			pod := w.run("vm")
			first := w.vmi("vm")
			w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
			w.end("vm", pod, test.phase)
			if test.again {
				w.successor(first)
				return
			}
			w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
			w.noSuccessor(first)
		})
	}
}

func TestAGuestThatFailsIsRunAgain(t *testing.T) {
	for _, strategy := range []v1.VirtualMachineRunStrategy{v1.RunStrategyAlways, v1.RunStrategyRerunOnFailure} {
		t.Run("under "+string(strategy), func(t *testing.T) {
			w := newWorld(t)
			w.createVM("vm", strategy)
			pod := w.run("vm")
			first := w.vmi("vm")
			w.end("vm", pod, v1.Failed)
			w.successor(first)
			w.run("vm")
			vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
			if vm.Status.StartFailure != nil || len(vm.Status.StateChangeRequests) != 0 {
				t.Errorf("left behind: start failure %+v, requests %+v", vm.Status.StartFailure, vm.Status.StateChangeRequests)
			}
		})
	}
}

// TestGuestsOfANodeThatIsShutDownAreRunAgain plays the kubelet of a node that is shut down, where virt-handler does not run
// any more: only the pod tells why it has ended. The pod of a guest that has shut down in time has succeeded.
func TestGuestsOfANodeThatIsShutDownAreRunAgain(t *testing.T) {
	const says = "Pod was terminated in response to imminent node shutdown."
	for name, c := range map[string]struct {
		phase  corev1.PodPhase
		reason string
		ended  corev1.ContainerStateTerminated
		want   string
	}{
		"it shuts down in time": {corev1.PodSucceeded, "", corev1.ContainerStateTerminated{Message: `{"reason":"HostShutdown"}`},
			"The node was shut down, and the guest was shut down. Kubernetes said: " + says},
		"it is killed": {corev1.PodFailed, "Terminated", corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137}, says},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.createVM("vm", v1.RunStrategyRerunOnFailure)
			pod := w.run("vm")
			w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
			first := w.vmi("vm")
			held := first.DeepCopy()
			held.Finalizers = append(held.Finalizers, "test.drydock.dev/held") // it is to be seen before the next one replaces it
			w.do("holding the VMI", w.client.Patch(w.ctx, held, client.MergeFrom(first)))
			w.podStatus(pod, func(s *corev1.PodStatus) {
				s.Phase, s.Reason = c.phase, c.reason
				if c.phase == corev1.PodFailed {
					s.Message = says
				}
				s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: corev1.PodReasonTerminationByKubelet, Message: says})
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: corev1.ContainerState{Terminated: &c.ended}}}
			})
			vmi := w.awaitPhase("vm", v1.Failed)
			ready := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
			if vmi.Status.Reason != "NodeShutdown" || ready == nil || ready.Message != c.want {
				t.Errorf("the reason is %q, Ready is %+v, want NodeShutdown, %q", vmi.Status.Reason, ready, c.want)
			}
			w.eventually("the end of the VMI", func() (bool, string) {
				vmi := w.vmi("vm")
				return vmi.DeletionTimestamp != nil && slices.Equal(vmi.Finalizers, []string{"test.drydock.dev/held"}), fmt.Sprint(vmi.Finalizers)
			})
			w.do("releasing the VMI", w.client.Patch(w.ctx, w.vmi("vm"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			w.successor(first)
			w.run("vm")
			w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
		})
	}
}

func TestAGuestThatNeverRunsIsInACrashLoop(t *testing.T) {
	w := newWorld(t, clockStands) // or it may be retried before the test has seen it
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.awaitLauncher("vm")
	w.bind(pod)
	vmi := w.awaitPhase("vm", v1.Scheduled)
	w.end("vm", pod, v1.Failed)
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusCrashLoopBackOff)
	if f := vm.Status.StartFailure; f.ConsecutiveFailCount != 1 || f.LastFailedVMIUID != vmi.UID || f.RetryAfterTimestamp == nil {
		t.Errorf("start failure %+v", f)
	}
	w.awaitSettled()
	w.setStrategy("vm", v1.RunStrategyHalted)
	vm = w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	if vm.Status.StartFailure != nil {
		t.Errorf("a VM that was stopped still counts failures: %+v", vm.Status.StartFailure)
	}
}

func TestManualStartsStopsAndRestartsOnRequest(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyManual)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	w.request("vm", v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest,
		Data: map[string]string{v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue}})
	pod := w.run("vm")
	first := w.vmi("vm")
	if first.Spec.StartStrategy == nil || *first.Spec.StartStrategy != v1.StartStrategyPaused {
		t.Errorf("the VMI was to start paused, its start strategy is %v", first.Spec.StartStrategy)
	}
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	w.request("vm",
		v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &first.UID},
		v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	w.endDeletion("vm", pod)
	second := w.successor(first)
	pod = w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	if len(vm.Status.StateChangeRequests) != 0 {
		t.Errorf("requests that are done stay: %+v", vm.Status.StateChangeRequests)
	}
	w.end("vm", pod, v1.Succeeded)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	w.noSuccessor(second)
}

func TestScenario3ARunningVMWithoutAUUIDGetsItsLegacyOneWithoutRestart(t *testing.T) {
	w := newWorld(t)
	w.beforeTheRule("vm", v1.RunStrategyAlways)
	w.startLoops()
	w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	if got, want := vm.Spec.Template.Spec.Domain.Firmware.UUID, firmware.Legacy("vm"); got != want {
		t.Errorf("the VM has the UUID %s, its legacy one is %s", got, want)
	}
	first := w.vmi("vm")
	before := vm.DeepCopy()
	vm.Spec.Template.Spec.Domain.Firmware = nil
	w.do("taking the UUID away", w.client.Patch(w.ctx, vm, client.MergeFrom(before)))
	w.awaitUUID("vm")
	w.noSuccessor(first)
	for _, c := range w.vm("vm").Status.Conditions {
		if c.Type == v1.VirtualMachineRestartRequired {
			t.Errorf("a UUID that the guest has anyway asks for a restart: %s", c.Message)
		}
	}
}

func TestAChangedTemplateAsksForARestartUntilItIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	before := vm.DeepCopy()
	vm.Spec.Template.Spec.Domain.CPU = &v1.CPU{Cores: 2}
	w.do("changing the template", w.client.Patch(w.ctx, vm, client.MergeFrom(before)))
	w.eventually("the condition", func() (bool, string) {
		for _, c := range w.vm("vm").Status.Conditions {
			if c.Type == v1.VirtualMachineRestartRequired {
				return strings.Contains(c.Message, "spec.template.spec.domain.cpu"), c.Message
			}
		}
		return false, "there is none"
	})
	changed := w.vm("vm")
	back := changed.DeepCopy()
	back.Spec.Template.Spec.Domain.CPU = nil
	w.do("taking it back", w.client.Patch(w.ctx, back, client.MergeFrom(changed)))
	w.eventually("the condition to go", func() (bool, string) {
		for _, c := range w.vm("vm").Status.Conditions {
			if c.Type == v1.VirtualMachineRestartRequired {
				return false, c.Message
			}
		}
		return true, ""
	})
}

func TestADeletedVMTakesItsVMIWithIt(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	w.do("deleting the VM", w.client.Delete(w.ctx, vm))
	w.awaitPrintable("vm", v1.VirtualMachineStatusTerminating)
	w.endDeletion("vm", pod)
	w.awaitGone("vm")
	w.eventually("the VM to go", func() (bool, string) { return w.vm("vm") == nil, "it is still there" })
}

func TestAnOrphanIsAdopted(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	w.run("vm")
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	w.do("deleting the VM alone", w.client.Delete(w.ctx, vm, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	// The garbage collector's part.
	orphan := w.vmi("vm")
	before := orphan.DeepCopy()
	orphan.OwnerReferences = nil
	w.do("taking the owner off", w.client.Patch(w.ctx, orphan, client.MergeFrom(before)))
	// The cluster's own garbage collector may come first.
	var last *v1.VirtualMachine
	w.eventually("the VM to wait for nothing but the garbage collector", func() (bool, string) {
		if last = w.vm("vm"); last == nil {
			return true, ""
		}
		f := last.Finalizers
		return len(f) == 1 && f[0] == metav1.FinalizerOrphanDependents, strings.Join(f, " ")
	})
	if last != nil {
		unlocked := last.DeepCopy()
		unlocked.Finalizers = nil
		w.do("ending the orphaning", client.IgnoreNotFound(w.client.Patch(w.ctx, unlocked, client.MergeFrom(last))))
	}
	w.eventually("the VM to go", func() (bool, string) { return w.vm("vm") == nil, "it is still there" })

	w.createVM("vm", v1.RunStrategyAlways)
	w.eventually("the adoption", func() (bool, string) {
		vmi := w.vmi("vm")
		return metav1.IsControlledBy(vmi, w.vm("vm")) && vmi.UID == orphan.UID, "it has not happened"
	})
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
}

func TestNothingIsStartedInANamespaceThatGoes(t *testing.T) {
	w := newWorld(t)
	w.stop()
	vm := w.createVM("vm", v1.RunStrategyAlways)
	held := vm.DeepCopy()
	held.Finalizers = append(held.Finalizers, "example.com/hold")
	w.do("holding the VM", w.client.Patch(w.ctx, held, client.MergeFrom(vm)))
	w.do("deleting the namespace", w.client.Delete(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	// The lease needs a namespace that stays, and there the test's own rights.
	w.options.namespace, w.config.Impersonate = metav1.NamespaceDefault, rest.ImpersonationConfig{}
	w.options.identity += " again"
	w.startLoops()
	w.eventually("the VM to be looked at", func() (bool, string) {
		return slices.Contains(w.vm("vm").Finalizers, v1.VirtualMachineControllerFinalizer) || w.vm("vm").DeletionTimestamp != nil,
			"it has no finalizer"
	})
	w.awaitSettled()
	vm = w.vm("vm")
	if w.vmi("vm") != nil || slices.ContainsFunc(vm.Status.Conditions, func(c v1.VirtualMachineCondition) bool {
		return c.Type == v1.VirtualMachineFailure
	}) {
		t.Errorf("there is a VMI, or a complaint that helps nobody: %+v", vm.Status.Conditions)
	}
	free := vm.DeepCopy()
	free.Finalizers = nil
	w.do("letting the VM go", w.client.Patch(w.ctx, free, client.MergeFrom(vm)))
}
