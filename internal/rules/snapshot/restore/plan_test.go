package restore

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot"
)

const (
	uuid = types.UID("5d307ca9-b3ef-428c-8861-06e72d69f223")
	mac  = "02:00:00:00:00:01"
)

var (
	born = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	then = &metav1.Time{Time: born.Add(2 * time.Second)}
)

type edit func(*Observed)

// source is the VM in the snapshot: a disk on a DataVolume's claim, and one on a claim.
func source() *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1", Labels: map[string]string{"tier": "one"},
			Annotations: map[string]string{"note": "kept", "drydock.dev/x": "internal", LastRestore: "earlier"}},
		Spec: v1.VirtualMachineSpec{
			RunStrategy:         new(v1.RunStrategyAlways),
			DataVolumeTemplates: []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root-claim"}}},
			Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
				Volumes: []v1.Volume{
					{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root-claim"}}},
					{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
						PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-claim"}, Hotpluggable: true}}},
				},
			}},
		},
	}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "a", MacAddress: mac}, {Name: "b"}}
	firmware.Set(&vm.Spec.Template.Spec, uuid)
	return vm
}

func backup(volume string) snapshotv1.VolumeBackup {
	return snapshotv1.VolumeBackup{
		VolumeName: volume, VolumeSnapshotName: new("vs-" + volume),
		PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: volume + "-claim", Labels: map[string]string{"tier": "one", "app.kubernetes.io/name": "x"},
				Annotations: map[string]string{"note": "kept", snapshot.ClassAnnotation: "c", "pv.kubernetes.io/bound": "yes"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: new("fast"), VolumeMode: new(corev1.PersistentVolumeBlock), VolumeName: "pv",
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	}
}

// observed is a restore with its finalizer to a new VM, of a ready snapshot.
func observed(edits ...edit) Observed {
	was := source()
	o := Observed{
		Restore: &snapshotv1.VirtualMachineRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r1", CreationTimestamp: metav1.Time{Time: born}, Finalizers: []string{Finalizer}},
			Spec: snapshotv1.VirtualMachineRestoreSpec{
				Target: corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "copy"}, VirtualMachineSnapshotName: "snap",
			},
		},
		Snapshot: &snapshotv1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "snap", UID: "s1"},
			Status:     &snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.Succeeded},
		},
		Content: &snapshotv1.VirtualMachineSnapshotContent{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "content", UID: "c1"},
			Spec: snapshotv1.VirtualMachineSnapshotContentSpec{
				Source:        snapshotv1.SourceSpec{VirtualMachine: &snapshotv1.VirtualMachine{ObjectMeta: was.ObjectMeta, Spec: was.Spec}},
				VolumeBackups: []snapshotv1.VolumeBackup{backup("root"), backup("data")},
			},
		},
		VolumeSnapshots: map[string]snapshot.VolumeSnapshot{
			"vs-root": {Owner: "c1", Taken: then, Ready: true, Size: new(resource.MustParse("2Gi"))},
			"vs-data": {Owner: "c1", Taken: then, Ready: true, Size: new(resource.MustParse("1Gi"))},
		},
		Claims: map[string]*corev1.PersistentVolumeClaim{}, Fillers: map[string]types.UID{}, Waits: map[string]bool{},
		Now: born.Add(time.Second),
	}
	for _, e := range edits {
		e(&o)
	}
	return o
}

// inPlace makes the snapshot's own VM the target. It has changed since.
func inPlace(o *Observed) {
	o.Restore.Spec.Target.Name = "vm"
	o.VM = source()
	adopted(o)
	o.VM.Spec.RunStrategy = new(v1.RunStrategyManual)
	firmware.Set(&o.VM.Spec.Template.Spec, "11111111-b3ef-428c-8861-06e72d69f223")
}

// adopted makes the VM own the restore.
func adopted(o *Observed) { o.Restore.OwnerReferences = []metav1.OwnerReference{Owner(o.VM)} }

func notAdopted(o *Observed) { o.Restore.OwnerReferences = nil }

func locked(o *Observed) { o.VM.Status.RestoreInProgress = new("r") }

func runs(o *Observed) { o.Guest = true }

func asks(change func(*snapshotv1.VirtualMachineRestoreSpec)) edit {
	return func(o *Observed) { change(&o.Restore.Spec) }
}

func ready(p snapshotv1.TargetReadinessPolicy) edit {
	return asks(func(s *snapshotv1.VirtualMachineRestoreSpec) { s.TargetReadinessPolicy = &p })
}

