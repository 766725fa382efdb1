package vmihandler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhatIsSaidOfVolumesThatComeAndGo(t *testing.T) {
	vmi := instance()
	plugging(vmi, v1.HotplugVolumeAttachedToNode)
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: "plugged", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
	vmi.Status.VolumeStatus[0].Size = 5
	for name, test := range map[string]struct {
		plugged Plugged
		want    v1.VolumeStatus
	}{
		"nothing is known of it": {Plugged{}, v1.VolumeStatus{Phase: v1.HotplugVolumeAttachedToNode, Size: 5, HotplugVolume: &v1.HotplugVolumeStatus{}}},
		"the guest has it": {Plugged{Phase: v1.VolumeReady, PodName: "p", PodUID: "1", Size: 9},
			v1.VolumeStatus{Phase: v1.VolumeReady, Target: "sda", Size: 9, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "p", AttachPodUID: "1"}}},
		"the guest is to release it": {Plugged{Phase: v1.HotplugVolumeDetaching, Reason: "r", Message: "m"},
			v1.VolumeStatus{Phase: v1.HotplugVolumeDetaching, Reason: "r", Message: "m", Target: "sda", Size: 5, HotplugVolume: &v1.HotplugVolumeStatus{}}},
		"its memory was dumped": {Plugged{Phase: v1.MemoryDumpVolumeCompleted, Dump: &v1.DomainMemoryDumpInfo{TargetFileName: "file"}},
			v1.VolumeStatus{Phase: v1.MemoryDumpVolumeCompleted, Size: 5, HotplugVolume: &v1.HotplugVolumeStatus{}, MemoryDumpVolume: &v1.DomainMemoryDumpInfo{TargetFileName: "file"}}},
		"it is out": {Plugged{Phase: v1.HotplugVolumeUnMounted},
			v1.VolumeStatus{Phase: v1.HotplugVolumeUnMounted, Size: 5, HotplugVolume: &v1.HotplugVolumeStatus{}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := *facts().Guest
			g.Plugged = map[string]Plugged{"plugged": test.plugged}
			test.want.Name = "plugged"
			list := volumes(vmi, vmi.Status.VolumeStatus, &g)
			if len(list) != 2 || list[0].Name != "plugged" || list[1].Name != "root" || list[1].Target != "vda" {
				t.Fatalf("the volumes are %+v, want plugged, and root as vda", list)
			}
			if diff := cmp.Diff(test.want, list[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestADiskHasTheSizeThatItsGuestKnows: a disk on a new, larger claim must keep the size that its guest knows until the
// guest is told.
func TestADiskHasTheSizeThatItsGuestKnows(t *testing.T) {
	for name, test := range map[string]struct {
		before int64
		known  Volume
		want   int64
	}{
		"its guest starts":                       {0, Volume{Size: 5}, 5},
		"its guest goes on":                      {5, Volume{Size: 5}, 5},
		"it is smaller than was said":            {5, Volume{Size: 4}, 4},
		"it has come to a larger claim":          {5, Volume{Size: 9}, 5},
		"it has, and the guest was told":         {5, Volume{Size: 9, Grown: 9}, 9},
		"it has grown":                           {5, Volume{Size: 5, Grown: 8}, 8},
		"it could not grow by all that is there": {5, Volume{Size: 9, Grown: 8}, 8},
		"nothing is known of it":                 {5, Volume{}, 5},
		"nothing was ever known of it":           {0, Volume{}, 0},
	} {
		vmi := instance()
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "root", Size: test.before}}
		got := volumes(vmi, vmi.Status.VolumeStatus, &Guest{Volumes: map[string]Volume{"root": test.known}})
		if len(got) != 1 || got[0].Size != test.want {
			t.Errorf("%s: %+v, want a size of %d", name, got, test.want)
		}
	}
}

func TestWhatIsKnownOfAClaimLaterCounts(t *testing.T) {
	info := func(claim string, mode corev1.PersistentVolumeMode) *v1.PersistentVolumeClaimInfo {
		return &v1.PersistentVolumeClaimInfo{ClaimName: claim, VolumeMode: &mode}
	}
	const newer, older = corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	for name, test := range map[string]struct {
		said  *v1.PersistentVolumeClaimInfo
		known Volume
		want  *v1.PersistentVolumeClaimInfo
		size  int64
	}{
		"nothing was said":                        {nil, Volume{Claim: info("data", older)}, info("data", older), 5},
		"virt-controller has said more of it":     {info("data", newer), Volume{Claim: info("data", older)}, info("data", newer), 5},
		"what was said is of another claim":       {info("other", newer), Volume{Claim: info("data", older)}, info("data", older), 5},
		"what was said is of a volume without it": {info("data", newer), Volume{}, nil, 5},
	} {
		vmi := instance()
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "root", Size: 5, PersistentVolumeClaimInfo: test.said}}
		got := volumes(vmi, vmi.Status.VolumeStatus, &Guest{Volumes: map[string]Volume{"root": test.known}})
		if diff := cmp.Diff([]v1.VolumeStatus{{Name: "root", Target: "vda", Size: test.size, PersistentVolumeClaimInfo: test.want}}, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
