package restore

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	guuid "github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

func patches(texts ...string) edit {
	return asks(func(s *snapshotv1.VirtualMachineRestoreSpec) { s.Patches = texts })
}

func withoutUUID(o *Observed) {
	o.Content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain.Firmware = nil
}

func toSource(o *Observed) { o.Restore.Spec.Target.Name = "vm" }

func made(t *testing.T, edits ...edit) *v1.VirtualMachine {
	t.Helper()
	plan := Decide(observed(append(edits, both)...))
	if plan.VM == nil {
		t.Fatalf("no VM is made: %+v", plan.Restore.Status.Conditions)
	}
	return plan.VM
}

func idOf(vm *v1.VirtualMachine) (id, address string) {
	spec := &vm.Spec.Template.Spec
	return string(spec.Domain.Firmware.UUID), spec.Domain.Devices.Interfaces[0].MacAddress
}

// The numbers are those of the table in the enhancement that defines the persistence of firmware UUIDs.

func TestScenario4RestoreOfOldSnapshotGetsTheLegacyUUID(t *testing.T) {
	if got, _ := idOf(made(t, withoutUUID)); got != string(firmware.Legacy("copy")) {
		t.Errorf("a new VM has %q, want the legacy UUID of its name", got)
	}
	if got, _ := idOf(made(t, withoutUUID, inPlace, locked)); got != string(firmware.Legacy("vm")) {
		t.Errorf("a VM that is restored in place has %q, want the legacy UUID of its name", got)
	}
}

func TestScenario8RestoreOfNewSnapshotKeepsTheUUID(t *testing.T) {
	for where, edits := range map[string][]edit{"in place": {inPlace, locked}, "in the place of one that is gone": {toSource}} {
		if id, address := idOf(made(t, edits...)); id != string(uuid) || address != mac {
			t.Errorf("%s: the VM has %s and %s, want those of the snapshot", where, id, address)
		}
	}
}

func TestScenario13OldBackupsOfAVMThatIsGone(t *testing.T) {
	const want = "5a9fc181-957e-5c32-9e5a-2de5e9673531"
	vm := made(t, withoutUUID, asks(func(s *snapshotv1.VirtualMachineRestoreSpec) { s.Target.Name = "testvm" }))
	if got, _ := idOf(vm); got != want {
		t.Errorf("the VM has %q, want %q", got, want)
	}
}

func TestANewVMIsNotTakenForTheOriginal(t *testing.T) {
	id, address := idOf(made(t))
	parsed, err := guuid.Parse(id)
	if err != nil || parsed.Version() != 4 || id == string(uuid) || id == standInUUID || address != "" {
		t.Errorf("it has %s and %q", id, address)
	}
	if again, _ := idOf(made(t)); again == id {
		t.Error("two of them have the same UUID")
	}
}

func TestPatchesSayWhatIsKept(t *testing.T) {
	const other = "22222222-b3ef-428c-8861-06e72d69f223"
	for name, c := range map[string]struct {
		patch       string
		id, address string
	}{
		"the snapshot's UUID":    {`{"op":"replace","path":"/spec/template/spec/domain/firmware/uuid","value":"` + string(uuid) + `"}`, string(uuid), ""},
		"another UUID":           {`{"op":"add","path":"/spec/template/spec/domain/firmware/uuid","value":"` + other + `"}`, other, ""},
		"the snapshot's address": {`{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/0/macAddress","value":"` + mac + `"}`, "", mac},
	} {
		id, address := idOf(made(t, patches(`{"op":"test","path":"/spec/template/spec/domain/firmware/uuid","value":"`+string(uuid)+`"}`, c.patch, `{"op":"test","path":"/metadata/name","value":"vm"}`,
			`{"op":"test","path":"/spec/template/spec/domain/devices/interfaces/0/name","value":"a"}`)))
		if c.id != "" && id != c.id || c.id == "" && id == string(uuid) || address != c.address {
			t.Errorf("%s: the VM has %s and %q", name, id, address)
		}
	}
	vm := made(t, patches(`{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/1/macAddress","value":"02:00:00:00:00:09"}`))
	if nics := vm.Spec.Template.Spec.Domain.Devices.Interfaces; nics[0].MacAddress != "" || nics[1].MacAddress != "02:00:00:00:00:09" {
		t.Errorf("with an address that the snapshot has not, the interfaces are %+v", nics)
	}
	vm = made(t, patches(`{"op":"remove","path":"/spec/template/spec/domain/devices/interfaces/1"}`,
		`{"op":"add","path":"/spec/template/spec/domain/devices/interfaces/-","value":{"name":"c","macAddress":"`+mac+`"}}`))
	if nics := vm.Spec.Template.Spec.Domain.Devices.Interfaces; len(nics) != 2 || nics[0].MacAddress != "" || nics[1].MacAddress != mac {
		t.Errorf("the interfaces are %+v", nics)
	}
	without := made(t, patches(`{"op":"remove","path":"/spec/template/spec/domain/devices/interfaces"}`, `{"op":"remove","path":"/spec/template/spec/domain/firmware"}`))
	if got := without.Spec.Template.Spec.Domain.Firmware.UUID; got != firmware.Legacy("copy") {
		t.Errorf("a VM whose UUID was taken out has %s", got)
	}
}

