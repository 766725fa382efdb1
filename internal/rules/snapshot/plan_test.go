package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/condition"
)

var (
	born = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	then = &metav1.Time{Time: born.Add(2 * time.Second)}
)

type edit func(*Observed)

// observed is a snapshot with its finalizer, of a stopped VM with two disks.
func observed(edits ...edit) Observed {
	o := Observed{
		Snapshot: &snapshotv1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "snap", UID: "s1", CreationTimestamp: metav1.Time{Time: born}, Finalizers: []string{Finalizer}},
			Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "vm"}},
		},
		Supported: true,
		VM: &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1", Annotations: map[string]string{
				"note": "kept", corev1.LastAppliedConfigAnnotation: "{}",
			}},
			Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
		},
		Disks: []Disk{disk("root", "fast"), disk("data", "fast")},
		Now:   born.Add(time.Second),
	}
	for _, e := range edits {
		e(&o)
	}
	return o
}

func disk(volume, class string) Disk {
	return Disk{Volume: volume, Class: class, Claim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: volume + "-claim", Labels: map[string]string{"tier": "one"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: new("local")},
	}}
}

func inProgress(o *Observed) {
	o.Snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.InProgress, SourceUID: &o.VM.UID}
}

func locked(o *Observed) { o.VM.Status.SnapshotInProgress = new("snap") }

// begun adds the content, and the given VolumeSnapshots.
func begun(volumes ...VolumeSnapshot) edit {
	return func(o *Observed) {
		inProgress(o)
		locked(o)
		o.Content = newContent(*o)
		o.Content.UID = "c1"
		o.VolumeSnapshots = map[string]VolumeSnapshot{}
		for i, v := range volumes {
			if v.Owner == "" {
				v.Owner = "c1"
			}
			o.VolumeSnapshots[*o.Content.Spec.VolumeBackups[i].VolumeSnapshotName] = v
		}
	}
}

func reported(ready bool) edit {
	return func(o *Observed) {
		o.Content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{CreationTime: then, ReadyToUse: &ready}
	}
}

func unlocked(o *Observed) { o.VM.Status.SnapshotInProgress = nil }

func at(after time.Duration) edit { return func(o *Observed) { o.Now = born.Add(after) } }

func failed(o *Observed) {
	o.Snapshot.Status.Phase = snapshotv1.Failed
}

func succeeded(o *Observed) { o.Snapshot.Status.Phase = snapshotv1.Succeeded }

func deleted(o *Observed) { o.Snapshot.DeletionTimestamp = then }

func noVM(o *Observed) { o.VM = nil }

var (
	cut    = VolumeSnapshot{Taken: then}
	usable = VolumeSnapshot{Taken: then, Ready: true}
)

// want is the expected decision: its step, the phase, the beginning of the condition Progressing's message, and the
// time of the next look.
type want struct {
	step    Step
	phase   snapshotv1.VirtualMachineSnapshotPhase
	message string
	after   time.Duration
}