func names(p snapshotv1.VolumeRestorePolicy) edit {
	return asks(func(s *snapshotv1.VirtualMachineRestoreSpec) { s.VolumeRestorePolicy = &p })
}

// The names are written before any claim is made.
func recorded(o *Observed) {
	volumes, err := Volumes(o.Restore, o.Content)
	if err != nil {
		panic(err)
	}
	o.Restore.Status = &snapshotv1.VirtualMachineRestoreStatus{Complete: new(false), Restores: volumes}
}

// With another UID the claim is somebody else's.
func claim(volume, uid string, phase corev1.PersistentVolumeClaimPhase) edit {
	return func(o *Observed) {
		b := backup(volume)
		name := claimName(o.Restore, &b)
		o.Claims[name] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{uidAnnotation: uid}},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: new("fast")},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
}

func claimGoes(volume string) edit {
	return func(o *Observed) {
		b := backup(volume)
		o.Claims[claimName(o.Restore, &b)].DeletionTimestamp = then
	}
}

func bound(volume string) edit { return claim(volume, "r1", corev1.ClaimBound) }

func both(o *Observed) { recorded(o); bound("root")(o); bound("data")(o) }

func at(after time.Duration) edit { return func(o *Observed) { o.Now = born.Add(after) } }

func deleted(o *Observed) { o.Restore.DeletionTimestamp = then }

func hasFailed(o *Observed) {
	d := &decision{Plan: Plan{Restore: o.Restore}, o: *o}
	if o.Restore.Status == nil {
		o.Restore.Status = &snapshotv1.VirtualMachineRestoreStatus{}
	}
	d.fail(ReasonRefused, "why")
}

func switched(o *Observed) {
	if o.VM == nil {
		o.VM = source()
	}
	o.VM.Annotations[LastRestore] = mark(o.Restore)
	adopted(o)
}

func complete(o *Observed) { o.Restore.Status.Complete = new(true) }

func owns(o *Observed) {
	for _, c := range o.Claims {
		c.OwnerReferences = []metav1.OwnerReference{ownerRef(o.VM)}
	}
}

type want struct {
	step    Step
	failed  bool
	message string
	claims  string
	after   time.Duration
}