// shaped gives the snapshot's VM a revision of its type, named in its status, and one of its preference.
func shaped(o *Observed) {
	was := o.Content.Spec.Source.VirtualMachine
	was.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "u1.small", Kind: instancetype.KindClusterType}
	was.Spec.Preference = &v1.PreferenceMatcher{Name: "linux", Kind: instancetype.KindPreference}
	was.Status.InstancetypeRef = refTo("u1.small", instancetype.KindClusterType, "type-1")
	was.Status.PreferenceRef = refTo("linux", instancetype.KindPreference, "linux-1")
}

func refTo(name, kind, revision string) *v1.InstancetypeStatusRef {
	return &v1.InstancetypeStatusRef{Name: name, Kind: kind, ControllerRevisionRef: &v1.ControllerRevisionRef{Name: revision}}
}

// today gives the target revisions of the same type and preference.
func today(ofType, ofPreference string) edit {
	return func(o *Observed) {
		o.VM.Status.InstancetypeRef = refTo("u1.small", instancetype.KindClusterType, ofType)
		o.VM.Status.PreferenceRef = refTo("linux", instancetype.KindPreference, ofPreference)
	}
}

func TestAVMHasTheShapeThatTheSnapshotHas(t *testing.T) {
	for name, c := range map[string]struct {
		edits                []edit
		ofType, ofPreference string
	}{
		"a new VM":                         {[]edit{shaped}, "type-1", "linux-1"},
		"in the place of one that is gone": {[]edit{shaped, toSource}, "type-1", "linux-1"},
		"a new VM of another type":         {[]edit{shaped, patches(`{"op":"replace","path":"/spec/instancetype/name","value":"u1.large"}`)}, "", "linux-1"},
		"a new VM of a revision of its own": {[]edit{shaped, patches(`{"op":"replace","path":"/spec/instancetype/revisionName","value":"mine"}`,
			`{"op":"remove","path":"/spec/preference/revisionName"}`)}, "mine", ""},
		"in place":                               {[]edit{inPlace, locked, shaped}, "type-1", "linux-1"},
		"in place, where it goes by them anyway": {[]edit{inPlace, locked, shaped, today("type-1", "linux-1")}, "", ""},
		"in place, where one was another":        {[]edit{inPlace, locked, shaped, today("type-2", "linux-1")}, "type-1", ""},
	} {
		vm := made(t, c.edits...)
		if got := [2]string{vm.Spec.Instancetype.RevisionName, vm.Spec.Preference.RevisionName}; got != [2]string{c.ofType, c.ofPreference} {
			t.Errorf("%s: it goes by %q, want %q and %q", name, got, c.ofType, c.ofPreference)
		}
	}
}