func TestDecide(t *testing.T) {
	const (
		inProg  = snapshotv1.InProgress
		failure = snapshotv1.Failed
	)
	for name, c := range map[string]struct {
		edits []edit
		want  want
	}{
		"a new one gets its finalizer first": {[]edit{func(o *Observed) { o.Snapshot.Finalizers = nil }}, want{Hold, "", "", 0}},
		"then its VM is locked":              {nil, want{Lock, inProg, messageCutting, 0}},
		// A disk may be bound and filled only when the VM is started.
		"not while a disk has to be waited for": {[]edit{func(o *Observed) { o.Disks[1].Waits = "the DataVolume x" }}, want{Rest, inProg, "the DataVolume x", whileWaits}},
		"but not if there is nothing to snapshot": {[]edit{func(o *Observed) {
			o.Disks[0].Class, o.Disks[0].Why, o.Disks[1].Class, o.Disks[1].Why = "", "a", "", "b"
		}}, want{Rest, failure, "none of the VM's disks can be snapshotted: a; b", 0}},
		"without a VM it waits":    {[]edit{noVM}, want{Rest, inProg, "the VM vm does not exist", whileWaits}},
		"as long as there is time": {[]edit{noVM, at(5*time.Minute - time.Second)}, want{Rest, inProg, "the VM vm does not exist", time.Second}},
		"and fails when there is none left": {[]edit{noVM, at(5 * time.Minute)},
			want{Rest, failure, "the snapshot was not complete within 5m0s: the VM vm does not exist", 0}},
		"its own deadline counts": {[]edit{noVM, at(time.Minute), func(o *Observed) { o.Snapshot.Spec.FailureDeadline = &metav1.Duration{Duration: time.Minute} }},
			want{Rest, failure, "the snapshot was not complete within 1m0s", 0}},
		"0 is no deadline": {[]edit{noVM, at(time.Hour), func(o *Observed) { o.Snapshot.Spec.FailureDeadline = &metav1.Duration{} }},
			want{Rest, inProg, "the VM vm does not exist", longestWait}},
		"a cluster without VolumeSnapshots says so": {[]edit{func(o *Observed) { o.Supported = false }}, want{Rest, failure, "the cluster serves no VolumeSnapshots", 0}},
		"a VM that runs":             {[]edit{runs}, want{Lock, inProg, messageCutting, 0}},
		"not while it starts":        {[]edit{runs, func(o *Observed) { o.VMI.Status.Phase = v1.Scheduled }}, want{Rest, inProg, "the VM vm is being started", whileWaits}},
		"a VM that is being deleted": {[]edit{func(o *Observed) { o.VM.DeletionTimestamp = then }}, want{Rest, failure, "the VM vm is being deleted", 0}},
		"a VM without a template":    {[]edit{func(o *Observed) { o.VM.Spec.Template = nil }}, want{Rest, failure, "the VM vm has no template", 0}},
		"a VM that another snapshot has locked": {[]edit{func(o *Observed) { o.VM.Status.SnapshotInProgress = new("other") }},
			want{Rest, inProg, "the snapshot other of the VM vm is in progress", whileWaits}},
		"a VM that is being restored": {[]edit{func(o *Observed) { o.VM.Status.RestoreInProgress = new("r") }},
			want{Rest, inProg, "the VM vm is being restored by r", whileWaits}},
		"a VM in maintenance": {[]edit{func(o *Observed) {
			lock.Take(o.VM, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fix", UID: "p1"}}, born)
		}},
			want{Rest, inProg, "the VM vm is in maintenance mode: its disks are locked for the pod fix", whileWaits}},
		"a VM whose memory is being dumped": {[]edit{runs, func(o *Observed) {
			o.VM.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: v1.MemoryDumpAssociating}
		}},
			want{Rest, inProg, "the memory of the VM vm is being dumped to the PVC dump", whileWaits}},
		"a VM whose memory was dumped": {[]edit{runs, func(o *Observed) {
			o.VM.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: v1.MemoryDumpCompleted}
		}},
			want{Lock, inProg, messageCutting, 0}},
		"a locked VM gets its content":  {[]edit{inProgress, locked}, want{MakeContent, inProg, messageCutting, 0}},
		"also one that runs":            {[]edit{inProgress, locked, runs}, want{MakeContent, inProg, messageCutting, 0}},
		"nor one that was deleted":      {[]edit{inProgress, noVM2}, want{Rest, failure, "the VM vm was deleted before its snapshot was taken", 0}},
		"nor another one of its name":   {[]edit{inProgress, locked, func(o *Observed) { o.VM = o.VM.DeepCopy(); o.VM.UID = "v2" }}, want{Rest, failure, "the VM vm was deleted", 0}},
		"a disk that is not filled yet": {[]edit{inProgress, locked, func(o *Observed) { o.Disks[1].Waits = "the DataVolume x" }}, want{Unlock, inProg, "the DataVolume x", whileWaits}},
		"one that can't be snapshotted": {[]edit{inProgress, locked, func(o *Observed) { o.Disks[1].Class, o.Disks[1].Why = "", "data (why)" }}, want{MakeContent, inProg, "not included: data (why)", 0}},
		"none that can": {[]edit{inProgress, locked, func(o *Observed) {
			o.Disks[0].Class, o.Disks[0].Why, o.Disks[1].Class, o.Disks[1].Why = "", "a", "", "b"
		}}, want{Rest, failure, "none of the VM's disks can be snapshotted: a; b", 0}},
		"a VM without disks":                 {[]edit{inProgress, locked, func(o *Observed) { o.Disks = nil }}, want{MakeContent, inProg, "", 0}},
		"the VolumeSnapshots are made":       {[]edit{begun()}, want{Cut, inProg, "", 0}},
		"those that are missing":             {[]edit{begun(cut)}, want{Cut, inProg, "", 0}},
		"not of a VM that is gone":           {[]edit{begun(cut), noVM2}, want{Rest, failure, "the VM vm was deleted before its snapshot was taken", 0}},
		"nor of one that was started":        {[]edit{begun(cut), runs}, want{Rest, failure, "the VM vm was started", 0}},
		"nor of one that lost its lock":      {[]edit{begun(cut), unlocked}, want{Rest, failure, "the lock of the VM vm was lost", 0}},
		"nor when somebody took the content": {[]edit{begun(cut), func(o *Observed) { o.Content.DeletionTimestamp = then }}, want{Rest, failure, "the VirtualMachineSnapshotContent vmsnapshot-content-s1 was deleted", 0}},
		"a name that is taken": {[]edit{begun(cut, VolumeSnapshot{Owner: "x", Taken: then})},
			want{Rest, failure, "the VolumeSnapshot vmsnapshot-s1-volume-data was made by somebody else", 0}},
		"the cuts are waited for": {[]edit{begun(cut, VolumeSnapshot{})}, want{Rest, inProg, "", 250 * time.Millisecond}},
		"with what the driver says": {[]edit{begun(cut, VolumeSnapshot{Error: "no room"})},
			want{Rest, inProg, "the storage driver has not finished the VolumeSnapshot vmsnapshot-s1-volume-data: no room", whileLocked}},
		"which the deadline repeats": {[]edit{begun(cut, VolumeSnapshot{Error: "no room"}), at(time.Hour)},
			want{Rest, failure, "the snapshot was not complete within 5m0s: the storage driver has not finished the VolumeSnapshot vmsnapshot-s1-volume-data: no room", 0}},
		"when they are taken the content says so": {[]edit{begun(cut, cut)}, want{Report, inProg, "", 0}},
		"then the VM goes on":                     {[]edit{begun(cut, cut), reported(false)}, want{Unlock, inProg, "", 0}},
		"also when it has taken long":             {[]edit{begun(cut, cut), reported(false), at(time.Hour)}, want{Unlock, inProg, "", 0}},
		"the driver's copies are waited for":      {[]edit{begun(cut, usable), reported(false), unlocked}, want{Rest, inProg, "", whileStored}},
		"one that goes meanwhile":                 {[]edit{begun(usable), reported(false), unlocked}, want{Rest, failure, "the VolumeSnapshot vmsnapshot-s1-volume-data was deleted", 0}},
		"the VM may go meanwhile":                 {[]edit{begun(cut, cut), reported(false), noVM2}, want{Rest, inProg, "", whileStored}},
		"when all are ready the content says so":  {[]edit{begun(usable, usable), reported(false), unlocked}, want{Report, inProg, "", 0}},
		"and the snapshot is complete":            {[]edit{begun(usable, usable), reported(true), unlocked}, want{Rest, snapshotv1.Succeeded, "the snapshot is complete", 0}},
		"one that has failed gives the VM back":   {[]edit{begun(cut), failed}, want{Unlock, failure, "", 0}},
		"and deletes its content":                 {[]edit{begun(cut), failed, unlocked}, want{Discard, failure, "", 0}},
		"once":                                    {[]edit{begun(cut), failed, unlocked, func(o *Observed) { o.Content.DeletionTimestamp = then }}, want{Rest, failure, "", 0}},
		"one that is deleted gives the VM back":   {[]edit{begun(cut), deleted}, want{Unlock, snapshotv1.Deleting, "the snapshot is being deleted", 0}},
		"deletes an unfinished content":           {[]edit{begun(cut), deleted, unlocked}, want{Discard, snapshotv1.Deleting, "", 0}},
		"and that of one that has failed":         {[]edit{begun(cut), failed, deleted, unlocked}, want{Discard, snapshotv1.Deleting, "", 0}},
		"leaves a finished one to its owner":      {[]edit{begun(usable, usable), reported(true), succeeded, unlocked, deleted}, want{Release, snapshotv1.Deleting, "", 0}},
		"and goes":                                {[]edit{deleted}, want{Release, snapshotv1.Deleting, "", 0}},
		"once it has no finalizer it only waits":  {[]edit{deleted, func(o *Observed) { o.Snapshot.Finalizers = []string{"x"} }}, want{Rest, "", "", 0}},
		"a complete one has nothing to do":        {[]edit{begun(), succeeded}, want{Rest, snapshotv1.Succeeded, "", 0}},
		"not even for its finalizer":              {[]edit{begun(), succeeded, func(o *Observed) { o.Snapshot.Finalizers = nil }}, want{Rest, snapshotv1.Succeeded, "", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed(c.edits...)
			plan := Decide(o)
			got := want{plan.Step, plan.Snapshot.Status.Phase, "", plan.After}
			if p := condition.Find(plan.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing); p != nil {
				got.message = p.Message
			}
			if got.step != c.want.step || got.phase != c.want.phase || got.after != c.want.after || !strings.HasPrefix(got.message, c.want.message) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if phase := plan.Snapshot.Status.Phase; phase == snapshotv1.Failed && c.want.step == Rest && o.Snapshot.Status == nil {
				judgeFailure(t, plan.Snapshot)
			}
		})
	}
}

