package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// ofADriverThatGroups puts both disks on volumes of a driver with a VolumeGroupSnapshotClass.
func ofADriverThatGroups(o *Observed) {
	for i := range o.Disks {
		disk := &o.Disks[i]
		disk.Driver, disk.Claim.Spec.VolumeName = "csi", "pv-"+disk.Volume
	}
	o.GroupClasses = []Class{{Name: "together", Driver: "csi"}}
}

// grouped adds the content, and the group if it is not nil.
func grouped(g *Group) edit {
	return func(o *Observed) {
		ofADriverThatGroups(o)
		begun()(o)
		o.Group = g
		o.Volumes = map[string]Volume{"pv-root": {"csi", "h-root"}, "pv-data": {"csi", "h-data"}}
	}
}

// group is a taken group of both disks with its VolumeSnapshots.
func group(changes ...func(*Group)) *Group {
	g := &Group{Owner: "c1", Driver: "csi", Taken: then, Cuts: []GroupCut{{"h-data", "snapshot-2", "u2"}, {"h-root", "snapshot-1", "u1"}}}
	for _, change := range changes {
		change(g)
	}
	return g
}

func token(t string) func(*Group) { return func(g *Group) { g.Token = t } }

func notTaken(g *Group) { g.Taken, g.Cuts = nil, nil }

func noNames(g *Group) {
	for i := range g.Cuts {
		g.Cuts[i].Name, g.Cuts[i].UID = "", ""
	}
}

// named adds the names in the content, and the given VolumeSnapshots.
func named(volumes ...VolumeSnapshot) edit {
	return func(o *Observed) {
		o.Content = withNames(o.Content, []string{"h-root", "h-data"}, group().Cuts)
		for i, v := range volumes {
			name := *o.Content.Spec.VolumeBackups[i].VolumeSnapshotName
			if v.UID == "" {
				v.UID = strings.Replace(name, "snapshot-", "u", 1)
			}
			o.VolumeSnapshots[name] = v
		}
	}
}

func groupGone(o *Observed) { o.Group = nil }

func with1(condition v1.VirtualMachineInstanceConditionType) edit {
	return func(o *Observed) {
		o.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: condition, Status: corev1.ConditionTrue}}
	}
}