func TestDecide(t *testing.T) {
	const rootClaim, dataClaim = "restore-r1-root", "restore-r1-data"
	inPlaceNames := names(snapshotv1.VolumeRestorePolicyInPlace)
	for name, c := range map[string]struct {
		edits []edit
		want  want
	}{
		"a new one gets its finalizer first": {[]edit{func(o *Observed) { o.Restore.Finalizers = nil }}, want{step: Hold}},
		"without a snapshot it waits":        {[]edit{func(o *Observed) { o.Snapshot = nil }}, want{message: "the snapshot snap does not exist", after: whileWaits}},
		"one that goes meanwhile ends it":    {[]edit{recorded, func(o *Observed) { o.Snapshot = nil }}, want{failed: true, message: "the snapshot snap was deleted while"}},
		"so does one that is being deleted":  {[]edit{func(o *Observed) { o.Snapshot.DeletionTimestamp = then }}, want{failed: true, message: "the snapshot snap is being deleted"}},
		"and one that has failed":            {[]edit{func(o *Observed) { o.Snapshot.Status.Phase = snapshotv1.Failed }}, want{failed: true, message: "the snapshot snap has failed"}},
		"an unfinished one is waited for":    {[]edit{func(o *Observed) { o.Snapshot.Status.Phase = snapshotv1.InProgress }}, want{message: "the snapshot snap is not ready to use yet", after: whileWaits}},
		"so is one that says nothing":        {[]edit{func(o *Observed) { o.Snapshot.Status = nil }}, want{message: "the snapshot snap is not ready to use yet", after: whileWaits}},
		"one without its content":            {[]edit{func(o *Observed) { o.Content = nil }}, want{failed: true, message: "the content vmsnapshot-content-s1 of the snapshot snap was deleted"}},
		"one whose content goes":             {[]edit{func(o *Observed) { o.Content.DeletionTimestamp = then }}, want{failed: true, message: "the content vmsnapshot-content-s1"}},
		"a content without a VM":             {[]edit{func(o *Observed) { o.Content.Spec.Source.VirtualMachine = nil }}, want{failed: true, message: "the content vmsnapshot-content-s1"}},
		"claims are made for a new VM":       {nil, want{step: MakeClaims, message: "the claims are being made", claims: rootClaim + " " + dataClaim}},
		"those that are missing":             {[]edit{recorded, bound("root")}, want{step: MakeClaims, message: "the claims are being made", claims: dataClaim}},
		"they are waited for":                {[]edit{both, claim("data", "r1", corev1.ClaimPending)}, want{message: "the storage driver has not filled the claim " + dataClaim, after: whileFilled}},
		"but for those that wait for a pod":  {[]edit{both, claim("data", "r1", corev1.ClaimPending), func(o *Observed) { o.Waits["fast"] = true }}, want{step: MakeVM, message: "the claims are being made"}},
		"then the VM is made":                {[]edit{both}, want{step: MakeVM, message: "the claims are being made"}},
		"a lost volume":                      {[]edit{both, claim("data", "r1", corev1.ClaimLost)}, want{failed: true, message: "the volume of the claim " + dataClaim + " is lost"}},
		"a claim that somebody deletes":      {[]edit{both, claimGoes("data")}, want{message: "the claim " + dataClaim + " is being deleted", after: whileFilled}},
		"a claim of somebody else":           {[]edit{recorded, claim("data", "x", corev1.ClaimBound)}, want{failed: true, message: "the claim " + dataClaim + " exists, and is not the restore's"}},
		"a VolumeSnapshot that is gone":      {[]edit{func(o *Observed) { delete(o.VolumeSnapshots, "vs-data") }}, want{failed: true, message: "the VolumeSnapshot vs-data of the volume data was deleted"}},
		"once its claim is bound it may go":  {[]edit{both, func(o *Observed) { o.VolumeSnapshots = nil }}, want{step: MakeVM, message: "the claims are being made"}},
		"one of somebody else":               {[]edit{func(o *Observed) { o.VolumeSnapshots["vs-data"] = snapshot.VolumeSnapshot{Owner: "x", Ready: true} }}, want{failed: true, message: "the VolumeSnapshot vs-data"}},
		"one that is not ready":              {[]edit{func(o *Observed) { o.VolumeSnapshots["vs-data"] = snapshot.VolumeSnapshot{Owner: "c1"} }}, want{message: "the VolumeSnapshot vs-data is not ready to use", after: whileFilled}},
		"another VM of the target's name":    {[]edit{inPlace, func(o *Observed) { o.VM.UID = "v2" }}, want{failed: true, message: "the VM vm exists and is not the one of the snapshot"}},
		"a target that goes":                 {[]edit{inPlace, func(o *Observed) { o.VM.DeletionTimestamp = then }}, want{failed: true, message: "the VM vm is being deleted"}},
		"a target that is gone meanwhile":    {[]edit{inPlace, recorded, began, func(o *Observed) { o.VM = nil }}, want{failed: true, message: "the VM vm was deleted while"}},
		"a target that was gone before":      {[]edit{func(o *Observed) { o.Restore.Spec.Target.Name = "vm" }, both}, want{step: MakeVM, message: "the claims are being made"}},
		"a target becomes the owner first":   {[]edit{inPlace, notAdopted}, want{step: Adopt}},
		"not while it runs":                  {[]edit{inPlace, notAdopted, runs}, want{message: "the VM vm runs: stop it", after: whileWaits}},
		"nor of a restore of a clone's":      {[]edit{inPlace, ofClone}, want{step: Lock, message: "the VM is being locked"}},
		"a new VM does after the switch":     {[]edit{both, switched, notAdopted}, want{step: Adopt}},
		"but not of one that goes":           {[]edit{both, switched, notAdopted, deleted}, want{step: Own, claims: rootClaim + " " + dataClaim}},
		"a target is locked":                 {[]edit{inPlace}, want{step: Lock, message: "the VM is being locked"}},
		"not one that is snapshotted":        {[]edit{inPlace, func(o *Observed) { o.VM.Status.SnapshotInProgress = new("s") }}, want{message: "the snapshot s of the VM vm is in progress", after: whileWaits}},
		"nor one that is restored":           {[]edit{inPlace, func(o *Observed) { o.VM.Status.RestoreInProgress = new("x") }}, want{message: "the VM vm is being restored by x", after: whileWaits}},
		"a target that runs has time":        {[]edit{inPlace, runs}, want{message: "the VM vm runs: stop it", after: whileWaits}},
		"which ends":                         {[]edit{inPlace, runs, at(5*time.Minute - time.Second)}, want{message: "the VM vm runs: stop it", after: time.Second}},
		"and then it fails":                  {[]edit{inPlace, runs, at(5 * time.Minute)}, want{failed: true, message: "the VM vm was not stopped within 5m0s"}},
		"unless it may wait for ever":        {[]edit{inPlace, runs, at(time.Hour), ready(snapshotv1.VirtualMachineRestoreWaitEventually)}, want{message: "the VM vm runs: stop it", after: longestWait}},
		"it may fail at once":                {[]edit{inPlace, runs, ready(snapshotv1.VirtualMachineRestoreFailImmediate)}, want{failed: true, message: "the VM vm runs, and the restore asks not to wait"}},
		"or stop the target":                 {[]edit{inPlace, runs, ready(snapshotv1.VirtualMachineRestoreStopTarget)}, want{step: Stop, message: "the VM vm is being stopped"}},
		"once": {[]edit{inPlace, runs, ready(snapshotv1.VirtualMachineRestoreStopTarget), func(o *Observed) { o.VM.Spec.RunStrategy = new(v1.RunStrategyHalted) }},
			want{message: "the VM vm is being stopped", after: whileFilled}},
		"started in spite of the lock":             {[]edit{inPlace, locked, runs, ready(snapshotv1.VirtualMachineRestoreFailImmediate), both}, want{failed: true, message: "the VM vm runs"}},
		"a locked target gets claims":              {[]edit{inPlace, locked}, want{step: MakeClaims, message: "the claims are being made", claims: rootClaim + " " + dataClaim}},
		"and is switched to them":                  {[]edit{inPlace, locked, both}, want{step: Switch, message: "the claims are being made"}},
		"a claim to replace is deleted":            {[]edit{inPlace, locked, inPlaceNames, recorded, claim("root", "", corev1.ClaimBound)}, want{step: DropClaims, message: "the claims are being made", claims: "root-claim"}},
		"not before the VolumeSnapshots are ready": {[]edit{inPlace, locked, inPlaceNames, recorded, claim("root", "", corev1.ClaimBound), func(o *Observed) { o.VolumeSnapshots["vs-data"] = snapshot.VolumeSnapshot{Owner: "c1"} }}, want{message: "the VolumeSnapshot vs-data is not ready to use", after: whileFilled}},
		"nor when one of them is gone":             {[]edit{inPlace, locked, inPlaceNames, recorded, claim("root", "", corev1.ClaimBound), claim("data", "", corev1.ClaimBound), func(o *Observed) { o.VolumeSnapshots = nil }}, want{failed: true, message: "the VolumeSnapshot vs-root of the volume root was deleted"}},
		"nor that of another VM":                   {[]edit{inPlaceNames, recorded, claim("root", "", corev1.ClaimBound)}, want{failed: true, message: "the claim root-claim exists"}},
		"nor one of a name that was given": {[]edit{inPlace, locked, inPlaceNames, asks(func(s *snapshotv1.VirtualMachineRestoreSpec) {
			s.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: "root", RestoreName: "mine"}}
		}), recorded, claim("root", "", corev1.ClaimBound), claim("data", "", corev1.ClaimBound)}, want{failed: true, message: "the claim mine exists"}},
		"its end is waited for":                   {[]edit{inPlace, locked, inPlaceNames, recorded, claim("root", "", corev1.ClaimBound), claimGoes("root"), bound("data")}, want{message: "the claim root-claim is being deleted", after: whileFilled}},
		"from then on it does not fail":           {[]edit{inPlace, locked, inPlaceNames, recorded, claim("data", "", corev1.ClaimBound), func(o *Observed) { o.VolumeSnapshots = nil }}, want{message: "the VolumeSnapshot vs-root of the volume root was deleted", after: whileWaits}},
		"also when one claim is made":             {[]edit{inPlace, locked, inPlaceNames, recorded, bound("root"), claim("data", "r1", corev1.ClaimLost)}, want{message: "the volume of the claim data-claim is lost", after: whileWaits}},
		"after the switch claims get their owner": {[]edit{both, switched}, want{step: Own, claims: rootClaim + " " + dataClaim}},
		"unless they are to have none": {[]edit{both, switched, asks(func(s *snapshotv1.VirtualMachineRestoreSpec) {
			s.VolumeOwnershipPolicy = new(snapshotv1.VolumeOwnershipPolicyNone)
		})}, want{message: "the VM is restored"}},
		"those that have none":                   {[]edit{both, switched, owns, bound("data")}, want{step: Own, claims: dataClaim}},
		"then the VM is unlocked":                {[]edit{inPlace, locked, both, switched, owns}, want{step: Unlock}},
		"and the restore complete":               {[]edit{inPlace, both, switched, owns}, want{message: "the VM is restored"}},
		"a complete one does nothing":            {[]edit{inPlace, locked, both, switched, complete}, want{}},
		"one that has failed drops its claims":   {[]edit{both, claim("x", "x", corev1.ClaimBound), hasFailed}, want{step: DropClaims, failed: true, message: "why", claims: rootClaim + " " + dataClaim}},
		"also those of a locked VM":              {[]edit{inPlace, locked, both, hasFailed}, want{step: DropClaims, failed: true, message: "why", claims: rootClaim + " " + dataClaim}},
		"also with names as they were, of no VM": {[]edit{inPlaceNames, both, hasFailed}, want{step: DropClaims, failed: true, message: "why", claims: "root-claim data-claim"}},
		"not those that go already":              {[]edit{both, claimGoes("root"), hasFailed}, want{step: DropClaims, failed: true, message: "why", claims: dataClaim}},
		"nor those of others":                    {[]edit{both, claim("root", "x", corev1.ClaimBound), hasFailed}, want{step: DropClaims, failed: true, message: "why", claims: dataClaim}},
		"nor what the VM has":                    {[]edit{inPlace, locked, both, switched, hasFailed}, want{step: Unlock, failed: true, message: "why"}},
		"nor what has replaced a claim":          {[]edit{inPlace, locked, inPlaceNames, both, hasFailed}, want{step: Unlock, failed: true, message: "why"}},
		"and unlocks its VM":                     {[]edit{inPlace, locked, recorded, hasFailed}, want{step: Unlock, failed: true, message: "why"}},
		"and rests":                              {[]edit{inPlace, recorded, hasFailed}, want{failed: true, message: "why"}},
		"one that is deleted drops its claims":   {[]edit{both, deleted}, want{step: DropClaims, claims: rootClaim + " " + dataClaim}},
		"and goes":                               {[]edit{recorded, deleted}, want{step: Release}},
		"after the switch it finishes":           {[]edit{both, switched, deleted}, want{step: Own, claims: rootClaim + " " + dataClaim}},
		"before it goes":                         {[]edit{both, switched, owns, deleted}, want{step: Release, message: "the VM is restored"}},
		"a complete one just goes":               {[]edit{both, complete, deleted}, want{step: Release}},
		"one without its finalizer is gone":      {[]edit{both, deleted, func(o *Observed) { o.Restore.Finalizers = nil }}, want{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.judge(t, Decide(observed(c.edits...)))
		})
	}
}

