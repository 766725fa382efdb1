package volumemigration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

const (
	once     = corev1.ReadWriteOnce
	everyone = corev1.ReadWriteMany
	readers  = corev1.ReadOnlyMany
)

func reported(volume, claim string, modes ...corev1.PersistentVolumeAccessMode) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: volume, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: claim, AccessModes: modes},
		})
	}
}

// leaving is a VMI with two volumes.
func leaving(root, data v1.VolumeSource, edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}, Spec: *spec(root, data)}
	for _, edit := range edits {
		edit(vmi)
	}
	return vmi
}

// folder makes the disk of that index a folder that the guest shares.
func folder(i int) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) { shareFolder(&vmi.Spec, i) }
}

// said formats moves without the suffixes of their names, which come from digests.
func said(moves []Move) string {
	var words []string
	for _, m := range moves {
		stem := m.To[:max(0, len(m.To)-10)]
		words = append(words, m.Volume+" from "+m.From+" to "+stem)
	}
	return strings.Join(words, ", ")
}

func TestADiskThatStaysOnItsNode(t *testing.T) {
	root, both := []Move{{"root", "a", "c"}}, []Move{{"root", "a", "c"}, {"data", "b", "d"}}
	const left = "cannot migrate the VM. The volume data is RWO and not included in the migration volumes"
	for name, test := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		moves []Move
		want  string
	}{
		"it is not moved":                          {leaving(pvc("a"), dv("b"), reported("root", "a", once), reported("data", "b", once)), root, left},
		"it is":                                    {leaving(pvc("a"), dv("b"), reported("root", "a", once), reported("data", "b", once)), both, ""},
		"nothing is":                               {leaving(pvc("a"), dv("b"), reported("data", "b", once)), nil, ""},
		"it is shared":                             {leaving(pvc("a"), dv("b"), reported("data", "b", once, everyone)), root, ""},
		"it is below an overlay":                   {leaving(pvc("a"), below("b"), reported("data", "b", readers)), root, ""},
		"it can only be read":                      {leaving(pvc("a"), dv("b"), reported("data", "b", readers)), root, left},
		"it is a folder that can only be read":     {leaving(pvc("a"), dv("b"), folder(1), reported("data", "b", readers)), root, ""},
		"it is a folder for one writer or readers": {leaving(pvc("a"), dv("b"), folder(1), reported("data", "b", once, readers)), root, left},
		"it is on no claim":                        {leaving(pvc("a"), empty), root, ""},
		"it is not known":                          {leaving(pvc("a"), dv("b")), root, ""},
		"it was on another claim":                  {leaving(pvc("a"), dv("b"), reported("data", "z", once)), root, ""},
		"its modes are not known":                  {leaving(pvc("a"), dv("b"), reported("data", "b")), root, ""},
	} {
		if got := WhyStillLocal(test.vmi, test.moves); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWhichDisksADrainMoves(t *testing.T) {
	local := func(vmi *v1.VirtualMachineInstance) {
		reported("root", "a", once)(vmi)
		reported("data", "b", once)(vmi)
	}
	dataOnly := reported("data", "b", once)
	file := func(shared *bool) v1.VolumeSource { return v1.VolumeSource{HostDisk: &v1.HostDisk{Shared: shared}} }
	disk := func(edit func(*v1.Disk)) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) { edit(&vmi.Spec.Domain.Devices.Disks[0]) }
	}
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want string
	}{
		"both are local":     {leaving(pvc("a"), dv("b"), local), "root from a to web-root-, data from b to web-data-"},
		"one is shared":      {leaving(pvc("a"), dv("b"), reported("root", "a", once, everyone), dataOnly), "data from b to web-data-"},
		"none is on a claim": {leaving(empty, empty), ""},
		"one is not known":   {leaving(pvc("a"), dv("b"), dataOnly), "volume root can't be migrated: what its claim a is has not been reported yet"},
		"one was on another": {leaving(pvc("a"), dv("b"), reported("root", "z", once), dataOnly), "volume root can't be migrated: what its claim a is has not been reported yet"},
		"one is plugged": {leaving(plugged(pvc("a")), dv("b"), local, func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus[0].HotplugVolume, vmi.Status.VolumeStatus[0].Phase = &v1.HotplugVolumeStatus{}, v1.VolumeReady
		}), "root from a to web-root-, data from b to web-data-"},
		"one is not plugged in": {leaving(plugged(pvc("a")), dv("b"), local),
			"volume root can't be migrated: it is not plugged in, and is copied as soon as its phase is Ready"},
		"one whose claim has no modes":   {leaving(pvc("a"), dv("b"), reported("root", "a"), dataOnly), "root from a to web-root-, data from b to web-data-"},
		"one has just come to its claim": {leaving(plugged(pvc("a")), dv("b"), pluggedIn("root", "a", v1.VolumeReady), dataOnly), "volume root can't be migrated: what its claim a is has not been reported yet"},
		"a shared is plugged":            {leaving(plugged(pvc("a")), dv("b"), reported("root", "a", everyone), dataOnly), "data from b to web-data-"},
		"one is on its way":              {leaving(plugged(pvc("a")), dv("b"), dataOnly), "data from b to web-data-"},
		"one is only read":               {leaving(readOnly(pvc("a")), dv("b"), local), "volume root can't be migrated: its claim is only read"},
		"one that all may read": {leaving(readOnly(pvc("a")), dv("b"), reported("root", "a", readers), dataOnly),
			"volume root can't be migrated: its claim is only read"},
		"a folder that all may read":         {leaving(pvc("a"), dv("b"), folder(0), reported("root", "a", readers), dataOnly), "data from b to web-data-"},
		"a folder that is only read":         {leaving(readOnly(pvc("a")), dv("b"), folder(0), reported("root", "a", once, readers), dataOnly), "data from b to web-data-"},
		"a folder for one writer or readers": {leaving(pvc("a"), dv("b"), folder(0), reported("root", "a", once, readers), dataOnly), "volume root can't be migrated: it has no disk"},
		"an overlay over one":                {leaving(below("a"), dv("b"), local), "volume root can't be migrated: its claim is only read"},
		"an overlay over one for readers":    {leaving(below("a"), dv("b"), reported("root", "a", readers), dataOnly), "data from b to web-data-"},
		"a file of the node":                 {leaving(file(nil), dv("b"), dataOnly), "volume root can't be migrated: it is a file on this node"},
		"a file that is not shared":          {leaving(file(new(false)), dv("b"), dataOnly), "volume root can't be migrated: it is a file on this node"},
		"a file that is":                     {leaving(file(new(true)), dv("b"), dataOnly), "data from b to web-data-"},
		"a cdrom":                            {leaving(pvc("a"), dv("b"), local, disk(func(d *v1.Disk) { d.CDRom, d.Disk = &v1.CDRomTarget{}, nil })), "volume root can't be migrated: it is in a cdrom"},
		"a shareable disk":                   {leaving(pvc("a"), dv("b"), local, disk(func(d *v1.Disk) { d.Shareable = new(true) })), "volume root can't be migrated: its disk is shareable, and other guests may write to it"},
	} {
		t.Run(name, func(t *testing.T) {
			moves, refusals := Local(test.vmi)
			got := said(moves)
			if len(refusals) > 0 {
				got = strings.Join(refusals, "; ")
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			for _, m := range moves {
				if !slices.Contains(MovesOffNode(test.vmi), m) {
					t.Errorf("%v is none of %v", m, MovesOffNode(test.vmi))
				}
			}
		})
	}
}

