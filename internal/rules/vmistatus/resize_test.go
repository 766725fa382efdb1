package vmistatus

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
)

func TestTheChangeOfCPUsIsTold(t *testing.T) {
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
			if test.had {
				vmi.Status.Conditions = append(vmi.Status.Conditions, says(v1.VirtualMachineInstanceVCPUChange, "True", ""))
			}
			test.f.Now = now
			got := ""
			if c := condition.Find(Project(vmi, test.by, test.f).Conditions, v1.VirtualMachineInstanceVCPUChange); c != nil {
				got = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			if got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}