func TestDecideOfAGroup(t *testing.T) {
	const (
		inProg  = snapshotv1.InProgress
		failure = snapshotv1.Failed
		lacks   = "the VolumeGroupSnapshot vmsnapshot-s1 does not have the volumes of the claims "
	)
	agent, paused := with1(v1.VirtualMachineInstanceAgentConnected), with1(v1.VirtualMachineInstancePaused)
	nothing := func(o *Observed) { runs(o); o.Hold = &launch.Hold{} }
	ready := VolumeSnapshot{Taken: then, Ready: true}
	for name, c := range map[string]struct {
		edits []edit
		want  want
	}{
		"of a VM that is stopped it is made":     {[]edit{grouped(nil)}, want{Cut, inProg, "", 0}},
		"also of one that runs without an agent": {[]edit{grouped(nil), runs}, want{Cut, inProg, "", 0}},
		"not while it is being stopped":          {[]edit{grouped(nil), guest(func(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = then })}, want{Rest, inProg, "the VM vm is being stopped", whileStored}},
		"one with an agent is held first":        {[]edit{grouped(nil), nothing, agent}, want{Quiesce, inProg, "", whileStored}},
		"if somebody says what holds it":         {[]edit{grouped(nil), runs, agent}, want{Rest, inProg, messageSilent, whileStored}},
		"so is one that is paused":               {[]edit{grouped(nil), nothing, paused}, want{Quiesce, inProg, "", whileStored}},
		"and then it is made":                    {[]edit{grouped(nil), hold(), agent}, want{Cut, inProg, "", 0}},
		"the driver is waited for":               {[]edit{grouped(group(notTaken))}, want{Rest, inProg, "", whileLocked}},
		"closely, while the guest is held":       {[]edit{grouped(group(notTaken, token("t1"))), hold()}, want{Rest, inProg, "", whileFresh}},
		"with what it says": {[]edit{grouped(group(notTaken, func(g *Group) { g.Error = "no groups here" }))},
			want{Rest, inProg, "the storage driver has not finished the VolumeGroupSnapshot vmsnapshot-s1: no groups here", whileLocked}},
		"which the deadline repeats": {[]edit{grouped(group(notTaken, func(g *Group) { g.Error = "no groups here" })), at(time.Hour)},
			want{Rest, failure, "the snapshot was not complete within 5m0s: the storage driver has not finished the VolumeGroupSnapshot vmsnapshot-s1: no groups here", 0}},
		"when it is taken its members are named":   {[]edit{grouped(group())}, want{Name, inProg, "", 0}},
		"also of a guest that went on":             {[]edit{grouped(group(token(Unheld))), runs}, want{Name, inProg, "", 0}},
		"also of one that has ended meanwhile":     {[]edit{grouped(group(token(Unheld)))}, want{Name, inProg, "", 0}},
		"which are waited for a while":             {[]edit{grouped(group(noNames)), at(3 * time.Second)}, want{Rest, inProg, "", whileFresh}},
		"all of them, and of a guest that went on": {[]edit{grouped(group(token(Unheld), func(g *Group) { g.Cuts[0].Name = "" })), runs, at(3 * time.Second)}, want{Rest, inProg, "", whileFresh}},
		"not longer":                               {[]edit{grouped(group(noNames)), at(5 * time.Second)}, want{Report, inProg, "", 0}},
		"nor while a guest stands still":           {[]edit{grouped(group(token("t1"), noNames)), hold(), at(3 * time.Second)}, want{Report, inProg, "", 0}},
		"nor again":                                {[]edit{grouped(group(noNames)), reported(false), at(3 * time.Second)}, want{Unlock, inProg, "", 0}},
		"if they are there":                        {[]edit{grouped(group(noNames))}, want{Report, inProg, "", 0}},
		"all of them":                              {[]edit{grouped(group(func(g *Group) { g.Cuts[0].Name = "" }))}, want{Report, inProg, "", 0}},
		"with their UIDs":                          {[]edit{grouped(group(func(g *Group) { g.Cuts[1].UID = "" }))}, want{Report, inProg, "", 0}},
		"then the content says that it is taken":   {[]edit{grouped(group()), named(cut, cut)}, want{Report, inProg, "", 0}},
		"whether or not its members say so":        {[]edit{grouped(group()), named(VolumeSnapshot{}, cut)}, want{Report, inProg, "", 0}},
		"and the VM goes on":                       {[]edit{grouped(group()), named(cut, cut), reported(false)}, want{Unlock, inProg, "", 0}},
		"also without names":                       {[]edit{grouped(group(noNames)), reported(false)}, want{Unlock, inProg, "", 0}},
		"names are waited for":                     {[]edit{grouped(group(noNames)), reported(false), unlocked}, want{Rest, inProg, "", whileStored}},
		"and written then":                         {[]edit{grouped(group()), reported(false), unlocked}, want{Name, inProg, "", 0}},
		"the driver's copies are waited for":       {[]edit{grouped(group()), named(cut, ready), reported(false), unlocked}, want{Rest, inProg, "", whileStored}},
		"when all are ready the content says so":   {[]edit{grouped(group()), named(ready, ready), reported(false), unlocked}, want{Report, inProg, "", 0}},
		"also if the driver says of none when":     {[]edit{grouped(group()), named(VolumeSnapshot{Ready: true}, ready), reported(true), unlocked}, want{Rest, snapshotv1.Succeeded, "the snapshot is complete", 0}},
		"and the snapshot is complete":             {[]edit{grouped(group()), named(ready, ready), reported(true), unlocked}, want{Rest, snapshotv1.Succeeded, "the snapshot is complete", 0}},
		"even if the group is gone":                {[]edit{grouped(group()), named(ready, ready), reported(true), unlocked, groupGone}, want{Rest, snapshotv1.Succeeded, "", 0}},
		"a held guest goes on first":               {[]edit{grouped(group(token("t1"), noNames)), hold()}, want{Report, inProg, "", 0}},
		"if it was held all the time":              {[]edit{grouped(group(token("t1"), noNames)), hold(over)}, want{Rest, failure, "the guest of the VM vm went on before all", 0}},
		"if somebody says so":                      {[]edit{grouped(group(token("t1"), noNames)), runs}, want{Rest, inProg, messageSilent, whileLocked}},
		"if it is there":                           {[]edit{grouped(group(token("t1"), noNames))}, want{Rest, failure, "the guest of the VM vm has ended", 0}},
		"a VM that was started in between":         {[]edit{grouped(group()), runs}, want{Rest, failure, "the VM vm was started", 0}},
		"one that lost its lock":                   {[]edit{grouped(group()), unlocked}, want{Rest, failure, "the lock of the VM vm was lost", 0}},
		"a name that is taken":                     {[]edit{grouped(group(func(g *Group) { g.Owner = "x" }))}, want{Rest, failure, "the VolumeGroupSnapshot vmsnapshot-s1 was made by somebody else", 0}},
		"one that is being deleted":                {[]edit{grouped(group(func(g *Group) { g.Ends = true })), reported(false), unlocked}, want{Rest, failure, "the VolumeGroupSnapshot vmsnapshot-s1 is being deleted", 0}},
		"one that is gone after it was reported":   {[]edit{grouped(nil), reported(false), unlocked}, want{Rest, failure, "the VolumeGroupSnapshot vmsnapshot-s1 was deleted", 0}},
		"one that is gone after it was named":      {[]edit{grouped(nil), named(cut, cut)}, want{Rest, failure, "the VolumeGroupSnapshot vmsnapshot-s1 was deleted", 0}},
		"a member that is gone":                    {[]edit{grouped(group()), named(ready), reported(false), unlocked}, want{Rest, failure, "the VolumeSnapshot snapshot-2 was deleted", 0}},
		"another one of its name":                  {[]edit{grouped(group()), named(ready, VolumeSnapshot{UID: "u9", Owner: "c1", Taken: then, Ready: true}), reported(false), unlocked}, want{Rest, failure, "the VolumeSnapshot snapshot-2 was deleted", 0}},
		"a group that lacks a disk":                {[]edit{grouped(group(func(g *Group) { g.Cuts = g.Cuts[:1] }))}, want{Rest, failure, lacks + "root-claim: their label drydock.dev/disk-of-v1 was changed", 0}},
		"that has another one":                     {[]edit{grouped(group(func(g *Group) { g.Cuts = append(g.Cuts, GroupCut{"h-x", "x", "x"}) }))}, want{Rest, failure, "the VolumeGroupSnapshot vmsnapshot-s1 also has volumes that are not the VM's (1)", 0}},
		"of another driver":                        {[]edit{grouped(group(func(g *Group) { g.Driver = "other" }))}, want{Rest, failure, lacks + "root-claim, data-claim", 0}},
		"whose volume is gone":                     {[]edit{grouped(group()), func(o *Observed) { delete(o.Volumes, "pv-data") }}, want{Rest, failure, lacks + "data-claim", 0}},
		"or never had a name":                      {[]edit{grouped(group(func(g *Group) { g.Cuts[0].Handle = "" })), func(o *Observed) { o.Volumes["pv-data"] = Volume{"csi", ""} }}, want{Rest, failure, lacks + "data-claim", 0}},
		"after the VM was let go":                  {[]edit{grouped(group(func(g *Group) { g.Cuts = g.Cuts[:1] })), reported(false), unlocked, noVM2}, want{Rest, failure, lacks + "root-claim: their label was changed", 0}},
		"one that has failed deletes its content":  {[]edit{grouped(group()), failed, unlocked}, want{Discard, failure, "", 0}},
		"one that is deleted lets the VM go first": {[]edit{grouped(group()), deleted}, want{Unlock, snapshotv1.Deleting, "", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(observed(c.edits...))
			got := want{plan.Step, plan.Snapshot.Status.Phase, "", plan.After}
			if p := condition.Find(plan.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing); p != nil {
				got.message = p.Message
			}
			if got.step != c.want.step || got.phase != c.want.phase || got.after != c.want.after || !strings.HasPrefix(got.message, c.want.message) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if len(plan.Cuts) > 0 || (plan.Group != nil) != (plan.Step == Cut) {
				t.Errorf("it makes %+v and %+v", plan.Cuts, plan.Group)
			}
		})
	}
}

