package obstacle

import "testing"

func TestTheMostPreciseConditionSaysWhatAMachineWaitsFor(t *testing.T) {
	ready := Condition{Type: "Ready", Status: "False", Reason: "GuestNotRunning", Message: "the guest does not run"}
	for name, c := range map[string]struct {
		conditions []Condition
		want       string
	}{
		"nothing":                        {},
		"all is well":                    {conditions: []Condition{{Type: "Ready", Status: "True", Message: "x"}, {Type: "Synchronized", Status: "True", Message: "x"}}},
		"only Ready":                     {conditions: []Condition{ready}, want: "the guest does not run"},
		"a reason without a message":     {conditions: []Condition{{Type: "Ready", Status: "Unknown", Reason: "NodeLost"}}, want: "NodeLost"},
		"a condition that says nothing":  {conditions: []Condition{{Type: "Synchronized", Status: "False"}, ready}, want: "the guest does not run"},
		"the scheduler's word":           {conditions: []Condition{ready, {Type: "PodScheduled", Status: "False", Message: "no node"}}, want: "no node"},
		"a failure before everything":    {conditions: []Condition{{Type: "PodScheduled", Status: "False", Message: "no node"}, {Type: "Failure", Status: "True", Message: "refused"}}, want: "refused"},
		"a failure that is over":         {conditions: []Condition{{Type: "Failure", Status: "False", Message: "refused"}}},
		"disks that are filled":          {conditions: []Condition{ready, {Type: "DataVolumesReady", Status: "False", Message: "disk is filled"}}, want: "disk is filled"},
		"a condition of something else":  {conditions: []Condition{{Type: "LiveMigratable", Status: "False", Message: "not shared"}}},
		"a claim that is being provided": {conditions: []Condition{ready, {Type: "Provisioning", Status: "True", Message: "claim a"}}, want: "claim a"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if o := Of(c.conditions); o != nil {
				got = o.Says()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
