package machine

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestWhichVolumesAGuestOnlyReads(t *testing.T) {
	disk := v1.DiskDevice{Disk: &v1.DiskTarget{}}
	readOnly := &v1.PersistentVolumeClaimVolumeSource{}
	readOnly.ReadOnly = true
	spec := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: readOnly}},
		{Name: "plain", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
		{Name: "file", VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}},
	}}
	spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "claim", DiskDevice: disk}, {Name: "plain", DiskDevice: disk},
		{Name: "file", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}},
		{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}, {Name: "lun", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{ReadOnly: true}}},
	}
	for volume, want := range map[string]struct{ readOnly, drive bool }{
		"claim": {true, false}, "plain": {false, false}, "file": {true, false}, "cd": {true, true}, "lun": {true, false}, "none": {false, false},
	} {
		if got := ReadOnly(spec, volume); got != want.readOnly {
			t.Errorf("%s is only read: %v, want %v", volume, got, want.readOnly)
		}
		if got := IsDrive(spec, volume); got != want.drive {
			t.Errorf("%s is in a drive: %v, want %v", volume, got, want.drive)
		}
	}
}