func noVM2(o *Observed) {
	uid := o.VM.UID
	o.VM = nil
	o.Snapshot.Status.SourceUID = &uid
}

// judgeFailure checks all places where a user may look for a failure.
func judgeFailure(t *testing.T, s *snapshotv1.VirtualMachineSnapshot) {
	t.Helper()
	status := s.Status
	ready := condition.Find(status.Conditions, snapshotv1.ConditionReady)
	if status.Error == nil || status.Error.Message == nil || status.Error.Time == nil || ready == nil || ready.Status != corev1.ConditionFalse ||
		ready.Message != *status.Error.Message || !condition.IsTrue(status.Conditions, snapshotv1.ConditionFailure) || *status.ReadyToUse || !Ended(s) {
		t.Errorf("it does not say everywhere that it has failed: %+v", status)
	}
}

func TestACompleteSnapshotSaysWhatItHas(t *testing.T) {
	later := &metav1.Time{Time: then.Add(time.Minute)}
	o := observed(begun(usable, VolumeSnapshot{Taken: later, Ready: true}), reported(true), unlocked)
	status := Decide(o).Snapshot.Status
	if !status.CreationTime.Equal(later) || !*status.ReadyToUse || !condition.IsTrue(status.Conditions, snapshotv1.ConditionReady) ||
		condition.IsTrue(status.Conditions, snapshotv1.ConditionProgressing) {
		t.Errorf("the status is %+v", status)
	}
}

