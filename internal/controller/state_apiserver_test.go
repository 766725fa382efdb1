//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

func (w *world) createVMWithTPM(name string, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	w.t.Helper()
	spec := testSpec()
	spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec}}}
	vm.Name, vm.Namespace = name, w.namespace
	w.do("creating VM "+name, w.client.Create(w.ctx, vm))
	return vm
}

func (w *world) stateOf(vm *v1.VirtualMachine) *corev1.PersistentVolumeClaim {
	return stateclaim.Claim(stateclaim.Next(vm), "", nil)
}

func (w *world) states() []corev1.PersistentVolumeClaim {
	w.t.Helper()
	var list corev1.PersistentVolumeClaimList
	w.do("listing claims", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	return list.Items
}

func TestAVMsStateLivesAsLongAsTheVM(t *testing.T) {
	w := newWorld(t, clockStands)
	vm := w.createVMWithTPM("vm", v1.RunStrategyAlways)
	other := w.createVMWithTPM("vm-2", v1.RunStrategyAlways)
	pod := w.run("vm")
	otherPod := w.run("vm-2")
	first := w.states()
	names := []string{}
	for _, claim := range first {
		names = append(names, claim.Name)
	}
	want := []string{w.stateOf(vm).Name, w.stateOf(other).Name}
	slices.Sort(want)
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Fatalf("there are the claims %q, want %q", names, want)
	}
	for _, claim := range first {
		if owner := metav1.GetControllerOf(&claim); owner == nil || owner.Kind != "VirtualMachine" || owner.UID != vm.UID && owner.UID != other.UID {
			t.Errorf("claim %s is owned by %+v", claim.Name, owner)
		}
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == w.stateOf(vm).Name
	}) {
		t.Errorf("the pod has the volumes %+v", pod.Spec.Volumes)
	}

	w.setStrategy("vm", v1.RunStrategyHalted)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopping)
	w.endDeletion("vm", pod)
	w.awaitGone("vm")
	w.setStrategy("vm", v1.RunStrategyAlways)
	pod = w.run("vm")
	posted := 0
	for _, write := range w.writes.of(w.namespace) {
		if write == "POST persistentvolumeclaims" {
			posted++
		}
	}
	if posted != 2 {
		t.Errorf("two VMs and a restart made %d claims", posted)
	}

	w.do("deleting the VM", w.client.Delete(w.ctx, vm))
	w.awaitPrintable("vm", v1.VirtualMachineStatusTerminating)
	w.endDeletion("vm", pod)
	w.eventually("the state to go with its VM, and only that", func() (bool, string) {
		left := w.states()
		return len(left) == 1 && left[0].Name == w.stateOf(other).Name, fmt.Sprintf("there are %d", len(left))
	})
	w.do("deleting the other VM", w.client.Delete(w.ctx, other))
	w.awaitPrintable("vm-2", v1.VirtualMachineStatusTerminating)
	w.endDeletion("vm-2", otherPod)
	w.eventually("the other's to go", func() (bool, string) { return len(w.states()) == 0, "it is still there" })
}

func TestAStateOfSomebodyElseIsNotUsed(t *testing.T) {
	for name, edit := range map[string]func(*corev1.PersistentVolumeClaim){
		"a tenant's, with the label": func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil },
		"one that names the VM but not as its owner": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences[0].Controller = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			vm := w.createVMWithTPM("vm", v1.RunStrategyHalted)
			claim := w.stateOf(vm)
			edit(claim)
			w.do("creating the claim", w.client.Create(w.ctx, claim))
			w.setStrategy("vm", v1.RunStrategyAlways)
			w.awaitWaiting("vm", vmicontroller.ReasonStateClaim)
			w.awaitSettled()
			if pods := w.pods(); len(pods) != 0 {
				t.Fatalf("there are %d pods", len(pods))
			}
			w.do("deleting the claim", w.client.Delete(w.ctx, claim))
			w.run("vm")
			if got := w.states(); len(got) != 1 || stateclaim.Check(w.vmi("vm"), &got[0]) != nil {
				t.Errorf("the claims are %+v", got)
			}
		})
	}
}

// TestTheLoopsMayEndWhileAStateIsMade restarts the loops again and again. There must be one claim.
func TestTheLoopsMayEndWhileAStateIsMade(t *testing.T) {
	w := newWorld(t)
	vm := w.createVMWithTPM("vm", v1.RunStrategyAlways)
	w.interrupt(6, 10*time.Millisecond)
	w.run("vm")
	if got := w.states(); len(got) != 1 || got[0].Name != w.stateOf(vm).Name {
		t.Errorf("the claims are %+v", got)
	}
}

func TestAStateGoesWithAVMIThatBelongsToNoVM(t *testing.T) {
	w := newWorld(t)
	vmi := &v1.VirtualMachineInstance{Spec: testSpec()}
	vmi.Name, vmi.Namespace = "vmi", w.namespace
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
	pod := w.run("vmi")
	got := w.states()
	if len(got) != 1 || !metav1.IsControlledBy(&got[0], vmi) {
		t.Fatalf("the claims are %+v", got)
	}
	w.do("deleting the VMI", w.client.Delete(w.ctx, vmi))
	w.awaitPodDeletion(pod)
	w.finishPod(pod)
	w.eventually("the state to go", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(&got[0]), &corev1.PersistentVolumeClaim{})
		return apierrors.IsNotFound(err), "it is still there"
	})
}
