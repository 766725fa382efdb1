package restore

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// withState gives the snapshot's VM a kept TPM, and the snapshot a copy of its claim.
func withState(o *Observed) {
	of := snapshotv1.VolumeBackup{
		VolumeName: stateclaim.Volume, VolumeSnapshotName: new("vs-state"),
		PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "persistent-state-for-vm-x", Labels: map[string]string{"persistent-state-for": "vm"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: new("shared"), VolumeMode: new(corev1.PersistentVolumeFilesystem), VolumeName: "pv",
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
			},
		},
	}
	o.Content.Spec.VolumeBackups = append(o.Content.Spec.VolumeBackups, of)
	o.VolumeSnapshots["vs-state"] = snapshot.VolumeSnapshot{Owner: "c1", Taken: then, Ready: true, Size: new(resource.MustParse("12Mi"))}
	keepTPM(o.Content.Spec.Source.VirtualMachine.Spec.Template)
	if o.VM != nil {
		keepTPM(o.VM.Spec.Template)
	}
}

func keepTPM(template *v1.VirtualMachineInstanceTemplateSpec) {
	template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
}

// byPreference makes a preference, and not the template, request that the TPM is kept.
func byPreference(o *Observed) {
	for _, spec := range []*v1.VirtualMachineSpec{&o.VM.Spec, &o.Content.Spec.Source.VirtualMachine.Spec} {
		spec.Template.Spec.Domain.Devices.TPM = nil
		spec.Preference = &v1.PreferenceMatcher{Name: "windows.11"}
	}
}

// disks adds the claims of both disks, and the recorded state, with the name of its claim if that is known.
func disks(claim string) edit {
	return func(o *Observed) {
		both(o)
		o.Restore.Status.Restores = append(o.Restore.Status.Restores, snapshotv1.VolumeRestore{
			VolumeName: stateclaim.Volume, PersistentVolumeClaimName: claim, VolumeSnapshotName: "vs-state",
		})
	}
}

// madeVM adds the new VM, which waits for its state.
func madeVM(o *Observed) {
	o.VM = source()
	o.VM.Name, o.VM.UID = "copy", "v2"
	keepTPM(o.VM.Spec.Template)
	o.VM.Annotations[stateclaim.AwaitedAnnotation] = mark(o.Restore)
	switched(o)
	owns(o)
}

// admitted ends the VM's wait.
func admitted(o *Observed) { delete(o.VM.Annotations, stateclaim.AwaitedAnnotation) }

// stateOf adds the claim of the VM's state, made by the restore with the UID.
func stateOf(uid string, phase corev1.PersistentVolumeClaimPhase, changes ...func(*corev1.PersistentVolumeClaim)) edit {
	return func(o *Observed) {
		c := stateclaim.Claim(stateclaim.Next(o.VM), "shared", nil)
		c.Annotations, c.Status.Phase = map[string]string{uidAnnotation: uid}, phase
		for _, change := range changes {
			change(c)
		}
		o.Claims[c.Name] = c
	}
}

func foreign(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }

func going(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = then }

func vsState(v *snapshot.VolumeSnapshot) edit {
	return func(o *Observed) {
		delete(o.VolumeSnapshots, "vs-state")
		if v != nil {
			o.VolumeSnapshots["vs-state"] = *v
		}
	}
}

const (
	stateOfVM   = "persistent-state-for-vm-hp6cnfmu55"
	stateOfCopy = "persistent-state-for-copy-7mcnznuxbz"
)

