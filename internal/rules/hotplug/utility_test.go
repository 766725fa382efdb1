package hotplug

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A memory dump's claim is held as a plugged disk's is, until virt-handler has released it, and delays a migration.
func TestAMemoryDumpHoldsItsClaim(t *testing.T) {
	for phase, held := range map[v1.VolumePhase]bool{
		v1.VolumePending: false, v1.VolumeBound: false, v1.HotplugVolumeAttachedToNode: true, v1.MemoryDumpVolumeInProgress: true,
		v1.MemoryDumpVolumeCompleted: true, v1.MemoryDumpVolumeFailed: true, v1.HotplugVolumeDetaching: true, v1.HotplugVolumeUnMounted: false,
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{Name: "dump"}}
		vmi.Spec.UtilityVolumes[0].ClaimName = "dump"
		vmi.Status.Phase = v1.Running
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "dump", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp", AttachPodUID: "uid"},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "dump"}, MemoryDumpVolume: &v1.DomainMemoryDumpInfo{},
		}}
		if got := Plugged(vmi, []string{"dump"}) != ""; got != held {
			t.Errorf("%s: a maintenance pod waits: %v, want %v", phase, got, held)
		}
		if err := AtRest(vmi); (err != nil) != held || held && !strings.Contains(err.Error(), "(dump) are being plugged or unplugged") {
			t.Errorf("%s: a migration waits for %v, want %v", phase, err, held)
		}
		if got := VolumesOf(&vmi.Spec); len(got) != 1 || got[0] != (Volume{Name: "dump", Claim: "dump"}) {
			t.Errorf("the spec has %+v", got)
		}
		plan := Decide(Observed{
			Wanted:  []Wanted{{Volume: Volume{Name: "dump", Claim: "dump"}, Attach: true, Alone: true}},
			Entries: EntriesOf(vmi), Record: Record{Generation: 1, Pods: []AttachmentPod{{Name: "hp", UID: "uid", Volumes: []Volume{{Name: "dump", Claim: "dump"}}}}},
			Pods: []Pod{{Name: "hp", UID: "uid", Running: true, Volumes: []Volume{{Name: "dump", Claim: "dump"}}}}, Live: true, MaintainersAsked: true,
		})
		if held && (plan.Changed || len(plan.Delete) > 0) {
			t.Errorf("%s: the plan is %+v", phase, plan)
		}
	}
}
