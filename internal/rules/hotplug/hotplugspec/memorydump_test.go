package hotplugspec

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A disk of the template waits while a memory dump has its name, in the spec or still in the status.
func TestADiskWaitsForAMemoryDumpOfItsName(t *testing.T) {
	template := machineSpec()
	if err := Add(template, options("dump", "dump", on(""))); err != nil {
		t.Fatal(err)
	}
	vmi := &v1.VirtualMachineInstance{Spec: *machineSpec()}
	vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{Name: "dump"}}
	if SyncTemplate(vmi, template) {
		t.Errorf("beside the dump's volume the VMI gets %+v", vmi.Spec.Volumes)
	}
	vmi.Spec.UtilityVolumes = nil
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "dump", HotplugVolume: &v1.HotplugVolumeStatus{}, MemoryDumpVolume: &v1.DomainMemoryDumpInfo{},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "dump"},
	}}
	if SyncTemplate(vmi, template) {
		t.Errorf("beside the dump's status the VMI gets %+v", vmi.Spec.Volumes)
	}
	vmi.Status.VolumeStatus = nil
	if !SyncTemplate(vmi, template) {
		t.Error("then the VMI does not get the disk")
	}
}