func TestWhichDisksAreSnapshottedTogether(t *testing.T) {
	disk := func(claim, class, driver string) Disk {
		return Disk{Class: class, Driver: driver, Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}}}
	}
	classes := []Class{{Name: "z", Driver: "csi", Default: true}, {Name: "b", Driver: "csi"}, {Name: "a", Driver: "other"}}
	for name, c := range map[string]struct {
		disks []Disk
		want  string
	}{
		"two of one driver":          {[]Disk{disk("a", "c", "csi"), disk("b", "c", "csi")}, "z"},
		"one alone":                  {[]Disk{disk("a", "c", "csi")}, ""},
		"two on one claim":           {[]Disk{disk("a", "c", "csi"), disk("a", "c", "csi")}, ""},
		"of two drivers":             {[]Disk{disk("a", "c", "csi"), disk("b", "c", "other")}, ""},
		"two, and one not included":  {[]Disk{disk("a", "c", "csi"), disk("x", "", "other"), disk("b", "c", "csi")}, "z"},
		"one, and one not included":  {[]Disk{disk("a", "c", "csi"), disk("x", "", "csi")}, ""},
		"of a driver without groups": {[]Disk{disk("a", "c", "plain"), disk("b", "c", "plain")}, ""},
		"none":                       {nil, ""},
	} {
		if got := groupClass(c.disks, classes); got != c.want {
			t.Errorf("%s: the class %q, want %q", name, got, c.want)
		}
	}
}