// The VM must control its restores, so that the garbage collector deletes them with it.
func TestTheOwnerOfARestore(t *testing.T) {
	want := metav1.OwnerReference{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine", Name: "vm", UID: "v1", Controller: new(true), BlockOwnerDeletion: new(true)}
	if diff := cmp.Diff(want, Owner(source())); diff != "" {
		t.Error(diff)
	}
}

// The status must name the DataVolumes of the claims that InPlace replaces, each once.
func TestDeletedDataVolumesAreRecorded(t *testing.T) {
	both := []edit{inPlace, locked, names(snapshotv1.VolumeRestorePolicyInPlace), recorded, claim("root", "", corev1.ClaimBound), claim("data", "", corev1.ClaimBound),
		func(o *Observed) { o.Fillers["root-claim"] = "root-dv" }}
	again := func(o *Observed) { o.Restore.Status.DeletedDataVolumes = []string{"root-claim"} }
	for _, edits := range [][]edit{both, append(slices.Clone(both), again)} {
		plan := Decide(observed(edits...))
		if diff := cmp.Diff([]string{"root-claim"}, plan.Restore.Status.DeletedDataVolumes); diff != "" || plan.Step != DropClaims {
			t.Errorf("%s: %s", plan.Step, diff)
		}
	}
}

// The message of another's admission webhook must stay in the conditions until the step is done.
func TestARefusalForNowIsSaid(t *testing.T) {
	o := observed(inPlace, locked)
	plan := Decide(o)
	o.Restore = Held(Plan{Restore: Held(plan, "another word")}, "making the claim ns/x: admission webhook \"w\" denied the request: no")
	const want = "making the claim ns/x: admission webhook \"w\" denied the request: no"
	said := condition.Find(o.Restore.Status.Conditions, snapshotv1.ConditionProgressing).Message
	if got := Trouble(o.Restore); got != want || Failed(o.Restore) || said != "the claims are being made; the API server refuses it for now: "+want {
		t.Errorf("it says %q", got)
	}
	// The next round repeats the step and keeps the message; this also shows that the restore is in place.
	again := Decide(o)
	if Trouble(again.Restore) != want || again.Step != MakeClaims || !strings.HasPrefix(condition.Find(again.Restore.Status.Conditions, snapshotv1.ConditionProgressing).Reason, ReasonInPlace+": ") {
		t.Errorf("then it says %q, %s", Trouble(again.Restore), again.Step)
	}
	// When the webhook lets it, the next message replaces it.
	recorded := o.Restore.Status
	for _, e := range []edit{claim("root", "r1", corev1.ClaimPending), bound("data")} {
		e(&o)
	}
	o.Restore.Status = recorded
	if last := Decide(o); Trouble(last.Restore) != "" || !condition.IsTrue(last.Restore.Status.Conditions, snapshotv1.ConditionProgressing) {
		t.Errorf("afterwards it says %+v", last.Restore.Status.Conditions)
	}
	if got := Trouble(Held(plan, strings.Repeat("é", 5000))); len(got) > 1100 || !utf8.ValidString(got) {
		t.Errorf("a long sentence is %d bytes", len(got))
	}
	// An ended restore must report nothing new.
	done := Plan{Restore: observed(both, hasFailed).Restore}
	if diff := cmp.Diff(done.Restore, Held(done, "no")); diff != "" {
		t.Error(diff)
	}
}

// A restore makes no progress while another's webhook refuses a step, and clients must find the webhook's name in both
// reasons.
func TestARefusalForNowIsNoProgress(t *testing.T) {
	o := observed(inPlace, locked)
	o.Restore = Held(Decide(o), `admission webhook "w" denied the request: no`)
	again := Decide(o)
	for _, r := range []*snapshotv1.VirtualMachineRestore{o.Restore, again.Restore} {
		if all := r.Status.Conditions; len(all) != 2 || all[0].Status != corev1.ConditionFalse || all[1].Status != corev1.ConditionFalse ||
			!strings.Contains(all[0].Reason, `webhook "w"`) || !strings.Contains(all[1].Reason, `webhook "w"`) {
			t.Errorf("the conditions are %+v", all)
		}
	}
	// The status must remember that there was a target.
	if lost := Decide(observed(func(gone *Observed) { gone.Restore = o.Restore })); !Failed(lost.Restore) {
		t.Errorf("without its VM it goes on: %+v", lost.Restore.Status.Conditions)
	}
}

// A restore makes no progress while it waits for others' actions, and some while storage works for it.
func TestWhatMakesProgress(t *testing.T) {
	for name, c := range map[string]struct {
		edits             []edit
		progresses, waits bool
	}{
		"no snapshot":              {[]edit{func(o *Observed) { o.Snapshot = nil }}, false, true},
		"another restore":          {[]edit{inPlace, func(o *Observed) { o.VM.Status.RestoreInProgress = new("x") }}, false, true},
		"a target that runs":       {[]edit{inPlace, runs}, false, false},
		"a target that is stopped": {[]edit{inPlace, runs, ready(snapshotv1.VirtualMachineRestoreStopTarget)}, false, false},
		"claims that are made":     {[]edit{inPlace, locked}, true, false},
		"claims that are filled":   {[]edit{inPlace, locked, recorded, claim("root", "r1", corev1.ClaimPending), bound("data")}, true, false},
		"another VM":               {[]edit{inPlace, func(o *Observed) { o.VM.UID = "v2" }}, false, false},
		"what is complete":         {[]edit{inPlace, both, switched, owns}, false, false},
	} {
		got := Decide(observed(c.edits...)).Restore
		if condition.IsTrue(got.Status.Conditions, snapshotv1.ConditionProgressing) != c.progresses || Waits(got) != c.waits {
			t.Errorf("%s: %+v", name, got.Status.Conditions)
		}
	}
}

// The reason of a target that is another VM must be the sentence by which KubeVirt's clients recognize it.
func TestTheReasonOfAnotherTarget(t *testing.T) {
	got := Decide(observed(inPlace, func(o *Observed) { o.VM.UID = "v2" })).Restore.Status.Conditions
	for _, c := range got[:2] {
		if c.Reason != "restore source and restore target are different but restore target already exists" || c.Status != corev1.ConditionFalse {
			t.Errorf("%+v", c)
		}
	}
}

// Clients wait for the event that a restore waits for its target, which follows the status.
func TestWhatWaitsForItsTarget(t *testing.T) {
	for name, c := range map[string]struct {
		edits []edit
		want  bool
	}{
		"runs": {[]edit{inPlace, runs}, true}, "is stopped": {[]edit{inPlace, locked}, false}, "is new": {nil, false},
		"is being stopped": {[]edit{inPlace, runs, ready(snapshotv1.VirtualMachineRestoreStopTarget)}, true},
		"ran too long":     {[]edit{inPlace, runs, ready(snapshotv1.VirtualMachineRestoreFailImmediate)}, false},
	} {
		if got := WaitsForTarget(Decide(observed(c.edits...)).Restore); got != c.want {
			t.Errorf("a target that %s: %v", name, got)
		}
	}
}

func ofClone(o *Observed) {
	o.Restore.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachineClone", Name: "c", Controller: new(true)}}
}

// Only the beginning of a message is compared.
func (w want) judge(t *testing.T, plan Plan) {
	t.Helper()
	got := want{step: plan.Step, failed: Failed(plan.Restore), after: plan.After}
	if p := condition.Find(plan.Restore.Status.Conditions, snapshotv1.ConditionProgressing); p != nil {
		got.message = p.Message
	}
	var claims []string
	for _, c := range plan.Claims {
		claims = append(claims, c.Name)
	}
	got.claims = strings.Join(claims, " ")
	if !strings.HasPrefix(got.message, w.message) || (got.message != "") != (w.message != "") {
		t.Errorf("it says %q, want %q", got.message, w.message)
	}
	got.message = w.message
	if got != w {
		t.Errorf("got %+v, want %+v", got, w)
	}
}

// began makes the status remember that there was a target.
func began(o *Observed) {
	o.Restore.Status.Conditions = []snapshotv1.Condition{{Type: snapshotv1.ConditionProgressing, Status: corev1.ConditionTrue, Reason: ReasonInPlace}}
}

// claimOf is the restored claim of a volume, with a size.
func claimOf(volume, name, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"tier": "one",
			"restore.kubevirt.io/source-vm-name": "vm", "restore.kubevirt.io/source-vm-namespace": "ns"},
			Annotations: map[string]string{"note": "kept", nameAnnotation: "r", uidAnnotation: "r1"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), VolumeMode: new(corev1.PersistentVolumeBlock),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
			DataSource:  &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "vs-" + volume},
		},
	}
}

