package vmcontroller

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/controllerrevision"
)

// RevisionName returns the name of the ControllerRevision with a VMI's template. The name follows from the template: a
// restart without a change creates no new one (decision 071).
func RevisionName(vm *v1.VirtualMachine) string {
	return fmt.Sprintf("revision-start-vm-%s-%s", vm.UID, layout.HexDigest(string(mustMarshal(templateSpec(vm))), 10))
}

// NewRevision returns that ControllerRevision.
func NewRevision(vm *v1.VirtualMachine) *appsv1.ControllerRevision {
	template := &v1.VirtualMachineInstanceTemplateSpec{Spec: *templateSpec(vm)}
	return &appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{
			Name: RevisionName(vm), Namespace: vm.Namespace,
			Labels:          map[string]string{RevisionLabel: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data: controllerrevision.Data(&v1.VirtualMachineSpec{Template: template}),
	}
}

// RevisionLabel has the VM's UID.
const RevisionLabel = "kubevirt.io/vm-uid"

// StartedFrom returns the template's spec in a ControllerRevision.
func StartedFrom(r *appsv1.ControllerRevision) (*v1.VirtualMachineInstanceSpec, error) {
	var spec v1.VirtualMachineSpec
	if err := json.Unmarshal(r.Data.Raw, &spec); err != nil {
		return nil, fmt.Errorf("reading the ControllerRevision %s: %w", r.Name, err)
	}
	if spec.Template == nil {
		return nil, fmt.Errorf("reading the ControllerRevision %s: it holds no template", r.Name)
	}
	return &spec.Template.Spec, nil
}

// templateSpec adds the implied UUID to a template without one.
func templateSpec(vm *v1.VirtualMachine) *v1.VirtualMachineInstanceSpec {
	spec := vm.Spec.Template.Spec.DeepCopy()
	if firmware.Missing(spec) {
		firmware.Set(spec, firmware.Legacy(vm.Name))
	}
	return spec
}

// An API type can be encoded.
func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return data
}
