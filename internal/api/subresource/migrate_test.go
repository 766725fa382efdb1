package subresource

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestMigrate(t *testing.T) {
	with := func(vmi *v1.VirtualMachineInstance, edit func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		edit(vmi)
		return vmi
	}
	for name, c := range map[string]struct {
		vmi *v1.VirtualMachineInstance
		err string
	}{
		"a VM that runs":      {instance(v1.Running), ""},
		"a VM that is off":    {nil, refusal("VM is not running")},
		"a VM that starts":    {instance(v1.Scheduled), refusal("VM is not running")},
		"a VM that has ended": {instance(v1.Succeeded), refusal("VM is not running")},
		"a VM that is stopped": {with(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{} }),
			refusal("cannot migrate VM: the VMI is being deleted")},
		"a VM that can't": {with(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable, Status: "False", Reason: "DisksNotLiveMigratable", Message: "cannot migrate VMI: PVC a is not shared"}}
		}), refusal("cannot migrate VM: PVC a is not shared (DisksNotLiveMigratable)")},
		"a VM that moves": {with(instance(v1.Running), func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		}), refusal("cannot migrate VM: in-flight migration detected: the VMI is being migrated already")},
	} {
		got := ""
		if err := Migrate(machine(v1.RunStrategyAlways), c.vmi); err != nil {
			got = err.Error()
		}
		if got != c.err {
			t.Errorf("%s: %q, want %q", name, got, c.err)
		}
	}
}
