package clone

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

const (
	uid = "0a1b2c3d-b3ef-428c-8861-06e72d69f223"
	mac = "02:00:00:00:00:01"
)

var (
	now  = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	gone = &metav1.Time{Time: now}
)

type edit func(*Observed)

// observed is a new clone of a VM.
func observed(edits ...edit) Observed {
	o := Observed{
		Clone: &clonev1.VirtualMachineClone{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: uid, CreationTimestamp: metav1.Time{Time: now}},
			Spec: clonev1.VirtualMachineCloneSpec{
				Source: &corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "vm"},
				Target: &corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "copy"},
			},
		},
		Source: &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}},
		Now:    now,
	}
	for _, e := range edits {
		e(&o)
	}
	return o
}

// ofSnapshot makes it a clone of the snapshot golden.
func ofSnapshot(o *Observed) {
	o.Clone.Spec.Source, o.Source = &corev1.TypedLocalObjectReference{Kind: "VirtualMachineSnapshot", Name: "golden"}, nil
}

func owned(o *Observed) []metav1.OwnerReference { return (&decision{o: *o}).owner() }

// snap adds the restored snapshot, with its phase and condition.
func snap(phase snapshotv1.VirtualMachineSnapshotPhase, says string) edit {
	return func(o *Observed) {
		o.Snapshot = &snapshotv1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: SnapshotName(o.Clone), OwnerReferences: owned(o)},
			Status:     &snapshotv1.VirtualMachineSnapshotStatus{Phase: phase},
		}
		condition.Set(&o.Snapshot.Status.Conditions, snapshotv1.Condition{Type: snapshotv1.ConditionProgressing, Message: says}, now)
		if phase == snapshotv1.Failed {
			o.Snapshot.Status.Error = &snapshotv1.Error{Message: &says}
		}
		o.Content = &snapshotv1.VirtualMachineSnapshotContent{
			Spec: snapshotv1.VirtualMachineSnapshotContentSpec{Source: snapshotv1.SourceSpec{VirtualMachine: manifest()}},
		}
	}
}

func done(o *Observed) { snap(snapshotv1.Succeeded, "")(o) }

// restoring adds the clone's restore, with its condition.
func restoring(kind snapshotv1.ConditionType, says string) edit {
	return func(o *Observed) {
		o.Restore = &snapshotv1.VirtualMachineRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: RestoreName(o.Clone), OwnerReferences: owned(o)},
			Status:     &snapshotv1.VirtualMachineRestoreStatus{},
		}
		condition.Set(&o.Restore.Status.Conditions, snapshotv1.Condition{Type: kind, Status: corev1.ConditionTrue, Message: says}, now)
	}
}

func restored(o *Observed) {
	restoring(snapshotv1.ConditionProgressing, "")(o)
	o.Restore.Status.Complete = new(true)
}

func target(o *Observed) {
	o.Target = &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "copy", UID: "t1"}}
	o.Clone.OwnerReferences = []metav1.OwnerReference{Owner(o.Target)}
}

// notAdopted makes another object the only owner of the clone.
func notAdopted(o *Observed) {
	o.Clone.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "copy", UID: "o1"}}
}

func foreign(o *Observed) {
	if o.Snapshot != nil {
		o.Snapshot.OwnerReferences = nil
	}
	if o.Restore != nil {
		o.Restore.OwnerReferences[0].UID = "another"
	}
}

func phase(p clonev1.VirtualMachineClonePhase) edit {
	return func(o *Observed) {
		o.Clone.Status.Phase, o.Clone.Status.SnapshotName, o.Clone.Status.RestoreName = p, new("s"), new("r")
	}
}

