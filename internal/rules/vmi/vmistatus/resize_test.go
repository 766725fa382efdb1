package vmistatus

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

func TestTheChangesOfCPUsAndMemoryAreTold(t *testing.T) {
	change := Known(&Obstacle{Reason: "Why", Message: "how"})
	for name, test := range map[string]struct {
		phase v1.VirtualMachineInstancePhase
		by    Writer
		had   bool
		f     Facts
		want  string
	}{
		"nothing is known":     {v1.Running, Controller, true, Facts{}, "True  "},
		"one begins":           {v1.Running, Controller, false, Facts{VCPUs: change}, "True Why how"},
		"one goes on":          {v1.Running, Controller, true, Facts{VCPUs: change}, "True Why how"},
		"one is done":          {v1.Running, Controller, true, Facts{VCPUs: Known[*Obstacle](nil)}, ""},
		"the target says none": {v1.Running, TargetHandler, true, Facts{VCPUs: Known[*Obstacle](nil)}, "True  "},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(test.phase)
			kinds := []v1.VirtualMachineInstanceConditionType{v1.VirtualMachineInstanceVCPUChange, v1.VirtualMachineInstanceMemoryChange}
			if test.had {
				vmi.Status.Conditions = append(vmi.Status.Conditions, says(kinds[0], "True", ""), says(kinds[1], "True", ""))
			}
			ofMemory := Facts{Now: now, Memory: test.f.VCPUs}
			test.f.Now = now
			for i, f := range []Facts{test.f, ofMemory} {
				got := ""
				if c := condition.Find(Project(vmi, test.by, f).Conditions, kinds[i]); c != nil {
					got = string(c.Status) + " " + c.Reason + " " + c.Message
				}
				if got != test.want {
					t.Errorf("%s says %q, want %q", kinds[i], got, test.want)
				}
				if other := condition.Find(Project(vmi, test.by, f).Conditions, kinds[1-i]); (other != nil) != test.had {
					t.Errorf("%s says %+v", kinds[1-i], other)
				}
			}
		})
	}
}