func TestTheClaims(t *testing.T) {
	o := observed(asks(func(s *snapshotv1.VirtualMachineRestoreSpec) {
		s.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: "data", RestoreName: "mine", Labels: map[string]string{"new": "label"}, Annotations: map[string]string{"new": "note"}}}
	}))
	plan := Decide(o)
	// The volume of root was larger than requested.
	root, data := claimOf("root", "restore-r1-root", "2Gi"), claimOf("data", "mine", "1Gi")
	data.Labels["new"], data.Annotations["new"] = "label", "note"
	if diff := cmp.Diff([]*corev1.PersistentVolumeClaim{root, data}, plan.Claims); diff != "" {
		t.Errorf("the claims: %s", diff)
	}
	want := &snapshotv1.VirtualMachineRestoreStatus{Complete: new(false), Restores: []snapshotv1.VolumeRestore{
		{VolumeName: "root", PersistentVolumeClaimName: "restore-r1-root", VolumeSnapshotName: "vs-root"},
		{VolumeName: "data", PersistentVolumeClaimName: "mine", VolumeSnapshotName: "vs-data"},
	}, Conditions: plan.Restore.Status.Conditions}
	if diff := cmp.Diff(want, plan.Restore.Status); diff != "" {
		t.Errorf("the status: %s", diff)
	}
	if got := Decide(observed(names(snapshotv1.VolumeRestorePolicyPrefixTargetName))).Claims[0].Name; got != "copy-root" {
		t.Errorf("with the target's name it is %q", got)
	}
	small := observed()
	small.Content.Spec.VolumeBackups[0].PersistentVolumeClaim.Spec.Resources = corev1.VolumeResourceRequirements{}
	if diff := cmp.Diff(root, Decide(small).Claims[0]); diff != "" {
		t.Errorf("a claim that asked for nothing: %s", diff)
	}
}