func TestTheNewVM(t *testing.T) {
	vm := made(t, patches(`{"op":"replace","path":"/metadata/name","value":"copy"}`, `{"op":"add","path":"/metadata/labels/new","value":"label"}`,
		`{"op":"add","path":"/metadata/ownerReferences","value":[{"name":"x"}]}`, `{"op":"add","path":"/metadata/namespace","value":"elsewhere"}`,
		`{"op":"add","path":"/metadata/finalizers","value":["x"]}`, `{"op":"add","path":"/metadata/annotations/drydock.dev~1y","value":"internal"}`))
	want := metav1.ObjectMeta{Namespace: "ns", Name: "copy", Labels: map[string]string{"tier": "one", "new": "label"},
		Annotations: map[string]string{"note": "kept", LastRestore: "r-r1"}}
	if diff := cmp.Diff(want, vm.ObjectMeta); diff != "" {
		t.Errorf("it is %s", diff)
	}
	if *vm.Spec.RunStrategy != v1.RunStrategyHalted || vm.Spec.Running != nil || vm.Spec.DataVolumeTemplates != nil {
		t.Errorf("its spec is %+v", vm.Spec)
	}
	root, data := vm.Spec.Template.Spec.Volumes[0], vm.Spec.Template.Spec.Volumes[1]
	if root.DataVolume != nil || root.PersistentVolumeClaim.ClaimName != "restore-r1-root" || root.PersistentVolumeClaim.Hotpluggable ||
		data.PersistentVolumeClaim.ClaimName != "restore-r1-data" || !data.PersistentVolumeClaim.Hotpluggable {
		t.Errorf("its volumes are %+v and %+v", root, data)
	}
	// The new VM must not inherit the lock of the snapshot's VM.
	maintained := made(t, func(o *Observed) {
		lock.Take(&o.Content.Spec.Source.VirtualMachine.ObjectMeta, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fix", UID: "p1"}}, time.Time{})
	})
	if diff := cmp.Diff(map[string]string{"note": "kept", LastRestore: "r-r1"}, maintained.Annotations); diff != "" || maintained.Labels[layout.MaintenanceLabel] != "" {
		t.Errorf("the VM of a snapshot of one that was locked: labels %v, annotations %s", maintained.Labels, diff)
	}
	if plain := made(t, func(o *Observed) { o.Content.Spec.Source.VirtualMachine.Annotations = nil }); plain.Annotations[LastRestore] != "r-r1" {
		t.Errorf("one without annotations has %v", plain.Annotations)
	}
}

// A restore in place brings back a template. Its clones must need the rights of that template's author, and not those
// of a later author.
func TestTheWritersOfTemplatesComeBackInPlace(t *testing.T) {
	for _, c := range []struct{ was, today, want string }{{"then", "now", "then"}, {"", "now", "now"}, {"then", "", "then"}} {
		o := observed(inPlace, locked, both)
		o.Content.Spec.Source.VirtualMachine.Annotations = map[string]string{layout.AnnCloneWriters: c.was}
		o.VM.Annotations[layout.AnnCloneWriters] = c.today
		if got := Decide(o).VM.Annotations[layout.AnnCloneWriters]; got != c.want {
			t.Errorf("written by %q then and %q now: %q", c.was, c.today, got)
		}
	}
}

func TestTheVMInPlace(t *testing.T) {
	o := observed(inPlace, locked, both)
	o.VM.Labels["today"] = "yes"
	vm := Decide(o).VM
	if vm.UID != "v1" || *vm.Spec.RunStrategy != v1.RunStrategyManual || vm.Labels["today"] != "yes" || vm.Annotations[LastRestore] != "r-r1" {
		t.Errorf("it is %+v, strategy %s", vm.ObjectMeta, *vm.Spec.RunStrategy)
	}
	if vm.Spec.DataVolumeTemplates != nil || vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim == nil {
		t.Errorf("its volumes are %+v", vm.Spec.Template.Spec.Volumes)
	}
	o = observed(inPlace, locked, names(snapshotv1.VolumeRestorePolicyInPlace), both)
	if vm = Decide(o).VM; len(vm.Spec.DataVolumeTemplates) != 1 || vm.Spec.Template.Spec.Volumes[0].DataVolume == nil {
		t.Errorf("with the names as they were it has the volumes %+v", vm.Spec.Template.Spec.Volumes)
	}
	// The given names are no longer the original ones.
	o = observed(inPlace, locked, names(snapshotv1.VolumeRestorePolicyInPlace), asks(func(s *snapshotv1.VirtualMachineRestoreSpec) {
		s.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: "root", RestoreName: "mine"}}
	}), both)
	if vm = Decide(o).VM; vm.Spec.DataVolumeTemplates != nil || vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "mine" {
		t.Errorf("with a name of its own it has the volumes %+v", vm.Spec.Template.Spec.Volumes)
	}
	// A disk that the snapshot does not have must stay on its claim, if the VM still has it.
	excluded := func(o *Observed) { o.Content.Spec.VolumeBackups = o.Content.Spec.VolumeBackups[:1] }
	if vm = Decide(observed(inPlace, locked, excluded, both)).VM; vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName != "data-claim" {
		t.Errorf("the disk that was not included is %+v", vm.Spec.Template.Spec.Volumes[1])
	}
}

func TestVMsThatAreNotMade(t *testing.T) {
	excluded := func(o *Observed) { o.Content.Spec.VolumeBackups = o.Content.Spec.VolumeBackups[:1] }
	for want, o := range map[string]Observed{
		"the volume data is on the claim data-claim, which the snapshot has no copy of": observed(excluded),
		"the volume data is on the claim data-claim":                                    observed(inPlace, locked, excluded, func(o *Observed) { o.VM.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "another" }),
		"the volume data is on the claim data-claim, ":                                  observed(inPlace, locked, excluded, func(o *Observed) { o.VM.Spec.Template = nil }),
		"patch 2 is no operation of a JSON patch":                                       observed(patches(`{"op":"test","path":"/metadata/name","value":"vm"}`, "x")),
		`patch 1 has the operation "copy"; add, replace`:                                observed(patches(`{"op":"copy","from":"/spec","path":"/spec/x"}`)),
		"applying the patches to the VM of the snapshot":                                observed(patches(`{"op":"replace","path":"/spec/nothing/x","value":1}`)),
		"the patches set what a VirtualMachine does not have: unknown field":            observed(patches(`{"op":"replace","path":"/spec/nothing","value":1}`)),
		"the patches make no VirtualMachine":                                            observed(patches(`{"op":"replace","path":"/spec","value":"x"}`)),
		`the patches name the VM "other", the restore's target is "copy"`:               observed(patches(`{"op":"replace","path":"/metadata/name","value":"other"}`)),
		"the VM of the snapshot has no template":                                        observed(patches(`{"op":"remove","path":"/spec/template"}`)),
	} {
		plan := Decide(o)
		c := condition.Find(plan.Restore.Status.Conditions, snapshotv1.ConditionFailure)
		if c == nil || !strings.HasPrefix(c.Message, want) || plan.Step != Rest || plan.VM != nil {
			t.Errorf("got %+v, want %q", c, want)
		}
	}
}
