package snapshot

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// shaped gives the VM an instance type whose revision is in its status, and a preference whose revision is in its spec.
func shaped(o *Observed) {
	o.VM.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "u1.small", Kind: instancetype.KindClusterType}
	o.VM.Status.InstancetypeRef = refTo("u1.small", instancetype.KindClusterType, "vm-type-1")
	o.VM.Spec.Preference = &v1.PreferenceMatcher{Name: "linux", Kind: instancetype.KindPreference, RevisionName: "mine"}
}

func refTo(name, kind, revision string) *v1.InstancetypeStatusRef {
	return &v1.InstancetypeStatusRef{Name: name, Kind: kind, ControllerRevisionRef: &v1.ControllerRevisionRef{Name: revision}}
}

func revisions(held map[string]bool) edit { return func(o *Observed) { o.Revisions = held } }

func TestTheContentSaysWhatTheVMGoesBy(t *testing.T) {
	content := Decide(observed(shaped, inProgress, locked)).Content
	want := v1.VirtualMachineStatus{
		InstancetypeRef: refTo("u1.small", instancetype.KindClusterType, "vm-type-1"),
		PreferenceRef:   refTo("linux", instancetype.KindPreference, "mine"),
	}
	if diff := cmp.Diff(want, content.Spec.Source.VirtualMachine.Status); diff != "" {
		t.Error(diff)
	}
	if got := Revisions(content); !slices.Equal(got, []string{"vm-type-1", "mine"}) {
		t.Errorf("the revisions are %v", got)
	}
	if got := content.Spec.Source.VirtualMachine.Spec.Instancetype.RevisionName; got != "" {
		t.Errorf("the spec names the revision %s, which the VM's does not", got)
	}
}

func TestTheContentHoldsRevisionsBeforeAnythingIsCut(t *testing.T) {
	unknown := func(o *Observed) { o.VM.Status.InstancetypeRef = nil }
	all := map[string]bool{"vm-type-1": true, "mine": true}
	for name, c := range map[string]struct {
		edits   []edit
		step    Step
		hold    []string
		message string
	}{
		"none is kept yet":      {[]edit{shaped, unknown}, Rest, nil, "no revision of the instance type u1.small (VirtualMachineClusterInstancetype) is kept yet, by which the VM vm would go"},
		"none is held":          {[]edit{shaped, begun(), revisions(map[string]bool{"vm-type-1": false, "mine": false})}, HoldRevisions, []string{"vm-type-1", "mine"}, ""},
		"one is held":           {[]edit{shaped, begun(), revisions(map[string]bool{"vm-type-1": true, "mine": false})}, HoldRevisions, []string{"mine"}, ""},
		"all are held":          {[]edit{shaped, begun(), revisions(all)}, Cut, nil, ""},
		"of a guest that runs":  {[]edit{shaped, runs, begun(), revisions(map[string]bool{"vm-type-1": false, "mine": true})}, HoldRevisions, []string{"vm-type-1"}, ""},
		"one is gone":           {[]edit{shaped, begun(), revisions(map[string]bool{"vm-type-1": false})}, Rest, nil, "the ControllerRevision mine was deleted, by which the VM vm goes"},
		"nobody asks any more":  {[]edit{shaped, begun(cut)}, Cut, nil, ""},
		"nor when all is taken": {[]edit{shaped, begun(usable, usable), reported(false), unlocked}, Report, nil, ""},
		"a VM without disks":    {[]edit{shaped, func(o *Observed) { o.Disks = nil }, begun(), revisions(map[string]bool{"vm-type-1": true, "mine": false})}, HoldRevisions, []string{"mine"}, ""},
		"the lock was lost":     {[]edit{shaped, begun(), unlocked, revisions(map[string]bool{"vm-type-1": false, "mine": false})}, Rest, nil, "the lock of the VM vm was lost"},
		"the snapshot goes":     {[]edit{shaped, begun(), deleted, revisions(map[string]bool{"vm-type-1": false, "mine": false})}, Unlock, nil, "the snapshot is being deleted"},
	} {
		plan := Decide(observed(c.edits...))
		said := condition.Find(plan.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing)
		if plan.Step != c.step || !slices.Equal(plan.Revisions, c.hold) || c.message != "" && (said == nil || !strings.HasPrefix(said.Message, c.message)) {
			t.Errorf("%s: %s of %v, and it says %+v", name, plan.Step, plan.Revisions, said)
		}
	}
}
