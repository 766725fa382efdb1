package memorydump

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

type vmiEdit func(*v1.VirtualMachineInstance)

// has has the utility volume in the spec, and status an entry of it.
func has(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{Name: "dump"}}
	vmi.Spec.UtilityVolumes[0].ClaimName = "dump"
}

func status(phase v1.VolumePhase, message string) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "dump", Phase: phase, Message: message, HotplugVolume: &v1.HotplugVolumeStatus{},
			MemoryDumpVolume: &v1.DomainMemoryDumpInfo{ClaimName: "dump", TargetFileName: "file", StartTimestamp: timestamp(now), EndTimestamp: timestamp(now)},
		}}
	}
}

func migrating(vmi *v1.VirtualMachineInstance) {
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
}
func over(vmi *v1.VirtualMachineInstance)     { vmi.Status.Phase = v1.Succeeded }
func starting(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Scheduling }
func leaving(vmi *v1.VirtualMachineInstance)  { vmi.DeletionTimestamp = timestamp(now) }
func clashing(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes[0].Name = "dump" }

func request(phase v1.MemoryDumpPhase, file, message string) *v1.VirtualMachineMemoryDumpRequest {
	r := &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: phase, Message: message}
	if file != "" {
		r.FileName = &file
	}
	return r
}

func TestDecide(t *testing.T) {
	const volume = "volume"
	associating := request(v1.MemoryDumpAssociating, "", "")
	inProgress := request(v1.MemoryDumpInProgress, "", "")
	for name, test := range map[string]struct {
		before *v1.VirtualMachineMemoryDumpRequest
		vmi    []vmiEdit // nil for no VMI
		want   *v1.VirtualMachineMemoryDumpRequest
		// volumes is the change of the VMI: "" for none.
		volumes string
	}{
		"nothing is asked":                     {nil, []vmiEdit{}, nil, ""},
		"nothing is asked, and a volume left":  {nil, []vmiEdit{has}, nil, "none"},
		"asked":                                {associating, []vmiEdit{}, associating, volume},
		"asked during a migration":             {associating, []vmiEdit{migrating}, associating, ""},
		"the volume waits":                     {associating, []vmiEdit{has, status(v1.VolumePending, "")}, associating, ""},
		"the volume is attached":               {associating, []vmiEdit{has, status(v1.HotplugVolumeAttachedToNode, "")}, associating, ""},
		"virt-handler knows no dumps":          {associating, []vmiEdit{has, status(v1.HotplugVolumeUnMounted, "")}, request(v1.MemoryDumpUnmounting, "", unserved), ""},
		"an earlier volume is leaving":         {associating, []vmiEdit{status(v1.HotplugVolumeUnMounted, "")}, associating, ""},
		"QEMU writes":                          {associating, []vmiEdit{has, status(v1.MemoryDumpVolumeInProgress, "")}, inProgress, ""},
		"QEMU was fast":                        {associating, []vmiEdit{has, status(v1.MemoryDumpVolumeCompleted, "")}, request(v1.MemoryDumpUnmounting, "file", ""), ""},
		"a disk took the name":                 {associating, []vmiEdit{clashing}, request(v1.MemoryDumpUnmounting, "", "the volume [dump] of the VM has the name or the content of the PVC [dump]: use another claim for the memory dump"), ""},
		"the guest ends before the dump":       {associating, []vmiEdit{has, over}, request(v1.MemoryDumpFailed, "", guestEnded), ""},
		"the VM is gone before the dump":       {associating, nil, request(v1.MemoryDumpFailed, "", guestEnded), ""},
		"another guest starts":                 {associating, []vmiEdit{starting}, request(v1.MemoryDumpUnmounting, "", guestEnded), ""},
		"the guest is being stopped":           {associating, []vmiEdit{leaving}, request(v1.MemoryDumpUnmounting, "", guestEnded), ""},
		"QEMU still writes":                    {inProgress, []vmiEdit{has, status(v1.MemoryDumpVolumeInProgress, "")}, inProgress, ""},
		"QEMU has written":                     {inProgress, []vmiEdit{has, status(v1.MemoryDumpVolumeCompleted, "")}, request(v1.MemoryDumpUnmounting, "file", ""), ""},
		"QEMU has failed":                      {inProgress, []vmiEdit{has, status(v1.MemoryDumpVolumeFailed, "full")}, request(v1.MemoryDumpUnmounting, "", "full"), ""},
		"the guest ends during the dump":       {inProgress, []vmiEdit{has, status(v1.MemoryDumpVolumeInProgress, ""), over}, request(v1.MemoryDumpFailed, "", guestEnded), ""},
		"the volume is lost during the dump":   {inProgress, []vmiEdit{}, request(v1.MemoryDumpUnmounting, "", volumeGone), ""},
		"the result is in the VM's status":     {request(v1.MemoryDumpUnmounting, "file", ""), []vmiEdit{has, status(v1.MemoryDumpVolumeCompleted, "")}, request(v1.MemoryDumpUnmounting, "file", ""), "none"},
		"the volume leaves":                    {request(v1.MemoryDumpUnmounting, "file", ""), []vmiEdit{status(v1.HotplugVolumeUnMounted, "")}, request(v1.MemoryDumpUnmounting, "file", ""), ""},
		"the volume has left":                  {request(v1.MemoryDumpUnmounting, "file", ""), []vmiEdit{}, request(v1.MemoryDumpCompleted, "file", ""), ""},
		"the volume has left after a failure":  {request(v1.MemoryDumpUnmounting, "", "full"), []vmiEdit{}, request(v1.MemoryDumpFailed, "", "full"), ""},
		"the guest ends after the dump":        {request(v1.MemoryDumpUnmounting, "file", ""), []vmiEdit{has, over}, request(v1.MemoryDumpCompleted, "file", ""), ""},
		"completed":                            {request(v1.MemoryDumpCompleted, "file", ""), []vmiEdit{}, request(v1.MemoryDumpCompleted, "file", ""), ""},
		"failed, and a volume left":            {request(v1.MemoryDumpFailed, "", "full"), []vmiEdit{has}, request(v1.MemoryDumpFailed, "", "full"), "none"},
		"removed during the dump":              {request(v1.MemoryDumpDissociating, "", ""), []vmiEdit{has, status(v1.MemoryDumpVolumeInProgress, "")}, request(v1.MemoryDumpDissociating, "", ""), "none"},
		"removed, and QEMU is still writing":   {request(v1.MemoryDumpDissociating, "", ""), []vmiEdit{status(v1.HotplugVolumeDetaching, "")}, request(v1.MemoryDumpDissociating, "", ""), ""},
		"removed after the dump":               {request(v1.MemoryDumpDissociating, "file", ""), []vmiEdit{}, nil, ""},
		"removed from a VM that does not run":  {request(v1.MemoryDumpDissociating, "file", ""), nil, nil, ""},
		"removed from a guest that has ended":  {request(v1.MemoryDumpDissociating, "", ""), []vmiEdit{has, status(v1.MemoryDumpVolumeInProgress, ""), over}, nil, ""},
		"a volume of an earlier claim is left": {associating, []vmiEdit{func(vmi *v1.VirtualMachineInstance) { vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{Name: "old"}} }}, associating, volume},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Request: test.before.DeepCopy(), Now: now}
			if test.vmi != nil {
				o.VMI = asked().VMI
				for _, edit := range test.vmi {
					edit(o.VMI)
				}
			}
			plan := Decide(o)
			if plan.Ask {
				if !cmp.Equal(plan.Request, test.before) {
					t.Errorf("before the API server is asked, the request is %+v", plan.Request)
				}
				o.Asked = true
				plan = Decide(o)
			}
			if plan.Request != nil {
				// Both are now, whenever they are set.
				plan.Request.StartTimestamp, plan.Request.EndTimestamp = nil, nil
			}
			if diff := cmp.Diff(test.want, plan.Request); diff != "" {
				t.Errorf("the request: %s", diff)
			}
			switch {
			case plan.Changed != (test.volumes != ""):
				t.Errorf("the VMI's volumes change: %v, want %q", plan.Changed, test.volumes)
			case plan.Changed && (len(plan.Volumes) == 1) != (test.volumes == volume):
				t.Errorf("the VMI's volumes are %+v, want %q", plan.Volumes, test.volumes)
			case test.volumes == volume && (plan.Volumes[0].ClaimName != "dump" || *plan.Volumes[0].Type != v1.MemoryDump):
				t.Errorf("the volume is %+v", plan.Volumes[0])
			}
		})
	}
}

// A cache that is behind the request must not fail it.
func TestALossIsAskedFor(t *testing.T) {
	vmi := asked().VMI
	starting(vmi)
	for _, phase := range []v1.MemoryDumpPhase{v1.MemoryDumpAssociating, v1.MemoryDumpInProgress} {
		if plan := Decide(Observed{Request: request(phase, "", ""), VMI: vmi, Now: now}); !plan.Ask || plan.Request.Phase != phase {
			t.Errorf("%s: ask %v, %+v", phase, plan.Ask, plan.Request)
		}
	}
}

func TestTimesAreTheNodes(t *testing.T) {
	vmi := asked().VMI
	has(vmi)
	status(v1.MemoryDumpVolumeCompleted, "")(vmi)
	vmi.Status.VolumeStatus[0].MemoryDumpVolume.StartTimestamp = &metav1.Time{Time: now.Add(-60e9)}
	got := Decide(Observed{Request: request(v1.MemoryDumpAssociating, "", ""), VMI: vmi, Now: now.Add(60e9)}).Request
	if !got.StartTimestamp.Time.Equal(now.Add(-60e9)) || !got.EndTimestamp.Time.Equal(now) {
		t.Errorf("from %v to %v", got.StartTimestamp, got.EndTimestamp)
	}
}
