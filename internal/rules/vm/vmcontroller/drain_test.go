package vmcontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// drains is a VM that lets a drain move its disks, and names a claim.
func drains(claim string) vmEdit {
	return func(vm *v1.VirtualMachine) {
		wants(claim)(vm)
		vm.Annotations = map[string]string{volumemigration.DrainAnnotation: volumemigration.DrainMigrate}
	}
}

// drainedFrom is a VMI on a local claim whose node is drained.
func drainedFrom(claim string) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) {
		isOn(claim)(vmi)
		vmi.Spec.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate)
		vmi.Status.NodeName, vmi.Status.EvacuationNodeName = "node", "node"
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "root", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: claim, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}}}
		vmiSays(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse, v1.VirtualMachineInstanceReasonDisksNotMigratable, "local")(vmi)
	}
}

func uncordoned(vmi *v1.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = "" }

func migratable(vmi *v1.VirtualMachineInstance) {
	condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable).Status = corev1.ConditionTrue
}

// away is the move of the disk of a VMI on the claim a.
var away = volumemigration.MovesOffNode(newTestVMI(running, drainedFrom("a")))[0]

// destination is the DataVolume that was made for it.
func destination(edits ...dvEdit) *cdiv1.DataVolume {
	dv := volumemigration.NewDestination(newVM(v1.RunStrategyAlways), away, &corev1.PersistentVolumeClaim{}, false)
	for _, edit := range edits {
		edit(dv)
	}
	return dv
}

// drainOf formats a plan's actions for a drain.
func drainOf(p Plan) string {
	var words []string
	if p.Needs != "" {
		words = append(words, "asks for "+string(p.Needs))
	}
	for _, dv := range p.CreateDestinations {
		words = append(words, "makes "+strings.ReplaceAll(dv.Name, away.To, "b"))
	}
	for _, dv := range p.DeleteDestinations {
		words = append(words, "deletes "+strings.ReplaceAll(dv.Name, away.To, "b"))
	}
	if p.Needs == NeedTemplate {
		words = append(words, "names "+strings.ReplaceAll(p.VM.Spec.Template.Spec.Volumes[0].DataVolume.Name, away.To, "b"))
	}
	return strings.Join(words, "; ")
}

