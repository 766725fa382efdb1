package disk

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// TestACopyHasTheSizeOfItsDisk: although the claim has room for more.
func TestACopyHasTheSizeOfItsDisk(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	for _, name := range []string{"root", "data"} {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "claim-" + name}}})
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{Name: name, Size: 4096})
	}
	vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "root"}}
	plan := func() Raw {
		plan, err := NewPlan(vmi)
		if err != nil || len(plan.Raws) != 2 || plan.Raws[1].Claim != "claim-data" || plan.Raws[1].Size != 0 {
			t.Fatalf("the plan is %+v (%v)", plan, err)
		}
		return plan.Raws[0]
	}
	if r := plan(); r.Size != 4096 || r.Claim != "" || !r.Exact {
		t.Errorf("the copy is %+v", r)
	}
	vmi.Status.VolumeStatus[0].Size = 0
	if r := plan(); r.Size != 0 || r.Claim != "claim-root" || r.Exact {
		t.Errorf("the copy is %+v", r)
	}
}

// TestACopyHasItsSizeWhateverRoomThereIs: holes take no room.
func TestACopyHasItsSizeWhateverRoomThereIs(t *testing.T) {
	const much = 1 << 60
	if size, err := (Raw{Size: much, Exact: true}).size(t.Context(), nil, Pod{}); err != nil || size != much {
		t.Errorf("it has %d bytes (%v)", size, err)
	}
}
