package hotplug

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

// By the mark in its status, virt-handler knows the volume of a memory dump from a disk, also when the spec has lost it.
func TestTheVolumeOfAMemoryDumpIsMarked(t *testing.T) {
	marked := &v1.DomainMemoryDumpInfo{ClaimName: "dump"}
	of := func(file string) *v1.DomainMemoryDumpInfo {
		return &v1.DomainMemoryDumpInfo{ClaimName: "dump", TargetFileName: file}
	}
	for name, test := range map[string]struct {
		utility  bool
		before   *v1.DomainMemoryDumpInfo // nil for no entry
		phase    v1.VolumePhase
		attached bool
		want     *v1.DomainMemoryDumpInfo
	}{
		"it is new":                     {true, nil, v1.VolumeBound, false, marked},
		"it is new, and a pod has it":   {true, nil, v1.HotplugVolumeAttachedToNode, true, marked},
		"virt-handler has named a file": {true, of("file"), v1.MemoryDumpVolumeInProgress, true, of("file")},
		"the spec has lost it":          {false, of("file"), v1.MemoryDumpVolumeInProgress, true, of("file")},
		"it is wanted again":            {true, of("old"), v1.VolumeBound, false, marked},
		"a disk is new":                 {false, nil, v1.VolumeBound, false, nil},
		"a disk has taken the name":     {false, of("old"), v1.VolumeBound, false, nil},
	} {
		s := &observation{vmi: &v1.VirtualMachineInstance{}}
		if test.utility {
			s.vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{Name: "dump"}}
		}
		if test.before != nil {
			s.vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "dump", HotplugVolume: &v1.HotplugVolumeStatus{},
				PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "dump"}, MemoryDumpVolume: test.before}}
		}
		entry := hotplug.Entry{Volume: hotplug.Volume{Name: "dump", Claim: "dump"}, Phase: test.phase}
		if test.attached {
			entry.PodName, entry.PodUID = "hp", "uid"
		}
		list := statuses(s, []hotplug.Entry{entry})
		if diff := cmp.Diff(test.want, list[0].MemoryDumpVolume); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
