package vmistatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// TestVolumesThatAreCopied compares the list and its condition, as status, reason and message.
func TestVolumesThatAreCopied(t *testing.T) {
	one, other := []v1.StorageMigratedVolumeInfo{{VolumeName: "root"}}, []v1.StorageMigratedVolumeInfo{{VolumeName: "data"}}
	changes := says(v1.VirtualMachineInstanceVolumesChange, "True", "")
	arrived := Migration{Of: "m", Arrived: &Arrival{}}
	for name, test := range map[string]struct {
		phase v1.VirtualMachineInstancePhase
		had   []v1.StorageMigratedVolumeInfo
		f     Facts
		want  []v1.StorageMigratedVolumeInfo
		says  string
	}{
		"nothing is known":      {v1.Running, one, Facts{}, one, "True  "},
		"none, of none":         {v1.Running, nil, Facts{Volumes: Known(Volumes{})}, nil, ""},
		"one":                   {v1.Running, nil, Facts{Volumes: Known(Volumes{Migrated: one, Message: "why"})}, one, "True  why"},
		"another":               {v1.Running, one, Facts{Volumes: Known(Volumes{Migrated: other, Message: "why"})}, other, "True  why"},
		"none any more":         {v1.Running, one, Facts{Volumes: Known(Volumes{})}, nil, ""},
		"a claim is missing":    {v1.Running, one, Facts{Volumes: Known(Volumes{Idle: ReasonDestinationMissing, Message: "why"})}, nil, "False DestinationMissing why"},
		"taken back":            {v1.Running, one, Facts{Volumes: Known(Volumes{Canceled: true, Message: "why"})}, one, "False VolumesChangeCancellation why"},
		"the guest has arrived": {v1.Running, one, Facts{Migration: arrived}, nil, ""},
		"before it runs":        {v1.Scheduling, nil, Facts{Volumes: Known(Volumes{Migrated: one})}, nil, ""},
		"it ends":               {v1.Running, one, Facts{End: &End{}}, one, "True  "},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(test.phase)
			if vmi.Status.MigratedVolumes = test.had; test.had != nil {
				vmi.Status.Conditions = append(vmi.Status.Conditions, changes)
			}
			test.f.Now = now
			status := Project(vmi, Controller, test.f)
			if diff := cmp.Diff(test.want, status.MigratedVolumes); diff != "" {
				t.Errorf("what is copied (-want +got):\n%s", diff)
			}
			got := ""
			if c := condition.Find(status.Conditions, v1.VirtualMachineInstanceVolumesChange); c != nil {
				got = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			if got != test.says {
				t.Errorf("the condition is %q, want %q", got, test.says)
			}
		})
	}
}