func TestWhatIsNotIncludedIsSaidUntilTheEnd(t *testing.T) {
	const said = "not included: data (why)"
	says := func(o *Observed) {
		o.Snapshot.Status.Conditions = []snapshotv1.Condition{{Type: snapshotv1.ConditionProgressing, Status: corev1.ConditionTrue, Message: said}}
	}
	for what, o := range map[string]Observed{
		"the cuts are waited for": observed(begun(cut, VolumeSnapshot{}), says),
		"it is complete":          observed(begun(usable, usable), reported(true), unlocked, says),
	} {
		if got := condition.Find(Decide(o).Snapshot.Status.Conditions, snapshotv1.ConditionProgressing).Message; got != said {
			t.Errorf("when %s it says %q", what, got)
		}
	}
	if got := Decide(observed(begun(cut, VolumeSnapshot{}), reported(false))).Snapshot.Status.CreationTime; got != nil {
		t.Errorf("before the cuts are taken they are of %v", got)
	}
	if got := Decide(observed(begun(cut, usable), reported(false), unlocked)).Snapshot.Status.CreationTime; !got.Equal(then) {
		t.Errorf("while the driver copies, the cuts are of %v", got)
	}
}

func TestASnapshotWhoseContentIsGoneSaysSo(t *testing.T) {
	for name, gone := range map[string]edit{
		"deleted":       func(o *Observed) { o.Content = nil },
		"being deleted": func(o *Observed) { o.Content.DeletionTimestamp = then },
	} {
		o := observed(begun(usable, usable), succeeded, gone)
		status := Decide(o).Snapshot.Status
		if ready := condition.Find(status.Conditions, snapshotv1.ConditionReady); *status.ReadyToUse || ready == nil || ready.Reason != ReasonNotReady {
			t.Errorf("%s: the status is %+v", name, status)
		}
	}
}

