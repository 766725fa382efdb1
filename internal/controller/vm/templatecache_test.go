package vm

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

type records struct {
	client.Reader
	of    map[string]*appsv1.ControllerRevision
	asked int
}

func (r *records) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.asked++
	found, ok := r.of[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "controllerrevisions"}, key.Name)
	}
	found.DeepCopyInto(into.(*appsv1.ControllerRevision))
	return nil
}

func withCores(cores uint32) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "uid"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Domain.CPU = &v1.CPU{Cores: cores}
	return vm
}

func madeFrom(vm *v1.VirtualMachine) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
	}}
	vmi.Status.VirtualMachineRevisionName = vmcontroller.RevisionName(vm)
	return vmi
}

func TestTheRecordOfATemplateIsReadOnce(t *testing.T) {
	one, two, four := withCores(1), withCores(2), withCores(4)
	first, second := vmcontroller.NewRevision(one), vmcontroller.NewRevision(two)
	reader := &records{of: map[string]*appsv1.ControllerRevision{first.Name: first, second.Name: second}}
	r := &Reconciler{Reader: reader}
	steps := []struct {
		what         string
		vm, from     *v1.VirtualMachine
		cores, asked int
	}{
		{"the template is as it was", one, one, 1, 0},
		{"it is changed", two, one, 1, 1},
		{"it is changed again", four, one, 1, 1},
		{"the guest is restarted in between", four, two, 2, 2},
		{"and runs with what there is", four, four, 4, 2},
		{"an older one is gone", four, withCores(8), 0, 3},
		{"that is not remembered", four, withCores(8), 0, 4},
	}
	for _, s := range steps {
		spec, err := r.startedFrom(t.Context(), s.vm, madeFrom(s.from))
		if err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		cores := 0
		if spec != nil {
			cores = int(spec.Domain.CPU.Cores)
		}
		if cores != s.cores || reader.asked != s.asked {
			t.Errorf("%s: started with %d cores after %d questions, want %d and %d", s.what, cores, reader.asked, s.cores, s.asked)
		}
	}
	if len(r.started.of) != 0 {
		t.Errorf("remembered at the end: %v", r.started.of)
	}
}