func TestAClaimIsAsLargeAsItWas(t *testing.T) {
	for size, want := range map[string]string{"": "1Gi", "512Mi": "1Gi", "1Gi": "1Gi", "3Gi": "3Gi"} {
		o := observed()
		source := snapshot.VolumeSnapshot{Owner: "c1", Taken: then, Ready: true}
		if size != "" {
			source.Size = new(resource.MustParse(size))
		}
		o.VolumeSnapshots["vs-root"] = source
		if got := Decide(o).Claims[0].Spec.Resources.Requests.Storage().String(); got != want {
			t.Errorf("from a VolumeSnapshot of %q: the claim has %s, want %s", size, got, want)
		}
	}
}

func TestABackupWithoutAVolumeSnapshotIsLeftOut(t *testing.T) {
	o := observed()
	o.Content.Spec.VolumeBackups[0].VolumeSnapshotName = nil
	volumes, err := Volumes(o.Restore, o.Content)
	if err != nil || len(volumes) != 1 || volumes[0].VolumeName != "data" {
		t.Errorf("the volumes are %+v (%v)", volumes, err)
	}
}

func TestTheStatusRemembersWhatItsTargetWas(t *testing.T) {
	for want, o := range map[string]Observed{ReasonNewVM: observed(), ReasonInPlace: observed(inPlace, locked)} {
		if got := condition.Find(Decide(o).Restore.Status.Conditions, snapshotv1.ConditionProgressing).Reason; got != want {
			t.Errorf("the reason is %s, want %s", got, want)
		}
	}
}