// KubeVirt's clients match the conditions, in this order: type, status and reason.
func TestReasonsThatClientsMatch(t *testing.T) {
	waitsFor := func(change func(*Disk)) edit {
		return func(o *Observed) {
			o.Disks[1].Waits = "why"
			o.Disks[1].Claim.Status.Phase = corev1.ClaimBound
			change(&o.Disks[1])
		}
	}
	const notReady = "; Ready False Not ready"
	for name, c := range map[string]struct {
		edits []edit
		want  string
	}{
		"no VM":                    {[]edit{noVM}, "Progressing False Source does not exist" + notReady},
		"another snapshot":         {[]edit{func(o *Observed) { o.VM.Status.SnapshotInProgress = new("other") }}, `Progressing False Source not locked snapshot "other" in progress` + notReady},
		"a restore":                {[]edit{func(o *Observed) { o.VM.Status.RestoreInProgress = new("r") }}, "Progressing False Source not locked" + notReady},
		"no claim":                 {[]edit{waitsFor(func(d *Disk) { d.Claim = nil })}, "Progressing False Source not locked source ns/vm volume doesnt exist: data" + notReady},
		"a claim that goes":        {[]edit{waitsFor(func(d *Disk) { d.Claim.DeletionTimestamp = then })}, "Progressing False Source not locked source ns/vm volume is being deleted: data" + notReady},
		"a claim without a volume": {[]edit{waitsFor(func(d *Disk) { d.Claim.Status.Phase = corev1.ClaimPending })}, "Progressing False Source not locked source ns/vm volume not bound: data" + notReady},
		"a claim without content":  {[]edit{waitsFor(func(*Disk) {})}, "Progressing False Source not locked source ns/vm volume not populated: data" + notReady},
		"it begins":                {nil, "Progressing True Source locked and operation in progress" + notReady},
		"it is complete":           {[]edit{begun(usable, usable), reported(true), unlocked}, "Progressing False Operation complete; Ready True Ready"},
		"it is too late":           {[]edit{noVM, at(time.Hour)}, "Progressing False Operation failed" + notReady + "; Failure True snapshot deadline exceeded"},
		"it has failed":            {[]edit{func(o *Observed) { o.Supported = false }}, "Progressing False Operation failed" + notReady + "; Failure True VolumeSnapshotsNotSupported"},
		"it is being deleted":      {[]edit{deleted}, "Progressing False VM snapshot is deleting" + notReady},
	} {
		plan := Decide(observed(c.edits...))
		var words []string
		for _, said := range plan.Snapshot.Status.Conditions {
			words = append(words, fmt.Sprintf("%s %s %s", said.Type, said.Status, said.Reason))
		}
		if got := strings.Join(words, "; "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
		// It is found when its VM changes.
		if waits := strings.Contains(c.want, "Source not locked") || strings.Contains(c.want, "Source does"); Waits(plan.Snapshot) != waits {
			t.Errorf("%s: it waits: %v", name, !waits)
		}
	}
}

func TestVolumesThatAreNotIncludedAreIndicated(t *testing.T) {
	o := observed(begun(usable, usable), reported(true), unlocked, func(o *Observed) {
		o.Snapshot.Status.SnapshotVolumes = &snapshotv1.SnapshotVolumesLists{ExcludedVolumes: []string{"more"}}
		o.Snapshot.Status.SourceIndications = []snapshotv1.SourceIndication{{Indication: snapshotv1.VMSnapshotPausedIndication}, {Indication: snapshotv1.VMSnapshotOnlineSnapshotIndication}}
	})
	want := []snapshotv1.Indication{"Online", "PartialSnapshot", "Paused"}
	if got := Decide(o).Snapshot.Status.Indications; !slices.Equal(got, want) { //nolint:staticcheck // What older programs read.
		t.Errorf("the indications are %v", got)
	}
	o.Snapshot.Status.SnapshotVolumes.ExcludedVolumes = nil
	if got := Decide(o).Snapshot.Status.SourceIndications; len(got) != 2 {
		t.Errorf("without an excluded volume the indications are %v", got)
	}
}

func TestTheContent(t *testing.T) {
	o := observed(inProgress, locked)
	o.Disks[0].Class, o.Disks[0].Why = "", "root (why)"
	plan := Decide(o)
	want := &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmsnapshot-content-s1",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.Snapshot, snapshotKind)}},
		Spec: snapshotv1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: new("snap"),
			Source: snapshotv1.SourceSpec{VirtualMachine: &snapshotv1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1", Annotations: map[string]string{"note": "kept"}},
				Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
			}},
			VolumeBackups: []snapshotv1.VolumeBackup{{
				VolumeName: "data", VolumeSnapshotName: new("vmsnapshot-s1-volume-data"),
				PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-claim", Labels: map[string]string{"tier": "one"}, Annotations: map[string]string{ClassAnnotation: "fast"}},
					Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: new("local")},
				},
			}},
		},
	}
	if diff := cmp.Diff(want, plan.Content); diff != "" {
		t.Errorf("the content: %s", diff)
	}
	volumes := plan.Snapshot.Status.SnapshotVolumes
	if !slices.Equal(volumes.IncludedVolumes, []string{"data"}) || !slices.Equal(volumes.ExcludedVolumes, []string{"root"}) ||
		*plan.Snapshot.Status.VirtualMachineSnapshotContentName != want.Name {
		t.Errorf("the status says %+v", plan.Snapshot.Status)
	}
	for policy, owned := range map[snapshotv1.DeletionPolicy]bool{
		snapshotv1.VirtualMachineSnapshotContentDelete: true, snapshotv1.VirtualMachineSnapshotContentRetain: false, "delete": false,
	} {
		o.Snapshot.Spec.DeletionPolicy = &policy
		if got := metav1.IsControlledBy(Decide(o).Content, o.Snapshot); got != owned {
			t.Errorf("%s: the content goes with its snapshot: %v", policy, got)
		}
	}
}