func TestTheContentOfAGroup(t *testing.T) {
	o := observed(ofADriverThatGroups, inProgress, locked)
	// A tenant may have written these; the rest is from an earlier disk.
	o.Disks[0].Claim.Annotations = map[string]string{MemberAnnotation: "mine", "note": "kept"}
	o.Labeled = []string{"former", "root-claim"}
	plan := Decide(o)
	if plan.Step != MakeContent || !ByGroup(plan.Content) || Named(plan.Content) {
		t.Fatalf("%s: %+v", plan.Step, plan.Content)
	}
	want := map[string]string{"note": "kept", ClassAnnotation: "fast", GroupClassAnnotation: "together"}
	if diff := cmp.Diff(want, plan.Content.Spec.VolumeBackups[0].PersistentVolumeClaim.Annotations); diff != "" {
		t.Errorf("the annotations: %s", diff)
	}
	if diff := cmp.Diff(&Labels{Key: "drydock.dev/disk-of-v1", Put: []string{"data-claim"}, Take: []string{"former"}}, plan.Labels); diff != "" {
		t.Errorf("the labels: %s", diff)
	}
	o.Labeled = []string{"data-claim", "root-claim"}
	if plan = Decide(o); plan.Labels != nil {
		t.Errorf("of labels that are right it changes %+v", plan.Labels)
	}
	twice := observed(ofADriverThatGroups, inProgress, locked)
	twice.Disks = append(twice.Disks, Disk{Volume: "again", Class: "fast", Driver: "csi", Claim: twice.Disks[0].Claim})
	if plan = Decide(twice); !slices.Equal(plan.Labels.Put, []string{"root-claim", "data-claim"}) || len(plan.Content.Spec.VolumeBackups) != 3 {
		t.Errorf("of two volumes on one claim: %+v, labels %+v", plan.Content.Spec.VolumeBackups, plan.Labels)
	}
	o.GroupClasses = nil
	o.Disks[0].Claim.Annotations = map[string]string{GroupClassAnnotation: "mine", MemberAnnotation: "mine"}
	plan = Decide(o)
	if ByGroup(plan.Content) || !Named(plan.Content) || plan.Labels != nil || len(plan.Content.Spec.VolumeBackups[0].PersistentVolumeClaim.Annotations) != 1 {
		t.Errorf("without a class: %+v, labels %+v", plan.Content, plan.Labels)
	}
	empty := &snapshotv1.VirtualMachineSnapshotContent{}
	if ByGroup(empty) || !Named(empty) {
		t.Error("a content without disks has a group, or lacks names")
	}
}

func TestTheGroupThatIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		edits []edit
		token string
	}{
		"of a VM that is stopped": {nil, ""},
		"of a guest that goes on": {[]edit{runs}, Unheld},
		"of one that is held":     {[]edit{hold()}, "t1"},
	} {
		plan := Decide(observed(append([]edit{grouped(nil)}, c.edits...)...))
		g := plan.Group
		if g == nil || g.Name != "vmsnapshot-s1" || g.Class != "together" || g.Label != "drydock.dev/disk-of-v1" || g.Token != c.token ||
			g.Owner.UID != "c1" || !*g.Owner.Controller {
			t.Errorf("%s: the group is %+v", name, g)
		}
		if diff := cmp.Diff(&Labels{Key: "drydock.dev/disk-of-v1", Put: []string{"root-claim", "data-claim"}}, plan.Labels); diff != "" {
			t.Errorf("%s: the labels: %s", name, diff)
		}
	}
}