func TestDisksOfANodeThatIsDrained(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	move := volumemigration.Move{Volume: away.Volume, From: "a", To: away.To}
	vm := func(edits ...vmEdit) *v1.VirtualMachine { return newVM(v1.RunStrategyAlways, edits...) }
	vmi := func(edits ...vmiEdit) *v1.VirtualMachineInstance {
		return newTestVMI(running, append([]vmiEdit{drainedFrom("a")}, edits...)...)
	}
	going := func(dv *cdiv1.DataVolume) { dv.DeletionTimestamp = &metav1.Time{Time: now} }
	foreign := func(dv *cdiv1.DataVolume) { dv.Labels = nil }
	stops := func(vm *v1.VirtualMachine) { *vm.Spec.RunStrategy = v1.RunStrategyHalted }
	forbids := func(vm *v1.VirtualMachine) { vm.Annotations = nil }
	has := func(condition, reason string) vmiEdit {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions = nil
			vmiSays(v1.VirtualMachineInstanceConditionType(condition), corev1.ConditionFalse, reason, "")(vmi)
		}
	}
	const template = "asks for the VM with other claims in its template; names "
	for name, test := range map[string]struct {
		vm    *v1.VirtualMachine
		vmi   *v1.VirtualMachineInstance
		claim *corev1.PersistentVolumeClaim
		dv    *cdiv1.DataVolume
		want  string
	}{
		"what its disk goes to is made":                      {vm(drains("a")), vmi(), old, nil, "makes b"},
		"a claim that is not known is not copied":            {vm(drains("a")), vmi(), nil, nil, ""},
		"then the template names it":                         {vm(drains("a")), vmi(), old, destination(), template + "b"},
		"and goes on to":                                     {vm(drains(away.To)), vmi(migratable), old, destination(), ""},
		"also when somebody deletes it":                      {vm(drains(away.To)), vmi(migratable), old, nil, ""},
		"one that is on its way out is waited for":           {vm(drains("a")), vmi(), old, destination(going), ""},
		"one that somebody else has made is not written to":  {vm(drains("a")), vmi(), old, destination(foreign), ""},
		"the owner does not let them":                        {vm(wants("a")), vmi(), old, nil, ""},
		"the owner wants them elsewhere":                     {vm(drains("c")), vmi(), old, nil, ""},
		"something else keeps the guest":                     {vm(drains("a")), vmi(has("LiveMigratable", "InterfaceNotLiveMigratable")), old, nil, ""},
		"the guest is to be stopped":                         {vm(drains("a"), stops), vmi(), old, nil, ""},
		"the VMI is marked for another node":                 {vm(drains("a")), vmi(func(vmi *v1.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = "z" }), old, nil, ""},
		"nobody drains":                                      {vm(drains("a")), vmi(uncordoned), nil, nil, ""},
		"it is taken back before the template is changed":    {vm(drains("a")), vmi(uncordoned), nil, destination(), "deletes b"},
		"it is taken back":                                   {vm(drains(away.To)), vmi(uncordoned), nil, destination(), template + "a"},
		"the owner takes it back":                            {vm(drains(away.To), forbids), vmi(), old, destination(), template + "a"},
		"the guest is stopped":                               {vm(drains(away.To), stops), vmi(), old, destination(), template + "a"},
		"it is taken back while the guest is on its way":     {vm(drains(away.To)), vmi(uncordoned, inFlight, copies(move)), nil, destination(), ""},
		"the template is changed while it is on its way":     {vm(drains("a")), vmi(inFlight, copies(move)), old, destination(), ""},
		"what the VMI still lists stays":                     {vm(drains("a")), vmi(uncordoned, copies(move)), nil, destination(), ""},
		"what is deleted already":                            {vm(drains("a")), vmi(uncordoned), nil, destination(going), ""},
		"what somebody else has made":                        {vm(drains("a")), vmi(uncordoned), nil, destination(foreign), ""},
		"the guest has ended":                                {vm(drains(away.To)), newTestVMI(crashed, drainedFrom("a"), copies(move)), old, destination(), template + "a"},
		"it has ended while it was on its way":               {vm(drains(away.To)), newTestVMI(crashed, drainedFrom("a"), copies(move), inFlight), old, destination(), template + "a"},
		"it has ended, and the template is as it was":        {vm(drains("a")), newTestVMI(crashed, drainedFrom("a"), copies(move)), old, destination(), "deletes b"},
		"the VMI goes, and the template is as it was":        {vm(drains("a")), vmi(vmiDeleting, copies(move)), old, destination(), "deletes b"},
		"the VM goes with its VMI":                           {vm(drains(away.To), deleting()), vmi(vmiDeleting, copies(move)), old, destination(), "deletes b"},
		"the VM goes, and its VMI is not asked to yet":       {vm(drains(away.To), deleting()), vmi(copies(move)), old, destination(), ""},
		"the VM goes while its guest is on its way":          {vm(drains(away.To), deleting()), vmi(vmiDeleting, inFlight), old, destination(), ""},
		"a VMI that is not the VM's":                         {vm(drains("a")), vmi(ofAnother), old, destination(), ""},
		"a VMI that has lost its VM is owned by it first":    {vm(drains("a")), vmi(ownerless), old, nil, ""},
		"one that has arrived names what it has left behind": {vm(drains(away.To)), newTestVMI(running, drainedFrom(away.To), uncordoned), nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{VM: test.vm, VMI: test.vmi, Now: now, DrainDisks: []DrainDisk{{Move: move, Claim: test.claim, DataVolume: test.dv}}}
			p := decide(o)
			if got := drainOf(p); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if len(p.CreateDestinations) > 0 && p.Delete {
				t.Error("it makes claims for a guest that it stops")
			}
		})
	}
}

// TestEachDiskIsLookedAt: keeping one disk's destination must not keep another's.
func TestEachDiskIsLookedAt(t *testing.T) {
	move := volumemigration.Move{Volume: away.Volume, From: "a", To: away.To}
	o := Observed{VM: newVM(v1.RunStrategyAlways, drains("a")), VMI: newTestVMI(running, drainedFrom("a"), uncordoned), Now: now, DrainDisks: []DrainDisk{
		{Move: move}, {Move: move, DataVolume: destination()},
	}}
	if got := drainOf(decide(o)); got != "deletes b" {
		t.Errorf("it %q", got)
	}
}