func TestTheCuts(t *testing.T) {
	plan := Decide(observed(begun(cut)))
	if len(plan.Cuts) != 1 {
		t.Fatalf("the cuts are %+v", plan.Cuts)
	}
	if got := plan.Cuts[0]; got.Name != "vmsnapshot-s1-volume-data" || got.Claim != "data-claim" || got.Class != "fast" || got.Owner.UID != "c1" ||
		got.Owner.Kind != "VirtualMachineSnapshotContent" || !*got.Owner.Controller {
		t.Errorf("the cut is %+v", got)
	}
}

func TestWhatTheContentReports(t *testing.T) {
	early := &metav1.Time{Time: then.Add(-time.Second)}
	o := observed(begun(VolumeSnapshot{Taken: early, Ready: true}, VolumeSnapshot{Taken: then, Error: "slow"}))
	status := Decide(o).Content.Status
	if !status.CreationTime.Equal(then) || *status.ReadyToUse || len(status.VolumeSnapshotStatus) != 2 {
		t.Fatalf("the content says %+v", status)
	}
	if v := status.VolumeSnapshotStatus[0]; v.VolumeSnapshotName != "vmsnapshot-s1-volume-root" || !*v.ReadyToUse || v.Error != nil || !v.CreationTime.Equal(early) {
		t.Errorf("of root it says %+v", v)
	}
	if v := status.VolumeSnapshotStatus[1]; *v.ReadyToUse || *v.Error.Message != "slow" {
		t.Errorf("of data it says %+v", v)
	}
	o = observed(begun(VolumeSnapshot{Taken: then}, VolumeSnapshot{Taken: early}))
	if got := Decide(o).Content.Status.CreationTime; !got.Equal(then) {
		t.Errorf("the content is of %v, want when the last cut was taken, %v", got, then)
	}
	empty := observed(inProgress, locked, func(o *Observed) { o.Disks = nil }, begun())
	empty.Content.CreationTimestamp = *then
	if plan := Decide(empty); plan.Step != Report || !plan.Content.Status.CreationTime.Equal(then) || !*plan.Content.Status.ReadyToUse {
		t.Errorf("of a VM without disks: %+v", plan)
	}
}