func TestDecide(t *testing.T) {
	succeeded, failed := phase(clonev1.Succeeded), phase(clonev1.Failed)
	waits := snap(snapshotv1.InProgress, "the claim is not bound")
	for name, test := range map[string]struct {
		edits  []edit
		phase  clonev1.VirtualMachineClonePhase
		reason string
		says   string
		step   Step
		after  time.Duration
	}{
		"a VM that is not there is waited for": {[]edit{func(o *Observed) { o.Source = nil }}, clonev1.SnapshotInProgress, ReasonNoSource, "the VM vm, which is to be cloned, does not exist", Rest, 5 * time.Second},
		"a VM is snapshotted":                  {nil, clonev1.SnapshotInProgress, ReasonSnapshot, "a snapshot of the VM vm is being made", MakeSnapshot, 0},
		"its snapshot ends by itself":          {[]edit{waits}, clonev1.SnapshotInProgress, ReasonSnapshot, "the snapshot of the VM vm is in progress: the claim is not bound", Rest, 0},
		"one that has no status": {[]edit{waits, func(o *Observed) { o.Snapshot.Status = nil }}, clonev1.SnapshotInProgress, ReasonSnapshot,
			"the snapshot of the VM vm is in progress: it was not begun", Rest, 0},
		"one that says nothing": {[]edit{waits, func(o *Observed) { o.Snapshot.Status.Conditions = nil }}, clonev1.SnapshotInProgress, ReasonSnapshot,
			"the snapshot of the VM vm is in progress: it was not begun", Rest, 0},
		"one with an error without words": {[]edit{waits, func(o *Observed) { o.Snapshot.Status.Error = &snapshotv1.Error{} }}, clonev1.SnapshotInProgress, ReasonSnapshot,
			"the snapshot of the VM vm is in progress: the claim is not bound", Rest, 0},
		"one that is deleted is made again": {[]edit{waits, func(o *Observed) { o.Snapshot.DeletionTimestamp = gone }}, clonev1.SnapshotInProgress, ReasonSnapshot,
			"the snapshot tmp-snapshot-" + uid + " was deleted; another one is made when it is gone", Rest, 0},
		"one that fails":         {[]edit{snap(snapshotv1.Failed, "the VM runs")}, clonev1.Failed, ReasonSnapshotFailed, "the snapshot of the VM vm has failed: the VM runs", Rest, 0},
		"one of somebody else's": {[]edit{done, foreign}, clonev1.Failed, ReasonNameTaken, "the snapshot tmp-snapshot-" + uid + " exists and is not the clone's", Rest, 0},
		"one that is complete":   {[]edit{done}, clonev1.RestoreInProgress, ReasonRestore, "the restore is being made", MakeRestore, 0},
		"also when the VM is gone": {[]edit{done, func(o *Observed) { o.Source = nil }}, clonev1.RestoreInProgress, ReasonRestore,
			"the restore is being made", MakeRestore, 0},
		"but not without its content": {[]edit{done, func(o *Observed) { o.Content = nil }}, clonev1.Failed, ReasonSourceLost,
			"the content of the snapshot tmp-snapshot-" + uid + " was deleted", Rest, 0},
		"nor when that is deleted": {[]edit{done, func(o *Observed) { o.Content.DeletionTimestamp = gone }}, clonev1.Failed, ReasonSourceLost,
			"the content of the snapshot tmp-snapshot-" + uid + " was deleted", Rest, 0},
		"nor when it has no VM": {[]edit{done, func(o *Observed) { o.Content.Spec.Source.VirtualMachine = nil }}, clonev1.Failed, ReasonSourceLost,
			"the content of the snapshot tmp-snapshot-" + uid + " was deleted", Rest, 0},
		"nor a template": {[]edit{done, func(o *Observed) { o.Content.Spec.Source.VirtualMachine.Spec.Template = nil }}, clonev1.Failed, ReasonSourceLost,
			"the content of the snapshot tmp-snapshot-" + uid + " was deleted", Rest, 0},

		"a snapshot that is not there is waited for": {[]edit{ofSnapshot}, clonev1.SnapshotInProgress, ReasonNoSource, "the snapshot golden, which is to be cloned, does not exist", Rest, 5 * time.Second},
		"a snapshot that is not ready":               {[]edit{ofSnapshot, waits, foreign}, clonev1.SnapshotInProgress, ReasonWaiting, "the snapshot golden is not ready to use yet: the claim is not bound", Rest, 5 * time.Second},
		"a snapshot that has failed":                 {[]edit{ofSnapshot, snap(snapshotv1.Failed, "no class"), foreign}, clonev1.Failed, ReasonSourceLost, "the snapshot golden has failed, and can't be cloned: no class", Rest, 0},
		"a snapshot that is deleted": {[]edit{ofSnapshot, done, foreign, func(o *Observed) { o.Snapshot.DeletionTimestamp = gone }}, clonev1.Failed, ReasonSourceLost,
			"the snapshot golden is being deleted", Rest, 0},
		"a snapshot that is complete": {[]edit{ofSnapshot, done, foreign}, clonev1.RestoreInProgress, ReasonRestore, "the restore is being made", MakeRestore, 0},

		"a VM of the target's name": {[]edit{target}, clonev1.Failed, ReasonTargetExists, "the VM copy exists already: a clone makes a new one", Rest, 0},
		"that comes late":           {[]edit{done, target}, clonev1.Failed, ReasonTargetExists, "the VM copy exists already: a clone makes a new one", Rest, 0},
		"that another restore has made": {[]edit{target, func(o *Observed) {
			o.Target.Annotations = map[string]string{restore.LastRestore: "x-" + RestoreName(o.Clone) + "-y"}
		}}, clonev1.Failed, ReasonTargetExists, "the VM copy exists already: a clone makes a new one", Rest, 0},
		"that the clone's restore has made before it was deleted": {[]edit{done, target, func(o *Observed) {
			o.Target.Annotations = map[string]string{restore.LastRestore: RestoreName(o.Clone) + "-r1"}
		}}, clonev1.Succeeded, ReasonComplete, "the VM copy is there", Rest, 0},

		"a restore":               {[]edit{done, restoring(snapshotv1.ConditionProgressing, "claims")}, clonev1.RestoreInProgress, ReasonRestore, "the restore is in progress: claims", Rest, 0},
		"that was not looked at":  {[]edit{done, restoring(snapshotv1.ConditionReady, "claims")}, clonev1.RestoreInProgress, ReasonRestore, "the restore is in progress: it was not begun", Rest, 0},
		"that has no status":      {[]edit{done, restored, func(o *Observed) { o.Restore.Status = nil }}, clonev1.RestoreInProgress, ReasonRestore, "the restore is in progress: it was not begun", Rest, 0},
		"that has made the VM":    {[]edit{done, target, restoring(snapshotv1.ConditionProgressing, "owner")}, clonev1.CreatingTargetVM, ReasonTarget, "the VM copy is there: owner", Rest, 0},
		"that has failed":         {[]edit{done, restoring(snapshotv1.ConditionFailure, "quota")}, clonev1.Failed, ReasonRestoreFailed, "making the VM copy has failed: quota", Rest, 0},
		"goes with its target":    {[]edit{done, target, restored, notAdopted}, clonev1.CreatingTargetVM, ReasonTarget, "the VM copy is there", Adopt, 0},
		"that is complete":        {[]edit{done, target, restored}, clonev1.Succeeded, ReasonComplete, "the VM copy is there", Rest, 0},
		"that is somebody else's": {[]edit{done, target, restored, foreign}, clonev1.Failed, ReasonNameTaken, "the restore tmp-restore-" + uid + " exists and is not the clone's", Rest, 0},
		"a patch of what is not its owner's": {[]edit{func(o *Observed) { o.Clone.Spec.Patches = []string{`{"op":"remove","path":"/status"}`} }}, clonev1.Failed, ReasonRefused,
			`patch 1 is of "/status"; a clone's patches are of /spec, /metadata/labels, /metadata/annotations`, Rest, 0},
		"an interface that is not there": {[]edit{done, func(o *Observed) { o.Clone.Spec.NewMacAddresses = map[string]string{"z": mac, "y": mac, "a": mac} }}, clonev1.Failed, ReasonRefused,
			`spec.newMacAddresses["y"]: "02:00:00:00:00:01": the VM has no interface of that name` + "\n" +
				`spec.newMacAddresses["z"]: "02:00:00:00:00:01": the VM has no interface of that name`, Rest, 0},
		"a patch that is none, and one of what is not its owner's": {[]edit{func(o *Observed) {
			o.Clone.Spec.Patches = []string{`{"op":"copy","path":"/spec"}`, `{"op":"remove","path":"/spec/template"}`, `{"op":"remove","path":"/status"}`}
		}}, clonev1.Failed, ReasonRefused, `patch 1 has the operation "copy"; add, replace, remove and test are supported` + "\n" +
			`patch 3 is of "/status"; a clone's patches are of /spec, /metadata/labels, /metadata/annotations`, Rest, 0},

		"a clone that is deleted":                 {[]edit{done, func(o *Observed) { o.Clone.DeletionTimestamp = gone }}, "", "", "", Rest, 0},
		"afterwards the restore goes first":       {[]edit{done, restored, succeeded}, clonev1.Succeeded, "", "", DropRestore, 0},
		"which takes time":                        {[]edit{done, restored, succeeded, func(o *Observed) { o.Restore.DeletionTimestamp = gone }}, clonev1.Succeeded, "", "", Rest, 0},
		"then the snapshot":                       {[]edit{done, succeeded}, clonev1.Succeeded, "", "", DropSnapshot, 0},
		"which takes time, too":                   {[]edit{done, succeeded, func(o *Observed) { o.Snapshot.DeletionTimestamp = gone }}, clonev1.Succeeded, "", "", Rest, 0},
		"after a failure likewise":                {[]edit{done, restored, failed}, clonev1.Failed, "", "", DropRestore, 0},
		"whatever claims there are":               {[]edit{done, restored, failed, func(o *Observed) { o.Unbound = true }}, clonev1.Failed, "", "", DropRestore, 0},
		"claims that are not bound need them":     {[]edit{done, restored, succeeded, func(o *Observed) { o.Unbound = true }}, clonev1.Succeeded, "", "", Rest, time.Minute},
		"what is somebody else's stays":           {[]edit{done, restored, failed, foreign}, clonev1.Failed, "", "", Rest, 0},
		"the snapshot that was cloned stays, too": {[]edit{ofSnapshot, done, foreign, succeeded}, clonev1.Succeeded, "", "", Rest, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed(test.edits...)
			p := Decide(o)
			status := p.Clone.Status
			if status.Phase != test.phase || p.Step != test.step || p.After != test.after || Says(p.Clone) != test.says {
				t.Fatalf("phase %q, step %q, after %v, says %q; want %+v", status.Phase, p.Step, p.After, Says(p.Clone), test)
			}
			if (p.Step == MakeSnapshot) != (p.Snapshot != nil) || (p.Step == MakeRestore) != (p.Restore != nil) {
				t.Errorf("the step %q has the snapshot %v and the restore %v", p.Step, p.Snapshot, p.Restore)
			}
			if test.reason != "" {
				conditions(t, status, test.reason)
			}
		})
	}
}