func TestTheNamesOfAGroup(t *testing.T) {
	o := observed(grouped(group()))
	plan := Decide(o)
	var got []string
	for _, b := range plan.Content.Spec.VolumeBackups {
		got = append(got, b.VolumeName, *b.VolumeSnapshotName, b.PersistentVolumeClaim.Annotations[MemberAnnotation])
	}
	if !slices.Equal(got, []string{"root", "snapshot-1", "u1", "data", "snapshot-2", "u2"}) {
		t.Errorf("the content says %v", got)
	}
	if Named(o.Content) || o.Content.Spec.VolumeBackups[0].PersistentVolumeClaim.Annotations[MemberAnnotation] != "" {
		t.Error("what was observed was changed")
	}
	backup := &plan.Content.Spec.VolumeBackups[0]
	plan.Content.UID = "c1"
	for name, c := range map[string]struct {
		v    VolumeSnapshot
		want bool
	}{
		"its own":         {VolumeSnapshot{UID: "u1"}, true},
		"the content's":   {VolumeSnapshot{UID: "u3", Owner: "c1"}, false},
		"the other's":     {VolumeSnapshot{UID: "u2"}, false},
		"one without UID": {VolumeSnapshot{}, false},
	} {
		if got := IsOf(plan.Content, backup, c.v); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if IsOf(plan.Content, nil, VolumeSnapshot{Owner: "c1"}) {
		t.Error("a volume that the content does not have has a VolumeSnapshot")
	}
}

func TestWhenMembersAreSought(t *testing.T) {
	for name, c := range map[string]struct {
		edits []edit
		group *Group
		want  bool
	}{
		"of a stopped VM":             {nil, group(), true},
		"of a guest that went on":     {[]edit{runs}, group(token(Unheld)), true},
		"not while it is not taken":   {nil, group(notTaken), false},
		"not while a guest is held":   {[]edit{hold()}, group(token("t1")), false},
		"but when that is reported":   {[]edit{hold(), reported(false)}, group(token("t1")), true},
		"not when they have names":    {[]edit{named(cut, cut)}, group(), false},
		"not of a guest nobody holds": {[]edit{runs}, group(token("t1")), false},
	} {
		o := observed(append([]edit{grouped(nil)}, c.edits...)...)
		if got := SeeksMembers(o, c.group); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhenTheHoldOfAGroupMatters(t *testing.T) {
	agent := with1(v1.VirtualMachineInstanceAgentConnected)
	for name, c := range map[string]struct {
		edits       []edit
		ask, verify bool
	}{
		"before it is made, with an agent": {[]edit{grouped(nil), runs, agent}, true, false},
		"before it is made, without one":   {[]edit{grouped(nil), runs}, false, false},
		"while it is not taken":            {[]edit{grouped(group(notTaken, token("t1"))), runs}, true, false},
		"when it is":                       {[]edit{grouped(group(token("t1"))), runs}, true, true},
		"when that is reported":            {[]edit{grouped(group(token("t1"))), reported(false), runs}, true, false},
		"of a guest that went on":          {[]edit{grouped(group(token(Unheld))), runs}, false, false},
	} {
		if ask, verify := AsksHold(observed(c.edits...)); ask != c.ask || verify != c.verify {
			t.Errorf("%s: ask %v, verify %v", name, ask, verify)
		}
	}
}

func TestWhatASnapshotByGroupSays(t *testing.T) {
	ready := VolumeSnapshot{Taken: then, Ready: true}
	for name, c := range map[string]struct {
		edits []edit
		want  []string
	}{
		"frozen":  {[]edit{grouped(group(token("t1"))), named(cut, cut), reported(false), hold(over)}, []string{"GuestAgent: The guest agent had frozen the guest's file systems, for 0.40 s.", "Online"}},
		"went on": {[]edit{grouped(group(token(Unheld))), named(cut, cut), reported(false), runs}, []string{"NoGuestAgent: There was no guest agent to freeze file systems. The guest went on", "Online"}},
		"stopped": {[]edit{grouped(group()), named(cut, cut), reported(false)}, nil},
		// This message comes together with the end, if that follows.
		"went on, and is ready":    {[]edit{grouped(group(token(Unheld))), named(ready, ready), reported(true), runs}, nil},
		"went on, and is complete": {[]edit{grouped(group(token(Unheld))), named(ready, ready), reported(true), unlocked}, []string{"NoGuestAgent: There was no guest agent to freeze file systems. The guest went on", "Online"}},
	} {
		var got []string
		for _, said := range Decide(observed(c.edits...)).Snapshot.Status.SourceIndications {
			got = append(got, string(said.Indication)+": "+said.Message)
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: it says %q", name, got)
		}
	}
	later := metav1.NewTime(then.Add(time.Minute))
	o := observed(grouped(group()), named(VolumeSnapshot{Taken: &later}, VolumeSnapshot{Taken: then, Error: "slow"}))
	status := Decide(o).Content.Status
	if !status.CreationTime.Equal(then) || *status.ReadyToUse || len(status.VolumeSnapshotStatus) != 2 || *status.VolumeSnapshotStatus[1].Error.Message != "slow" {
		t.Errorf("the content says %+v", status)
	}
	if got := Decide(observed(grouped(group(noNames)))).Content.Status; !got.CreationTime.Equal(then) || *got.ReadyToUse {
		t.Errorf("without names it says %+v", got)
	}
}
