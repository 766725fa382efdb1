package clientgo

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	v1 "kubevirt.io/api/core/v1"
)

func TestADryRunStartsNothing(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "dry"
	created := createVM(t, namespace, name, v1.RunStrategyManual)
	dryRun := &v1.StartOptions{DryRun: []string{metav1.DryRunAll}}
	if err := virt.VirtualMachine(namespace).Start(t.Context(), name, dryRun); err != nil {
		t.Fatalf("starting the VM in a dry run: %v", err)
	}
	vm, err := virt.VirtualMachine(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("reading the VM: %v", err)
	}
	if len(vm.Status.StateChangeRequests) != 0 || vm.Generation != created.Generation {
		t.Errorf("a dry run changed the VM: requests %v, generation %d", vm.Status.StateChangeRequests, vm.Generation)
	}
}

func TestExpandSpec(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	vm := createVM(t, namespace, "expand", v1.RunStrategyHalted)
	expanded, err := virt.VirtualMachine(namespace).GetWithExpandedSpec(t.Context(), vm.Name)
	if err != nil {
		t.Fatalf("expanding the VM's spec: %v", err)
	}
	if expanded.Name != vm.Name || expanded.Spec.Template == nil || len(expanded.Spec.Template.Spec.Volumes) != 2 {
		t.Errorf("the expanded VM is not the VM: %+v", expanded)
	}
	again, err := virt.ExpandSpec(namespace).ForVirtualMachine(vm)
	if err != nil {
		t.Fatalf("expanding a VM that is sent along: %v", err)
	}
	if again.Name != vm.Name || again.Spec.Template == nil {
		t.Errorf("the expanded VM is not the one that was sent: %+v", again)
	}
}

func TestServerVersion(t *testing.T) {
	t.Parallel()
	info, err := virt.ServerVersion().Get()
	if err != nil {
		t.Fatalf("asking for the version: %v", err)
	}
	if _, err := version.ParseSemantic(info.GitVersion); err != nil {
		t.Errorf("no client can compare the server's version with its own: %v", err)
	}
	for name, value := range map[string]string{
		"gitTreeState": info.GitTreeState, "goVersion": info.GoVersion, "compiler": info.Compiler, "platform": info.Platform,
	} {
		if value == "" {
			t.Errorf("the server's version has no %s: %+v", name, info)
		}
	}
}

func TestVerbsOnWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "nobody"
	vmis := virt.VirtualMachineInstance(namespace)
	ctx := t.Context()
	for doing, err := range map[string]error{
		"start":       virt.VirtualMachine(namespace).Start(ctx, name, &v1.StartOptions{}),
		"stop":        virt.VirtualMachine(namespace).Stop(ctx, name, &v1.StopOptions{}),
		"pause":       vmis.Pause(ctx, name, &v1.PauseOptions{}),
		"unpause":     vmis.Unpause(ctx, name, &v1.UnpauseOptions{}),
		"soft reboot": vmis.SoftReboot(ctx, name),
		"reset":       vmis.Reset(ctx, name),
	} {
		mustFail(t, doing, err, errors.IsNotFound, name)
	}
}