// TestADrainGoesByTheAPIServersWord: a cache may show a VMI from before it came to its node.
func TestADrainGoesByTheAPIServersWord(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{}
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		edit vmiEdit
		dv   *cdiv1.DataVolume
		want Question
	}{
		"to name other claims":       {newVM(v1.RunStrategyManual, drains("a")), nil, destination(), NeedVMI},
		"to name the old ones again": {newVM(v1.RunStrategyManual, drains(away.To)), uncordoned, destination(), NeedVMI},
		"to delete":                  {newVM(v1.RunStrategyManual, drains("a")), uncordoned, destination(), NeedVMI},
		"not to make claims":         {newVM(v1.RunStrategyManual, drains("a")), nil, nil, ""},
		"not when all is as it was":  {newVM(v1.RunStrategyManual, drains("a")), uncordoned, nil, ""},
	} {
		vmi := newTestVMI(running, drainedFrom("a"))
		if test.edit != nil {
			test.edit(vmi)
		}
		p := Decide(Observed{VM: test.vm, VMI: vmi, VMConfirmed: true, Now: now, Destinations: claims(away.To), DrainDisks: []DrainDisk{{Move: away, Claim: old, DataVolume: test.dv}}})
		if p.Needs != test.want || len(p.DeleteDestinations) > 0 {
			t.Errorf("%s: it asks for %q, and deletes %v", name, p.Needs, p.DeleteDestinations)
		}
	}
}

// TestAllDisksAreMovedOrNone: the template must change only when there is a claim for each of them.
func TestAllDisksAreMovedOrNone(t *testing.T) {
	second := func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "z"}}})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: "data"})
	}
	vm, vmi := newVM(v1.RunStrategyAlways, drains("a")), newTestVMI(running, drainedFrom("a"))
	second(&vm.Spec.Template.Spec)
	second(&vmi.Spec)
	vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "z"}})
	old := &corev1.PersistentVolumeClaim{}
	o := Observed{VM: vm, VMI: vmi, Now: now, DrainDisks: []DrainDisk{{Move: away, Claim: old, DataVolume: destination()}}}
	if p := decide(o); drainOf(p) != "" {
		t.Errorf("with one disk that nothing is known of: %s", drainOf(p))
	}
	other := volumemigration.MovesOffNode(vmi)[1]
	o.DrainDisks = append(o.DrainDisks, DrainDisk{Move: other, Claim: old})
	p := decide(o)
	if len(p.CreateDestinations) != 1 || p.CreateDestinations[0].Name != other.To || p.Needs != "" {
		t.Fatalf("with one claim of two: %s", drainOf(p))
	}
	o.DrainDisks[1].DataVolume = p.CreateDestinations[0]
	p = decide(o)
	if p.Needs != NeedTemplate || !away.Names(&p.VM.Spec.Template.Spec) || !other.Names(&p.VM.Spec.Template.Spec) {
		t.Errorf("with both: %s", drainOf(p))
	}
}

// TestAClaimGoesWithTheVMAsTheOldOneDoes: only a claim in place of the VM's own DataVolume goes with the VM.
func TestAClaimGoesWithTheVMAsTheOldOneDoes(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways, drains("disk"), func(vm *v1.VirtualMachine) {
		annotations := vm.Annotations
		withDisk(vm)
		vm.Annotations = annotations
	})
	vmi := newTestVMI(running, drainedFrom("disk"))
	for name, test := range map[string]struct {
		dv   DataVolume
		want bool
	}{
		"the VM's DataVolume":         {disk(cdiv1.Succeeded), true},
		"somebody else's":             {disk(cdiv1.Succeeded, owned()), false},
		"a claim without one":         {DataVolume{Name: "disk", Claim: claimOf()}, false},
		"one that was seen elsewhere": {DataVolume{Name: "other", Object: disk(cdiv1.Succeeded).Object}, false},
	} {
		o := Observed{VM: vm, VMI: vmi, Now: now, DataVolumes: []DataVolume{test.dv},
			DrainDisks: []DrainDisk{{Move: volumemigration.MovesOffNode(vmi)[0], Claim: &corev1.PersistentVolumeClaim{}}}}
		p := decide(o)
		if len(p.CreateDestinations) != 1 || metav1.IsControlledBy(p.CreateDestinations[0], vm) != test.want {
			t.Errorf("%s: made is %+v", name, p.CreateDestinations)
		}
	}
}