// TestADestinationIsNamedByWhereTheGuestIs: a claim that has been a guest's disk must never have the name of one that
// a drain would make.
func TestADestinationIsNamedByWhereTheGuestIs(t *testing.T) {
	name := func(edits ...func(*v1.VirtualMachineInstance)) string {
		return MovesOffNode(leaving(pvc("a"), dv("b"), edits...))[0].To
	}
	first := name()
	for what, edit := range map[string]func(*v1.VirtualMachineInstance){
		"another VMI": func(vmi *v1.VirtualMachineInstance) { vmi.UID = "v" },
		"another pod": func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.NodeName = "n"
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourcePod: "virt-launcher", TargetPod: "p", TargetNode: "n", Completed: true}
		},
		"another claim":  func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes[0].VolumeSource = pvc("z") },
		"another volume": func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes[0].Name = "boot" },
	} {
		if name(edit) == first {
			t.Errorf("%s: the name is the same", what)
		}
	}
	failed := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourcePod: "virt-launcher-web-" + "x", TargetPod: "p", TargetNode: "n", Failed: true}
	}
	if again := name(failed, func(vmi *v1.VirtualMachineInstance) { vmi.Status.MigrationState.TargetPod = "q" }); again != name(failed) {
		t.Error("another attempt has another name")
	}
	if got := MovesOffNode(leaving(plugged(pvc("a")), below("b"))); len(got) != 1 || got[0].Volume != "root" {
		t.Errorf("a plugged disk goes to %v", got)
	}
	if got := MovesOffNode(leaving(readOnly(pvc("a")), readOnly(plugged(pvc("b"))))); got != nil {
		t.Errorf("disks that nobody migrates go to %v", got)
	}
}

