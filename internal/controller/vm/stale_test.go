package vm

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/rules/machine/firmware"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// store is an API server, or a cache of one.
func store(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1.VirtualMachine{}).Build()
}

// shownBy is a client that reads from a cache and writes to the API server.
type shownBy struct {
	client.Client
	client.Reader
}

func (s shownBy) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return s.Reader.Get(ctx, key, object, options...)
}
func (s shownBy) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.Reader.List(ctx, list, options...)
}

func always(edits ...func(*v1.VirtualMachine)) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm-uid", ResourceVersion: "7",
			Finalizers: []string{v1.VirtualMachineControllerFinalizer}},
		Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyAlways), Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	}
	firmware.Set(&vm.Spec.Template.Spec, "5d307ca9-b3ef-428c-8861-06e72d69f223")
	for _, edit := range edits {
		edit(vm)
	}
	return vm
}

// rerun makes a VM that has run, and that runs again after a failure.
func rerun(vm *v1.VirtualMachine) {
	vm.Spec.RunStrategy, vm.Status.RunStrategy = new(v1.RunStrategyRerunOnFailure), v1.RunStrategyRerunOnFailure
}

func failed(vm *v1.VirtualMachine) *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vmi-uid",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}},
		Status: v1.VirtualMachineInstanceStatus{Phase: v1.Failed, PhaseTransitionTimestamps: []v1.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: v1.Running}, {Phase: v1.Failed},
		}},
	}
}

// Each case has the state in the cache and in the API server, and whether one reconciliation makes a VMI, and whether
// the VM requests a start afterwards.
func TestACacheIsNotBelieved(t *testing.T) {
	changed := func(vm *v1.VirtualMachine) { vm.ResourceVersion = "8" }
	for name, c := range map[string]struct {
		shown, stored    []client.Object
		makes, requested bool
	}{
		"a VM starts": {
			[]client.Object{always()}, []client.Object{always()}, true, false},
		"not one that somebody has changed": {
			[]client.Object{always()}, []client.Object{always(changed)}, false, false},
		"nor one that is gone": {
			[]client.Object{always()}, nil, false, false},
		"a VM without its finalizer gets it, and starts at once": {
			[]client.Object{always(without)}, []client.Object{always(without)}, true, false},
		"not one that somebody has changed meanwhile": {
			[]client.Object{always(without)}, []client.Object{always(without, changed)}, false, false},
		"a VM is run again after a failure": {
			[]client.Object{always(rerun), failed(always())}, []client.Object{always(rerun), failed(always())}, false, true},
		"a failure that is long gone counts once": {
			[]client.Object{always(rerun), failed(always())}, []client.Object{always(rerun)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			made := false
			api := interceptor.NewClient(store(t, c.stored...), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					_, isVMI := object.(*v1.VirtualMachineInstance)
					made = made || isVMI
					return nil
				},
			})
			r := &Reconciler{Client: shownBy{api, store(t, c.shown...)}, Reader: api, Recorder: events.NewFakeRecorder(9), Settings: stage, Now: time.Now}
			key := client.ObjectKey{Namespace: "ns", Name: "vm"}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			var vm v1.VirtualMachine
			if err := api.Get(t.Context(), key, &vm); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			requested := len(vm.Status.StateChangeRequests) > 0
			if made != c.makes || requested != c.requested {
				t.Errorf("it makes a VMI: %v, want %v; a start is asked for: %v, want %v", made, c.makes, requested, c.requested)
			}
		})
	}
}

// A VM that is deleted without its VMI must keep its guest, even if the cache shows the VMI from before the garbage
// collector orphaned it.
func TestAVMThatGoesTakesItsOwnGuestOnly(t *testing.T) {
	goes := func(vm *v1.VirtualMachine) { vm.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	owned := failed(always())
	owned.ResourceVersion, owned.Status = "3", v1.VirtualMachineInstanceStatus{Phase: v1.Running}
	orphaned := owned.DeepCopy()
	orphaned.ResourceVersion, orphaned.OwnerReferences = "4", nil
	for name, c := range map[string]struct {
		stored *v1.VirtualMachineInstance
		stays  bool
	}{
		"the VM and its guest": {owned, false},
		"the VM alone":         {orphaned, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := store(t, always(goes), c.stored)
			r := &Reconciler{
				Client: shownBy{api, store(t, always(goes), owned)}, Reader: api,
				Recorder: events.NewFakeRecorder(9), Settings: stage, Now: time.Now,
			}
			key := client.ObjectKey{Namespace: "ns", Name: "vm"}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			err := api.Get(t.Context(), key, &v1.VirtualMachineInstance{})
			if client.IgnoreNotFound(err) != nil || (err == nil) != c.stays {
				t.Errorf("the VMI stays: %v (%v), want %v", err == nil, err, c.stays)
			}
		})
	}
}

func without(vm *v1.VirtualMachine) { vm.Finalizers = nil }

func stage(context.Context) (clusterconfig.Settings, error) {
	return clusterconfig.FromKubeVirt(nil), nil
}