// conditions checks that the conditions fit the phase, and that the names are set from the beginning.
func conditions(t *testing.T, s clonev1.VirtualMachineCloneStatus, reason string) {
	t.Helper()
	for kind, want := range map[clonev1.ConditionType]bool{
		clonev1.ConditionReady:       s.Phase == clonev1.Succeeded,
		clonev1.ConditionProgressing: s.Phase != clonev1.Succeeded && s.Phase != clonev1.Failed && reason != ReasonWaiting && reason != ReasonNoSource,
	} {
		c := condition.Find(s.Conditions, kind)
		if c == nil || c.Reason != reason || (c.Status == corev1.ConditionTrue) != want || c.Status != corev1.ConditionTrue && c.Status != corev1.ConditionFalse {
			t.Errorf("the condition %s is %+v", kind, c)
		}
	}
	if (s.CreationTime != nil) != (s.Phase == clonev1.Succeeded) || *s.TargetName != "copy" || *s.RestoreName != "tmp-restore-"+uid ||
		!strings.HasSuffix(*s.SnapshotName, uid) && *s.SnapshotName != "golden" {
		t.Errorf("the status is %+v", s)
	}
}

func TestAClonesStatusNamesWhatIsLeft(t *testing.T) {
	ended := observed(done, foreign, phase(clonev1.Failed))
	if Settled(ended.Clone) {
		t.Error("a clone whose status names a snapshot is settled")
	}
	p := Decide(ended)
	if !Settled(p.Clone) {
		t.Errorf("nothing is left, and the status says %+v", p.Clone.Status)
	}
	p.Clone.Status.RestoreName = new("r")
	if Settled(p.Clone) {
		t.Error("a clone whose status names a restore is settled")
	}
	if Settled(observed().Clone) {
		t.Error("a new clone is settled")
	}
	if kept := Decide(observed(done, phase(clonev1.Succeeded))).Clone.Status; kept.SnapshotName == nil {
		t.Error("the status forgets the snapshot before it is deleted")
	}
}

