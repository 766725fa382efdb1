package hotplug

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestWhatIsDoneAboutABudget(t *testing.T) {
	recorded := Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}
	tests := map[string]struct {
		o    Observed
		want BudgetStep
	}{
		"no volume was ever plugged":                       {Observed{}, BudgetStay},
		"the first attachment pod is recorded":             {Observed{Record: recorded}, BudgetMake},
		"it is there":                                      {Observed{Record: recorded, Budget: Budget{State: BudgetRight}}, BudgetStay},
		"it was refused before: it is tried again":         {Observed{Record: recorded, Budget: Budget{Why: "exceeded quota"}}, BudgetMake},
		"it was just made, and is not seen yet":            {Observed{Record: recorded, Budget: Budget{Lately: true}}, BudgetStay},
		"it was just restored, and is changed again":       {Observed{Record: recorded, Budget: Budget{State: BudgetAltered, Lately: true}}, BudgetStay},
		"somebody changed it":                              {Observed{Record: recorded, Budget: Budget{State: BudgetAltered}}, BudgetRestore},
		"somebody else's object has its name":              {Observed{Record: recorded, Budget: Budget{State: BudgetForeign}}, BudgetRefuse},
		"deleted while the guest moves":                    {Observed{Stage: Frozen, Record: recorded, Pods: []Pod{runs(1, "a")}}, BudgetMake},
		"deleted while the guest shuts down, which writes": {Observed{Stage: Ending, Record: recorded, Pods: []Pod{runs(1, "a")}}, BudgetMake},
		"somebody removed the record, and the pods run":    {Observed{Pods: []Pod{runs(1, "a")}}, BudgetMake},
		"no guest runs any more":                           {Observed{Stage: Over, Record: recorded, Pods: []Pod{runs(1, "a")}}, BudgetStay},
		"every volume has gone":                            {Observed{Record: Record{Generation: 1}}, BudgetStay},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := PlanBudget(test.o); got != test.want {
				t.Errorf("step %d, want %d", got, test.want)
			}
		})
	}
}

// guardedOf names the pods that a plan makes in any case, and those that need the budget.
func guardedOf(p Plan) string {
	names := func(list []AttachmentPod) string {
		var out []string
		for _, h := range list {
			out = append(out, h.Name)
		}
		return strings.Join(out, " ")
	}
	return names(p.Create) + "|" + names(p.Guarded)
}

func TestWithoutABudgetOnlyWhatTheGuestHasIsHeld(t *testing.T) {
	const ready, attached, bound = v1.VolumeReady, v1.HotplugVolumeAttachedToNode, v1.VolumeBound
	tests := map[string]struct {
		o    Observed
		want string
	}{
		"a volume that is new waits": {
			Observed{Wanted: want("a"), Entries: []Entry{through(0, bound, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}}}, "|hp-1"},
		"the pod of a volume in use was taken away: its successor is made": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, ready, "a")}, Record: Record{Generation: 2, Pods: []AttachmentPod{held(2, "a")}}}, "hp-2|"},
		"the pod of a volume that the guest is just given was taken away": {
			Observed{Wanted: want("a"), Entries: []Entry{through(1, attached, "a")}, Record: Record{Generation: 2, Pods: []AttachmentPod{held(2, "a")}},
				Pods: []Pod{runs(1, "a")}}, "hp-2|"},
		"somebody deletes the budget as soon as it is made: what is new waits": {
			Observed{Wanted: want("a"), Entries: []Entry{through(0, bound, "a")}, Record: Record{Generation: 1, Pods: []AttachmentPod{held(1, "a")}},
				Budget: Budget{Lately: true}}, "|hp-1"},
		"one of each": {
			Observed{Wanted: want("a", "b"), Entries: []Entry{through(1, ready, "a"), through(0, bound, "b")},
				Record: Record{Generation: 3, Pods: []AttachmentPod{held(2, "a"), held(3, "b")}}}, "hp-2|hp-3"},
		"what the guest is to let go of is held until it has": {
			Observed{Entries: []Entry{through(1, v1.HotplugVolumeDetaching, "a")}, Record: Record{Generation: 2, Pods: []AttachmentPod{held(2, "a")}}}, "hp-2|"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Prefix = "hp"
			if got := guardedOf(decided(test.o)); got != test.want {
				t.Errorf("without a budget %q are made, want %q", got, test.want)
			}
			whole := strings.ReplaceAll(strings.Trim(test.want, "|"), "|", " ") + "|"
			test.o.Budget.State = BudgetRight
			if got := guardedOf(decided(test.o)); got != whole {
				t.Errorf("within a budget %q are made, want %q", got, whole)
			}
		})
	}
}

func TestWhyThereIsNoBudgetIsSaidOfTheVolumesThatWaitForIt(t *testing.T) {
	const why = "the PodDisruptionBudget hp can't be made: exceeded quota"
	o := Observed{Prefix: "hp", Wanted: want("a", "b"), Entries: []Entry{through(1, v1.VolumeReady, "a"), through(0, v1.VolumeBound, "b")},
		Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a")), held(2, "b")}}, Pods: []Pod{runs(1, "a")}, Budget: Budget{Why: why}}
	plan := decided(o)
	if a, b := plan.Entries[0], plan.Entries[1]; a != o.Entries[0] || b.Reason != ReasonAttachFailed || b.Message != why {
		t.Errorf("the entries are %+v", plan.Entries)
	}
	o.Entries, o.Budget = plan.Entries, Budget{State: BudgetRight}
	if plan = decided(o); plan.Entries[1].Message != "" {
		t.Errorf("with a budget the entry is %+v", plan.Entries[1])
	}
}
