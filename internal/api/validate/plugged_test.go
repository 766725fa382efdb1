package validate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// TestPluggedVolumesAreNotExchanged: if a running VM requests that its disks are copied, a new claim for a hotpluggable
// volume that can't be copied would bring a different disk. It must be refused.
func TestPluggedVolumesAreNotExchanged(t *testing.T) {
	vm := func(claim string, strategy v1.UpdateVolumesStrategy, runs bool) *v1.VirtualMachine {
		vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyAlways), UpdateVolumesStrategy: &strategy}}
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}, Hotpluggable: true}}}}
		vm.Spec.Template.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}}}
		vm.Status.Created = runs
		return vm
	}
	const refused = "spec.template.spec.volumes[0]: Forbidden: volume data is hotpluggable, and its disk can't be copied to another claim while the VM runs: it is in a cdrom; " +
		"stop the VM, or unplug it and plug the other claim by another name"
	for name, test := range map[string]struct {
		claim    string
		strategy v1.UpdateVolumesStrategy
		runs     bool
		cdrom    bool
		want     string
	}{
		"another claim, whose disk is copied": {"new", v1.UpdateVolumesStrategyMigration, true, false, ""},
		"another claim of a cdrom":            {"new", v1.UpdateVolumesStrategyMigration, true, true, refused},
		"another claim of a VM off":           {"new", v1.UpdateVolumesStrategyMigration, false, true, ""},
		"another claim, as a change":          {"new", v1.UpdateVolumesStrategyReplacement, true, true, ""},
		"the same claim":                      {"old", v1.UpdateVolumesStrategyMigration, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := vm(test.claim, test.strategy, test.runs)
			if test.cdrom {
				after.Spec.Template.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}
			}
			after.Labels = map[string]string{"changed": "yes"}
			after.Spec.Template.ObjectMeta.Labels = after.Labels
			got := ""
			for _, err := range VM(after, vm("old", v1.UpdateVolumesStrategyReplacement, test.runs), clusterconfig.FromKubeVirt(nil)) {
				if err.Field == "spec.template.spec.volumes[0]" {
					got += err.Error()
				}
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
