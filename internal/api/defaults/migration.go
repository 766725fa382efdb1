package defaults

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// Migration completes a new VirtualMachineInstanceMigration: the finalizer keeps it until its target pod is gone, and
// the label finds it by its VMI's name.
func Migration(m *v1.VirtualMachineInstanceMigration) {
	if !slices.Contains(m.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer) {
		m.Finalizers = append(m.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer)
	}
	name := layout.LabelValue(m.Spec.VMIName)
	if len(validation.IsValidLabelValue(name)) > 0 {
		// No VMI can have such a name, and validation reports that.
		return
	}
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[v1.MigrationSelectorLabel] = name
}