func TestRefusedIsFailed(t *testing.T) {
	o := observed()
	c := Refused(o, Decide(o), "a quota")
	if c.Status.Phase != clonev1.Failed || Says(c) != "a quota" || c.Status.SnapshotName == nil {
		t.Errorf("the status is %+v", c.Status)
	}
	if Says(o.Clone) != "" {
		t.Errorf("a new clone says %q", Says(o.Clone))
	}
}

func TestNamesFollowFromTheClone(t *testing.T) {
	c := observed().Clone
	for source, want := range map[string]string{
		"vm":                           "vm-clone-0a1b2c3d",
		"golden.image":                 "golden-image-clone-0a1b2c3d",
		strings.Repeat("n", 63):        strings.Repeat("n", 48) + "-clone-0a1b2c3d",
		strings.Repeat("n", 48):        strings.Repeat("n", 48) + "-clone-0a1b2c3d",
		strings.Repeat("n", 47) + ".x": strings.Repeat("n", 47) + "-clone-0a1b2c3d",
	} {
		c.Spec.Source.Name = source
		for _, target := range []*corev1.TypedLocalObjectReference{nil, {Kind: "VirtualMachine"}} {
			c.Spec.Target = target
			if got := TargetName(c); got != want {
				t.Errorf("a clone of %s is %s, want %s", source, got, want)
			}
		}
	}
	c.UID = "u1"
	if got := TargetName(c); !strings.HasSuffix(got, "-clone-u1") {
		t.Errorf("the target is %s", got)
	}
}