func TestTheVMsState(t *testing.T) {
	unready := vsState(&snapshot.VolumeSnapshot{Owner: "c1", Taken: then})
	others := vsState(&snapshot.VolumeSnapshot{Owner: "x", Taken: then, Ready: true})
	byPod := func(o *Observed) { o.Waits["shared"] = true }
	back := []edit{inPlace, locked, withState, disks(stateOfVM), switched, owns}
	after := func(edits ...edit) []edit { return append(slices.Clone(back), edits...) }
	anew := []edit{withState, disks(""), madeVM}
	afterMade := func(edits ...edit) []edit { return append(slices.Clone(anew), edits...) }
	for name, c := range map[string]struct {
		edits []edit
		want  want
	}{
		"first the disks":                          {[]edit{inPlace, locked, withState}, want{step: MakeClaims, message: "the claims are being made", claims: "restore-r1-root restore-r1-data"}},
		"nothing happens before it can be had":     {[]edit{inPlace, locked, withState, disks(stateOfVM), unready}, want{message: "the VolumeSnapshot vs-state is not ready to use", after: whileFilled}},
		"or when its copy is gone":                 {[]edit{inPlace, locked, withState, disks(stateOfVM), vsState(nil)}, want{failed: true, message: "the VolumeSnapshot vs-state of the VM's state was deleted"}},
		"or is somebody else's":                    {[]edit{withState, disks(""), others}, want{failed: true, message: "the VolumeSnapshot vs-state of the VM's state was deleted"}},
		"or its claim has somebody else's name":    {[]edit{inPlace, locked, withState, disks(stateOfVM), stateOf("", corev1.ClaimBound, foreign)}, want{failed: true, message: "the PVC " + stateOfVM + ", on which the state of VirtualMachine vm is to be kept, belongs to something else"}},
		"the VM's own claim is no obstacle":        {[]edit{inPlace, locked, withState, disks(stateOfVM), stateOf("", corev1.ClaimBound)}, want{step: Switch, message: "the claims are being made"}},
		"then the VM's own goes":                   {after(stateOf("", corev1.ClaimBound)), want{step: DropClaims, claims: stateOfVM}},
		"and that of an earlier restore":           {after(stateOf("r0", corev1.ClaimBound)), want{step: DropClaims, claims: stateOfVM}},
		"not without a copy":                       {after(stateOf("", corev1.ClaimBound), vsState(nil)), want{message: "the VolumeSnapshot vs-state of the VM's state was deleted", after: whileWaits}},
		"nor before that is ready":                 {after(stateOf("", corev1.ClaimBound), unready), want{message: "the VolumeSnapshot vs-state is not ready to use", after: whileWaits}},
		"nor when the content is gone":             {after(func(o *Observed) { o.Content = nil }), want{message: "the VolumeSnapshot vs-state of the VM's state was deleted", after: whileWaits}},
		"nor while a guest uses it":                {after(stateOf("", corev1.ClaimBound), runs), want{message: "the VM vm was started before its state was restored: stop it", after: whileWaits}},
		"nor without the lock":                     {after(stateOf("", corev1.ClaimBound), func(o *Observed) { o.VM.Status.RestoreInProgress = nil }), want{step: Lock}},
		"nor somebody else's":                      {after(stateOf("", corev1.ClaimBound, foreign)), want{message: "the PVC " + stateOfVM + ", on which the state of VirtualMachine vm is to be kept, belongs to something else", after: whileWaits}},
		"its end is waited for":                    {after(stateOf("", corev1.ClaimBound, going)), want{message: "the claim " + stateOfVM + " is being deleted", after: whileFilled}},
		"also that of the restore's":               {after(stateOf("r1", corev1.ClaimBound, going)), want{message: "the claim " + stateOfVM + " is being deleted", after: whileFilled}},
		"then it is made anew":                     {after(), want{step: MakeClaims, claims: stateOfVM}},
		"and filled":                               {after(stateOf("r1", corev1.ClaimPending)), want{message: "the storage driver has not filled the claim " + stateOfVM + " yet", after: whileFilled}},
		"unless its volume is lost":                {after(stateOf("r1", corev1.ClaimLost), byPod), want{message: "the volume of the claim " + stateOfVM + " is lost: delete the claim", after: whileFilled}},
		"where a pod has to use it nothing waits":  {after(stateOf("r1", corev1.ClaimPending), byPod), want{step: Unlock}},
		"then the VM is unlocked":                  {after(stateOf("r1", corev1.ClaimBound)), want{step: Unlock}},
		"a guest may run again after that":         {after(stateOf("r1", corev1.ClaimBound), runs, func(o *Observed) { o.VM.Status.RestoreInProgress = nil }), want{message: "the VM is restored"}},
		"a VM that keeps no state any more":        {after(func(o *Observed) { o.VM.Spec.Template.Spec.Domain.Devices.TPM = nil }), want{step: Unlock}},
		"a restore that is deleted gives up":       {after(stateOf("", corev1.ClaimBound), deleted), want{step: Unlock}},
		"a new VM is made first":                   {[]edit{withState, disks("")}, want{step: MakeVM, message: "the claims are being made"}},
		"its state comes afterwards":               {afterMade(), want{step: MakeClaims, claims: stateOfCopy}},
		"in the place of what it may have":         {afterMade(stateOf("", corev1.ClaimPending)), want{step: DropClaims, claims: stateOfCopy}},
		"not while it runs":                        {afterMade(admitted, runs), want{message: "the VM copy was started before its state was restored: stop it", after: whileWaits}},
		"nor without anything that keeps it":       {afterMade(admitted), want{step: Lock}},
		"then it may start":                        {afterMade(stateOf("r1", corev1.ClaimBound)), want{step: Admit}},
		"and the restore is complete":              {afterMade(stateOf("r1", corev1.ClaimBound), admitted), want{message: "the VM is restored"}},
		"a restore that is deleted lets it start":  {afterMade(deleted), want{step: Admit}},
		"one of another restore is not let start":  {afterMade(stateOf("r1", corev1.ClaimBound), func(o *Observed) { o.VM.Annotations[stateclaim.AwaitedAnnotation] = "x" }), want{message: "the VM is restored"}},
		"a preference may be why it has state":     {after(stateOf("", corev1.ClaimBound), byPreference), want{step: DropClaims, claims: stateOfVM}},
		"whose claim is made like any other":       {after(byPreference), want{step: MakeClaims, claims: stateOfVM}},
		"the state has its claim's name, no other": {[]edit{withState, asks(overrides(stateclaim.Volume))}, want{failed: true, message: "volumeRestoreOverrides names the VM's state (vm/state)"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.judge(t, Decide(observed(c.edits...)))
		})
	}
}