func TestNamesThatNoClaimCanHave(t *testing.T) {
	give := func(overrides ...snapshotv1.VolumeRestoreOverride) edit {
		return asks(func(s *snapshotv1.VirtualMachineRestoreSpec) { s.VolumeRestoreOverrides = overrides })
	}
	for want, o := range map[string]Observed{
		"the volume root would be restored to the claim \"Root\"": observed(give(snapshotv1.VolumeRestoreOverride{VolumeName: "root", RestoreName: "Root"})),
		"two volumes would be restored to the claim a": observed(give(snapshotv1.VolumeRestoreOverride{VolumeName: "root", RestoreName: "a"},
			snapshotv1.VolumeRestoreOverride{VolumeName: "data", RestoreName: "a"})),
		"volumeRestoreOverrides names the volume x, which": observed(give(snapshotv1.VolumeRestoreOverride{VolumeName: "x"})),
	} {
		plan := Decide(o)
		c := condition.Find(plan.Restore.Status.Conditions, snapshotv1.ConditionFailure)
		if c == nil || !strings.HasPrefix(c.Message, want) || len(plan.Claims) > 0 {
			t.Errorf("got %+v, want %q", c, want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	o := observed(both)
	if got := Refused(o, Decide(o), "the quota is used up"); !Failed(got) || condition.Find(got.Status.Conditions, snapshotv1.ConditionReady).Message != "the quota is used up" {
		t.Errorf("it says %+v", got.Status)
	}
	o = observed(inPlace, locked, names(snapshotv1.VolumeRestorePolicyInPlace), recorded)
	if got := Refused(o, Decide(o), "the quota is used up"); Failed(got) || condition.Find(got.Status.Conditions, snapshotv1.ConditionProgressing).Message != "the quota is used up" {
		t.Errorf("one that has begun to replace claims says %+v", got.Status)
	}
	o.VM.Status.RestoreInProgress = nil
	if got := Refused(o, Decide(o), "why"); !Failed(got) {
		t.Errorf("one that has not yet says %+v", got.Status)
	}
}

func TestACompleteRestoreSaysSo(t *testing.T) {
	status := Decide(observed(both, switched, owns)).Restore.Status
	if !*status.Complete || !status.RestoreTime.Time.Equal(born.Add(time.Second)) || !condition.IsTrue(status.Conditions, snapshotv1.ConditionReady) ||
		condition.IsTrue(status.Conditions, snapshotv1.ConditionProgressing) {
		t.Errorf("it says %+v", status)
	}
	owned := Decide(observed(both, switched)).Claims[0].OwnerReferences
	if len(owned) != 1 || owned[0].UID != "v1" || owned[0].Kind != "VirtualMachine" || owned[0].Controller != nil {
		t.Errorf("the claim's owners are %+v", owned)
	}
}
