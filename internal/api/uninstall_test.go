package api

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestASecondKubeVirtObjectIsRefused(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kv := &v1.KubeVirt{}
	kv.Namespace, kv.Name = "cnv", "hco"
	for name, test := range map[string]struct {
		there []client.Object
		want  string
	}{
		"the first":                     {nil, ""},
		"beside one of another's place": {[]client.Object{kv}, "metadata.name: Forbidden: the cluster has a KubeVirt object, cnv/hco, and can have but one: change that, or delete it before"},
	} {
		errs, err := onlyOne(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.there...).Build())
		if err != nil || errs.ToAggregate() != nil && errs.ToAggregate().Error() != test.want || (len(errs) == 0) != (test.want == "") {
			t.Errorf("%s: %v, %v; want %q", name, errs, err, test.want)
		}
	}
}

func TestTheKubeVirtObjectStaysWhileThereIsWhatItKeeps(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{}
	vm.Namespace, vm.Name = "some", "vm"
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = "some", "vmi"
	for name, test := range map[string]struct {
		strategy v1.KubeVirtUninstallStrategy
		there    []client.Object
		want     string
	}{
		"nothing is asked for": {"", []client.Object{vm}, ""},
		"nothing is there":     {v1.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist, nil, ""},
		"a VM":                 {v1.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist, []client.Object{vm}, "still VirtualMachines present"},
		"a VMI without a VM":   {v1.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist, []client.Object{vmi}, "still VirtualMachineInstances present"},
	} {
		cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.there...).Build()
		errs, err := mayUninstall(t.Context(), &v1.KubeVirt{Spec: v1.KubeVirtSpec{UninstallStrategy: test.strategy}}, cluster)
		if err != nil || (len(errs) == 0) != (test.want == "") || len(errs) > 0 && !strings.Contains(errs[0].Error(), test.want) {
			t.Errorf("%s: %v, %v; want %q", name, errs, err, test.want)
		}
	}
}