func overrides(volume string) func(*snapshotv1.VirtualMachineRestoreSpec) {
	return func(s *snapshotv1.VirtualMachineRestoreSpec) {
		s.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: volume, RestoreName: "mine"}}
	}
}

func TestTheClaimOfTheState(t *testing.T) {
	o := observed(withState, disks(""), madeVM)
	plan := Decide(o)
	want := stateclaim.Claim(stateclaim.Next(o.VM), "shared", nil)
	want.Annotations = map[string]string{nameAnnotation: "r", uidAnnotation: "r1"}
	want.Labels[SourceNameLabel], want.Labels[SourceNamespaceLabel] = "vm", "ns"
	want.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	// The volume was larger than requested.
	want.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("12Mi")}
	want.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "vs-state"}
	if diff := cmp.Diff([]*corev1.PersistentVolumeClaim{want}, plan.Claims); diff != "" {
		t.Errorf("the claim: %s", diff)
	}
	if err := stateclaim.Check(stateclaim.Next(o.VM), plan.Claims[0]); err != nil {
		t.Errorf("the VM's first guest is not given it: %v", err)
	}
	if got := plan.Restore.Status.Restores[2]; got.PersistentVolumeClaimName != stateOfCopy {
		t.Errorf("the status says %+v", got)
	}
}

