package nodehotplug

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// The volume of a memory dump is not a disk: it must not be plugged, nor be reported as unplugged.
func TestTheVolumeOfAMemoryDumpIsNoDisk(t *testing.T) {
	o := world{phase: v1.MemoryDumpVolumeInProgress, claim: "dump", pod: "1"}.observed()
	if list := Decide(o); len(list) != 1 {
		t.Fatalf("without its mark it is a disk: %+v", list)
	}
	o.VMI.Status.VolumeStatus[0].MemoryDumpVolume = &v1.DomainMemoryDumpInfo{}
	if list := Decide(o); len(list) > 0 {
		t.Errorf("it is %+v", list)
	}
}