func TestWhatIsRefusedFails(t *testing.T) {
	o := observed(inProgress, locked)
	got := Refused(o, Decide(o), "the quota is used up")
	if got.Status.Phase != snapshotv1.Failed || *got.Status.Error.Message != "the quota is used up" {
		t.Errorf("it says %+v", got.Status)
	}
	judgeFailure(t, got)
}

// A cleared status must be restored, as far as the content has its facts.
func TestAStatusThatWasClearedIsSaidAgain(t *testing.T) {
	o := observed(begun(cut, cut), unlocked, reported(false))
	o.Snapshot.Status = nil
	of := o.Content.Spec.Source.VirtualMachine
	of.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	for _, name := range []string{"root", "data", "left"} {
		of.Spec.Template.Spec.Volumes = append(of.Spec.Template.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name}}})
	}
	status := Decide(o).Snapshot.Status
	if status.SourceUID == nil || *status.SourceUID != "v1" || status.VirtualMachineSnapshotContentName == nil || *status.VirtualMachineSnapshotContentName != o.Content.Name {
		t.Errorf("it says %+v", status)
	}
	if diff := cmp.Diff(&snapshotv1.SnapshotVolumesLists{IncludedVolumes: []string{"root", "data"}, ExcludedVolumes: []string{"left"}}, status.SnapshotVolumes); diff != "" {
		t.Error(diff)
	}
}

// VolumeSnapshots, and groups of them, must name their VM.
func TestVolumeSnapshotsNameTheirVM(t *testing.T) {
	want := map[string]string{"snapshot.kubevirt.io/source-vm-name": "vm", "snapshot.kubevirt.io/source-vm-namespace": "ns"}
	for _, c := range Decide(observed(begun())).Cuts {
		if diff := cmp.Diff(want, c.Labels); diff != "" {
			t.Errorf("%s: %s", c.Name, diff)
		}
	}
	if diff := cmp.Diff(want, Decide(observed(grouped(nil))).Group.Labels); diff != "" {
		t.Error(diff)
	}
}

// The message of another's admission webhook must stay in the conditions until the VolumeSnapshots are made, or the
// deadline ends.
func TestARefusalForNowIsSaid(t *testing.T) {
	says := func(s *snapshotv1.VirtualMachineSnapshot) string {
		return condition.Find(s.Status.Conditions, snapshotv1.ConditionProgressing).Message
	}
	o := observed(inProgress, locked)
	o.Snapshot = Held(Decide(o), "webhook w says no")
	const want = "the storage driver is making the VolumeSnapshots; the API server refuses it for now: webhook w says no"
	if got := Decide(o); says(got.Snapshot) != want || got.Step != MakeContent {
		t.Errorf("%s, it says %q", got.Step, says(got.Snapshot))
	}
	late := o
	at(time.Hour)(&late)
	if got := Decide(late).Snapshot; got.Status.Phase != snapshotv1.Failed || !strings.Contains(*got.Status.Error.Message, "webhook w says no") {
		t.Errorf("in the end it says %+v", got.Status)
	}
	judged := observed(begun(VolumeSnapshot{}, VolumeSnapshot{}))
	judged.Snapshot.Status.Conditions = o.Snapshot.Status.Conditions
	if got := says(Decide(judged).Snapshot); got != "the storage driver is making the VolumeSnapshots" {
		t.Errorf("when they are made it says %q", got)
	}
	ended := observed(begun(cut, cut), failed)
	if diff := cmp.Diff(ended.Snapshot, Held(Plan{Snapshot: ended.Snapshot}, "no")); diff != "" {
		t.Error(diff)
	}
}