// The restore follows the status that it records before it writes the VM.
func TestWhoseStateIsRestored(t *testing.T) {
	byClone := func(o *Observed) {
		o.Restore.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachineClone", Controller: new(true)}}
	}
	byOther := func(o *Observed) {
		o.Restore.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Controller: new(true)}}
	}
	notCopied := func(o *Observed) { o.Content.Spec.VolumeBackups[2].VolumeSnapshotName = nil }
	for name, c := range map[string]struct {
		edits []edit
		want  string
		waits bool
	}{
		"in place":                                {[]edit{inPlace, locked, withState}, stateOfVM, false},
		"in place, of a VM that had none":         {[]edit{inPlace, locked, withState, func(o *Observed) { o.VM.Spec.Template.Spec.Domain.Devices.TPM = nil }}, stateOfVM, false},
		"a new VM's":                              {[]edit{withState}, "", true},
		"that of one that somebody makes":         {[]edit{withState, byOther}, "", true},
		"that of a VM in the place of one":        {[]edit{withState, toSource}, "", true},
		"not a clone's":                           {[]edit{withState, byClone}, "none", false},
		"not a clone's of any name":               {[]edit{withState, toSource, byClone}, "none", false},
		"none that has no TPM":                    {[]edit{withState, patches(`{"op":"remove","path":"/spec/template/spec/domain/devices/tpm"}`)}, "none", false},
		"none that the snapshot has no copy of":   {[]edit{inPlace, locked, withState, notCopied}, "none", false},
		"none that the snapshot knows nothing of": {[]edit{func(o *Observed) { keepTPM(o.Content.Spec.Source.VirtualMachine.Spec.Template) }}, "none", false},
	} {
		o := observed(c.edits...)
		both(&o)
		plan := Decide(o)
		got := "none"
		for _, v := range plan.Restore.Status.Restores {
			if v.VolumeName == stateclaim.Volume {
				got = v.PersistentVolumeClaimName
			}
		}
		if got != c.want {
			t.Errorf("%s: the claim is %q, want %q", name, got, c.want)
		}
		if waits := plan.VM.Annotations[stateclaim.AwaitedAnnotation]; (waits == "r-r1") != c.waits || (waits != "") != c.waits {
			t.Errorf("%s: the VM waits for the state of %q", name, waits)
		}
	}
}

func TestAVMThatMayStartHasOnlyThatTakenAway(t *testing.T) {
	o := observed(withState, disks(""), madeVM, stateOf("r1", corev1.ClaimBound))
	want := o.VM.DeepCopy()
	delete(want.Annotations, stateclaim.AwaitedAnnotation)
	if diff := cmp.Diff(want, Decide(o).VM); diff != "" {
		t.Errorf("the VM: %s", diff)
	}
	if o.VM.Annotations[stateclaim.AwaitedAnnotation] == "" {
		t.Error("what was observed is changed")
	}
}

func TestWhichClaimsAreLookedAt(t *testing.T) {
	const root, data = "restore-r1-root", "restore-r1-data"
	for name, c := range map[string]struct {
		edits []edit
		want  []string
	}{
		"those that follow":         {nil, []string{root, data}},
		"with the state's":          {[]edit{inPlace, withState}, []string{root, data, stateOfVM}},
		"no state of no VM":         {[]edit{withState, disks("")}, []string{root, data}},
		"that of a VM that is made": {[]edit{withState, disks(""), madeVM}, []string{root, data, stateOfCopy}},
		"without the content":       {[]edit{inPlace, withState, disks(stateOfVM), func(o *Observed) { o.Content = nil }}, []string{root, data, stateOfVM}},
		"no state that is not had":  {[]edit{inPlace, both}, []string{root, data}},
		"before anything is known":  {[]edit{inPlace, func(o *Observed) { o.Content = nil }}, nil},
	} {
		o := observed(c.edits...)
		if got := ClaimNames(&o); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// After the switch no error may be final, and the message must name the former target.
func TestAStateThatIsRefusedIsTriedAgain(t *testing.T) {
	for want, o := range map[string]Observed{
		ReasonInPlace: observed(inPlace, locked, withState, disks(stateOfVM), switched),
		ReasonNewVM:   observed(withState, disks(""), madeVM),
	} {
		got := Refused(o, Decide(o), "the quota is used up")
		if c := condition.Find(got.Status.Conditions, snapshotv1.ConditionProgressing); Failed(got) || c.Message != "the quota is used up" || c.Reason != want {
			t.Errorf("it says %+v, want the reason %s", c, want)
		}
	}
}