func TestWhoLetsADrainMoveDisks(t *testing.T) {
	migration := v1.UpdateVolumesStrategyMigration
	for name, test := range map[string]struct {
		strategy   *v1.UpdateVolumesStrategy
		annotation string
		want       bool
	}{
		"both are said":               {&migration, "Migrate", true},
		"only the annotation":         {nil, "Migrate", false},
		"only the strategy":           {&migration, "", false},
		"a value that nobody knows":   {&migration, "migrate", false},
		"the strategy is replacement": {new(v1.UpdateVolumesStrategyReplacement), "Migrate", false},
	} {
		vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{UpdateVolumesStrategy: test.strategy}}
		vm.Annotations = map[string]string{"drydock.dev/drain-local-disks": test.annotation}
		if DrainAllowed(vm) != test.want {
			t.Errorf("%s: it is %v", name, !test.want)
		}
	}
}

// owner is a VM with a volume on a claim, and one on its own DataVolume.
func owner(root, data v1.VolumeSource) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "vm"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *spec(root, data)}
	vm.Spec.Template.Spec.PriorityClassName = "high"
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "u"}}}},
	}
	return vm
}

func TestATemplateNamesWhereDisksGoAndBack(t *testing.T) {
	vm, vmi := owner(pvc("a"), dv("b")), leaving(pvc("a"), dv("b"))
	before := vm.DeepCopy()
	moves := []Move{rootMove, dataMove, {"gone", "x", "y"}}
	if !OnEitherClaim(&vm.Spec.Template.Spec, moves[:2]) || OnEitherClaim(&vm.Spec.Template.Spec, moves) {
		t.Error("whether the template is as the moves want it is not seen")
	}
	WriteNewClaims(vm, moves)
	want := owner(dv("c"), dv("d"))
	want.Spec.DataVolumeTemplates[1].Name = "d"
	if diff := cmp.Diff(want, vm); diff != "" {
		t.Error(diff)
	}
	if !rootMove.Names(&vm.Spec.Template.Spec) || rootMove.Names(&before.Spec.Template.Spec) || !OnEitherClaim(&vm.Spec.Template.Spec, moves[:2]) {
		t.Error("what the template names is not seen")
	}
	RestoreClaims(vm, vmi, moves)
	if diff := cmp.Diff(before, vm); diff != "" {
		t.Error(diff)
	}
	RestoreClaims(vm, vmi, moves)
	WriteNewClaims(vm, []Move{{"root", "z", "c"}})
	if diff := cmp.Diff(before, vm); diff != "" {
		t.Errorf("what is on other claims is changed: %s", diff)
	}
	RestoreClaims(vm, &v1.VirtualMachineInstance{}, []Move{{"root", "z", "a"}})
	if diff := cmp.Diff(before, vm); diff != "" {
		t.Errorf("a volume that the VMI does not have is changed: %s", diff)
	}
}

func TestWhereADiskGoesIsMadeLikeWhereItIs(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{once}, VolumeMode: new(corev1.PersistentVolumeBlock), StorageClassName: new("local"),
		VolumeName: "its-own", Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	vm := owner(pvc("a"), dv("b"))
	made := NewDestination(vm, rootMove, old, false)
	want := &cdiv1.DataVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c",
			Labels: map[string]string{"drydock.dev/drain-destination": "vm"}, Annotations: map[string]string{"drydock.dev/drained-vm": "web"}},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, PriorityClassName: "high",
			PVC: &corev1.PersistentVolumeClaimSpec{
				AccessModes: old.Spec.AccessModes, VolumeMode: old.Spec.VolumeMode, StorageClassName: old.Spec.StorageClassName, Resources: old.Spec.Resources,
			},
		},
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Error(diff)
	}
	for given, want := range map[string]string{"2Gi": "2Gi", "512Mi": "1Gi"} {
		old.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(given)}
		if got := NewDestination(vm, rootMove, old, false).Spec.PVC.Resources.Requests.Storage().String(); got != want {
			t.Errorf("of a claim with %s one is made with %s, want %s", given, got, want)
		}
	}
	owned := NewDestination(vm, rootMove, old, true)
	if !metav1.IsControlledBy(owned, vm) || owned.Labels[v1.CreatedByLabel] != "vm" || owned.Labels[DrainLabel] != "vm" || owned.Annotations[datavolume.MadeForVM] != "web" {
		t.Errorf("one that goes with the VM is %+v", owned.ObjectMeta)
	}
	if !MadeForDrain(made, vm) || MadeForDrain(made, &v1.VirtualMachine{}) {
		t.Error("for which VM it was made is not seen")
	}
	made.DeletionTimestamp = &metav1.Time{}
	if MadeForDrain(made, vm) {
		t.Error("one that is being deleted counts")
	}
}