func TestWhatIsMade(t *testing.T) {
	s, r := Decide(observed()).Snapshot, Decide(observed(ofSnapshot, done)).Restore
	vm := func(name string) corev1.TypedLocalObjectReference {
		return corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: name}
	}
	if !reflect.DeepEqual(s.Spec, snapshotv1.VirtualMachineSnapshotSpec{Source: vm("vm")}) {
		t.Errorf("the snapshot is %+v", s.Spec)
	}
	if !reflect.DeepEqual(r.Spec, snapshotv1.VirtualMachineRestoreSpec{Target: vm("copy"), VirtualMachineSnapshotName: "golden", Patches: r.Spec.Patches}) {
		t.Errorf("the restore is %+v", r.Spec)
	}
	for name, object := range map[string]metav1.Object{"tmp-snapshot-" + uid: s, "tmp-restore-" + uid: r} {
		want := []metav1.OwnerReference{{APIVersion: clonev1.SchemeGroupVersion.String(), Kind: "VirtualMachineClone", Name: "c", UID: uid, Controller: new(true)}}
		if object.GetNamespace() != "ns" || object.GetName() != name || !reflect.DeepEqual(object.GetOwnerReferences(), want) {
			t.Errorf("%s/%s is owned by %+v", object.GetNamespace(), object.GetName(), object.GetOwnerReferences())
		}
	}
}

func TestNamesOfClaims(t *testing.T) {
	for policy, want := range map[clonev1.VolumeNamePolicy]snapshotv1.VolumeRestorePolicy{
		clonev1.VolumeNamePolicyPrefixTargetName: snapshotv1.VolumeRestorePolicyPrefixTargetName,
		clonev1.VolumeNamePolicyRandomizeNames:   snapshotv1.VolumeRestorePolicyRandomizeNames,
	} {
		r := Decide(observed(done, func(o *Observed) { o.Clone.Spec.VolumeNamePolicy = &policy })).Restore
		if *r.Spec.VolumeRestorePolicy != want {
			t.Errorf("the restore's policy is %s", *r.Spec.VolumeRestorePolicy)
		}
	}
}

// manifest is the VM in the snapshot.
func manifest() *snapshotv1.VirtualMachine {
	vm := &snapshotv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", Labels: map[string]string{"team/a": "1", "app": "x"}, Annotations: map[string]string{"note": "n", "net/ip": "1"}},
		Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team/a": "2", "app": "y"}, Annotations: map[string]string{"note": "m", "net/ip": "2"}},
		}},
	}
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "a", MacAddress: mac}, {Name: "b"}, {Name: "c", MacAddress: "02:00:00:00:00:03", Model: "e1000e"}}
	firmware.Set(spec, "5d307ca9-b3ef-428c-8861-06e72d69f223")
	spec.Domain.Firmware.Serial = "S1"
	return vm
}

// The target must own its clone beside others, and control nothing.
func TestTheOwnerOfAClone(t *testing.T) {
	want := metav1.OwnerReference{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine", Name: "copy", UID: "t1"}
	if got := Owner(&v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "copy", UID: "t1"}}); got != want {
		t.Errorf("it is %+v", got)
	}
}

// The message of another's admission webhook must stay in the conditions until the step is done.
func TestARefusalForNowIsSaid(t *testing.T) {
	o := observed(done)
	plan := Decide(o)
	o.Clone = Held(plan, "webhook w says no")
	if got := Decide(o); Says(got.Clone) != "the restore is being made; the API server refuses it for now: webhook w says no" || got.Step != MakeRestore ||
		got.Clone.Status.Phase != clonev1.RestoreInProgress {
		t.Errorf("%s, it says %q", got.Step, Says(got.Clone))
	}
	restoring(snapshotv1.ConditionProgressing, "it is begun")(&o)
	if got := Says(Decide(o).Clone); got != "the restore is in progress: it is begun" {
		t.Errorf("afterwards it says %q", got)
	}
	ended := Plan{Clone: Refused(o, plan, "for good")}
	if diff := cmp.Diff(ended.Clone, Held(ended, "no")); diff != "" {
		t.Error(diff)
	}
}
