package vmcontroller

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

func TestAVMWithoutItsTypeIsStopped(t *testing.T) {
	missing := &Referred{Missing: "there is none"}
	small := &Referred{Source: &instancetype.Source{Kind: instancetype.KindType, Name: "small", Type: &instancetypev1.VirtualMachineInstancetypeSpec{}}}
	many := &Referred{Source: &instancetype.Source{Kind: instancetype.KindPreference, Name: "many", Preference: &instancetypev1.VirtualMachinePreferenceSpec{
		Requirements: &instancetypev1.PreferenceRequirements{CPU: &instancetypev1.CPUPreferenceRequirement{Guest: 2}},
	}}}
	for name, test := range map[string]struct {
		kind, preference *Referred
		reason, message  string
	}{
		"no type":                      {missing, many, "FailedFindInstancetype", "there is none"},
		"no preference":                {small, missing, "FailedFindPreference", "there is none"},
		"the preference requires more": {small, many, "FailedCreate", "insufficient CPU resources"},
	} {
		vm := newVM(v1.RunStrategyAlways)
		vm.Spec.Instancetype, vm.Spec.Preference = &v1.InstancetypeMatcher{Name: "a"}, &v1.PreferenceMatcher{Name: "b"}
		plan := decide(Observed{VM: vm, Type: test.kind, Preference: test.preference, Now: now})
		c := condition.Find(plan.VM.Status.Conditions, v1.VirtualMachineFailure)
		if c == nil || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
			t.Errorf("%s: Failure is %+v", name, c)
		}
		if plan.VM.Status.InstancetypeRef != nil || len(plan.Keep) > 0 {
			t.Errorf("%s: a revision of what does not fit is kept: %+v", name, plan.Keep)
		}
		if got := outcomeOf(plan); got.create || got.printable != v1.VirtualMachineStatusStopped {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
