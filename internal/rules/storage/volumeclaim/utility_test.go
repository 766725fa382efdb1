package volumeclaim

import (
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestAUtilityVolumesClaimIsUsed(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}}}
	vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{Name: "dump"}, {Name: "again"}}
	vmi.Spec.UtilityVolumes[0].ClaimName, vmi.Spec.UtilityVolumes[1].ClaimName = "dump", "dump"
	if got := UsedBy(vmi); !slices.Equal(got, []string{"root", "dump"}) {
		t.Errorf("the claims are %q", got)
	}
}
