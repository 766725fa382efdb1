package vmcontroller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// onClaim puts a spec's volume with its disk on a claim.
func onClaim(spec *v1.VirtualMachineInstanceSpec, claim string) {
	spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim}}}}
	spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
}

// wants makes the VM's template name a claim, to be migrated to.
func wants(claim string) vmEdit {
	return func(vm *v1.VirtualMachine) {
		vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
		onClaim(&vm.Spec.Template.Spec, claim)
	}
}

func afterRestart(vm *v1.VirtualMachine) { vm.Spec.UpdateVolumesStrategy = nil }

var aToB = volumemigration.Move{Volume: "root", From: "a", To: "b"}

func recorded(moves ...volumemigration.Move) vmEdit {
	return func(vm *v1.VirtualMachine) { volumemigration.Record(&vm.Status, moves) }
}

func isOn(claim string) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) { onClaim(&vmi.Spec, claim) }
}

// copies makes the VMI list moves, in the status and the condition.
func copies(moves ...volumemigration.Move) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigratedVolumes = volumemigration.Write(moves)
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceVolumesChange, Status: "True",
			Message: "the disks are copied to other claims by a migration: volumes " + volumemigration.Text(moves)})
	}
}

func inFlight(vmi *v1.VirtualMachineInstance) {
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", TargetNode: "two"}
}

func locked(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Disks[0].CDRom = &v1.CDRomTarget{}
}

func claims(names ...string) map[string]*corev1.PersistentVolumeClaim {
	all := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range names {
		all[name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return all
}

// changed makes the VMI's condition VolumesChange False.
func changed(reason string) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceVolumesChange, Status: corev1.ConditionFalse, Reason: reason,
		})
	}
}

// besides gives the VMI another volume, on a claim with that mode.
func besides(mode corev1.PersistentVolumeAccessMode) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d"}}})
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "d", AccessModes: []corev1.PersistentVolumeAccessMode{mode},
		}})
	}
}

// volumesOf formats a plan's actions about volumes.
func volumesOf(o Observed, p Plan) string {
	var words []string
	if before, after := volumemigration.Recorded(&o.VM.Status), volumemigration.Recorded(&p.VM.Status); volumemigration.Text(before) != volumemigration.Text(after) {
		words = append(words, "records "+volumemigration.Text(after))
	}
	if s := p.Sync; s != nil {
		words = append(words, "copies "+volumemigration.Text(volumemigration.Read(s.Status.MigratedVolumes)))
		if c := condition.Find(s.Status.Conditions, v1.VirtualMachineInstanceVolumesChange); c != nil {
			words = append(words, "VolumesChange "+string(c.Status))
		}
	}
	if p.Create != nil {
		words = append(words, "starts on "+p.Create.Spec.Volumes[0].DataVolume.Name)
	}
	if c := condition.Find(p.VM.Status.Conditions, v1.VirtualMachineRestartRequired); c != nil {
		words = append(words, c.Message)
	}
	if c := condition.Find(p.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired); c != nil {
		words = append(words, "recover "+string(p.VM.Status.PrintableStatus))
	}
	return strings.Join(words, "; ")
}

func TestVolumesThatAreMigrated(t *testing.T) {
	always := v1.RunStrategyAlways
	vm := func(edits ...vmEdit) *v1.VirtualMachine { return newVM(always, edits...) }
	vmi := func(edits ...vmiEdit) *v1.VirtualMachineInstance { return newTestVMI(running, edits...) }
	const names = "these changes take effect when the VM is restarted: spec.template.spec.volumes[root].dataVolume.name"
	const restart = names + ", because it can't be changed while the guest runs"
	const left = "cannot migrate the VM. The volume data is RWO and not included in the migration volumes"
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want string
	}{
		"the template as it was":               {vm(wants("a")), vmi(isOn("a")), ""},
		"another claim is recorded first":      {vm(wants("b")), vmi(isOn("a")), "records root from a to b"},
		"then the VMI hears of it":             {vm(wants("b"), recorded(aToB)), vmi(isOn("a")), "copies root from a to b; VolumesChange True"},
		"it has":                               {vm(wants("b"), recorded(aToB)), vmi(isOn("a"), copies(aToB)), ""},
		"the migration is in flight":           {vm(wants("b"), recorded(aToB)), vmi(isOn("a"), copies(aToB), inFlight), ""},
		"another is wanted meanwhile":          {vm(wants("c"), recorded(aToB)), vmi(isOn("a"), copies(aToB), inFlight), "records root from a to c, root from a to b; copies root from a to b; VolumesChange False"},
		"it is taken back meanwhile":           {vm(wants("a"), recorded(aToB)), vmi(isOn("a"), copies(aToB), inFlight), "copies root from a to b; VolumesChange False"},
		"it is taken back":                     {vm(wants("a"), recorded(aToB)), vmi(isOn("a"), copies(aToB)), "copies ; VolumesChange False"},
		"that stays in the condition":          {vm(wants("a")), vmi(isOn("a"), changed(v1.VirtualMachineInstanceReasonVolumesChangeCancellation)), ""},
		"it is wanted again":                   {vm(wants("b"), recorded(aToB)), vmi(isOn("a"), changed(v1.VirtualMachineInstanceReasonVolumesChangeCancellation)), "copies root from a to b; VolumesChange True"},
		"a claim that does not exist":          {vm(wants("z")), vmi(isOn("a")), "copies ; VolumesChange False"},
		"another does not exist by now":        {vm(wants("z"), recorded(aToB)), vmi(isOn("a"), copies(aToB)), "copies ; VolumesChange False"},
		"one that does not exist was wanted":   {vm(wants("a")), vmi(isOn("a"), changed(vmistatus.ReasonDestinationMissing)), "copies ; VolumesChange False"},
		"it exists by now":                     {vm(wants("b")), vmi(isOn("a"), changed(vmistatus.ReasonDestinationMissing)), "records root from a to b"},
		"that is over":                         {vm(wants("a"), recorded(aToB)), vmi(isOn("a")), "records "},
		"the guest has arrived":                {vm(wants("b"), recorded(aToB)), vmi(isOn("b")), "records "},
		"a migration of memory is in flight":   {vm(wants("b"), recorded(aToB)), vmi(isOn("a"), inFlight), ""},
		"the strategy is another":              {vm(wants("b"), afterRestart), vmi(isOn("a")), restart},
		"the strategy is another by now":       {vm(wants("b"), afterRestart, recorded(aToB)), vmi(isOn("a"), copies(aToB)), "copies ; VolumesChange False; " + restart},
		"a disk that can't be copied":          {vm(wants("b")), vmi(isOn("a"), locked), names + "; volume root can't be migrated: it is in a cdrom"},
		"another disk stays on its node":       {vm(wants("b")), vmi(isOn("a"), besides(corev1.ReadWriteOnce)), left},
		"it was not known to before":           {vm(wants("b"), recorded(aToB)), vmi(isOn("a"), copies(aToB), besides(corev1.ReadWriteOnce)), "copies ; VolumesChange False; " + left},
		"another disk is shared":               {vm(wants("b")), vmi(isOn("a"), besides(corev1.ReadWriteMany)), "records root from a to b"},
		"nothing is to be moved":               {vm(wants("a")), vmi(isOn("a"), besides(corev1.ReadWriteOnce)), ""},
		"the VMI is being deleted":             {vm(wants("b")), vmi(isOn("a"), vmiDeleting), restart},
		"it is being deleted, and was copied":  {vm(wants("b"), recorded(aToB)), vmi(isOn("a"), copies(aToB), vmiDeleting), restart},
		"it has ended before":                  {vm(wants("b"), recorded(aToB)), newTestVMI(succeeded, isOn("a"), copies(aToB)), "recover Stopped"},
		"it has ended after":                   {vm(wants("b"), recorded(aToB)), newTestVMI(succeeded, isOn("b")), "records "},
		"it is gone":                           {vm(wants("b"), recorded(aToB)), nil, "recover Stopped"},
		"it is gone, and the template is back": {vm(wants("a"), recorded(aToB)), nil, "records ; starts on a"},
		"a VM that was off":                    {vm(wants("b")), nil, "starts on b"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{VM: test.vm, VMI: test.vmi, Now: now}
			if test.vmi != nil {
				o.Started = test.vm.Spec.Template.Spec.DeepCopy()
				onClaim(o.Started, "a")
			}
			p := decide(o)
			if p.Needs != "" {
				t.Fatalf("it asks for %s", p.Needs)
			}
			if got := volumesOf(o, p); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestAVolumeMigrationSaysWhatItWaitsFor(t *testing.T) {
	kept := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionFalse, Message: "the disk h is a file on this node",
		})
	}
	for want, vmi := range map[string]*v1.VirtualMachineInstance{
		"volumes root from a to b": newTestVMI(running, isOn("a")),
		"volumes root from a to b. This waits: the disk h is a file on this node": newTestVMI(running, isOn("a"), kept),
	} {
		p := decide(Observed{VM: newVM(v1.RunStrategyAlways, wants("b"), recorded(aToB)), VMI: vmi, Now: now})
		if p.Sync == nil {
			t.Fatal("the VMI is not changed")
		}
		if c := condition.Find(p.Sync.Status.Conditions, v1.VirtualMachineInstanceVolumesChange); c == nil || !strings.HasSuffix(c.Message, want) {
			t.Errorf("the condition is %+v, want the end %q", c, want)
		}
	}
}

// KubeVirt's clients match the first sentence, and the VM is looked at again, since nothing wakes it.
func TestAClaimThatDoesNotExist(t *testing.T) {
	o := Observed{VM: newVM(v1.RunStrategyAlways, wants("z")), VMI: newTestVMI(running, isOn("a")), Now: now}
	p := decide(o)
	c := condition.Find(p.Sync.Status.Conditions, v1.VirtualMachineInstanceVolumesChange)
	if c == nil || c.Reason != "DestinationMissing" || !strings.HasPrefix(c.Message, "One of the destination volumes doesn't exist: PVC ns/z") || p.After != destinationInterval {
		t.Errorf("the condition is %+v, and the next look in %v", c, p.After)
	}
	if p.VM.Status.VolumeUpdateState != nil {
		t.Error("the VM records a copy that can't begin")
	}
}

// hot makes the volume of a spec hotpluggable.
func hot(spec *v1.VirtualMachineInstanceSpec) { spec.Volumes[0].DataVolume.Hotpluggable = true }

// TestPluggedVolumesThatAreMigrated: their disks must be copied like others, and not be exchanged meanwhile.
func TestPluggedVolumesThatAreMigrated(t *testing.T) {
	vm := func(edits ...vmEdit) *v1.VirtualMachine {
		vm := newVM(v1.RunStrategyAlways, edits...)
		hot(&vm.Spec.Template.Spec)
		return vm
	}
	in := func(phase v1.VolumePhase, edits ...vmiEdit) *v1.VirtualMachineInstance {
		vmi := newTestVMI(running, append([]vmiEdit{isOn("a")}, edits...)...)
		hot(&vmi.Spec)
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "root", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{}, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"},
		}}
		return vmi
	}
	const out = "these changes take effect when the VM is restarted: spec.template.spec.volumes; " +
		"volume root can't be migrated: it is not plugged in, and is copied as soon as its phase is Ready"
	for name, test := range map[string]struct {
		vm    *v1.VirtualMachine
		vmi   *v1.VirtualMachineInstance
		want  string
		claim string
	}{
		"the template as it was":            {vm(wants("a")), in(v1.VolumeReady), "", ""},
		"another claim is recorded first":   {vm(wants("b")), in(v1.VolumeReady), "records root from a to b", ""},
		"then the VMI hears of it":          {vm(wants("b"), recorded(aToB)), in(v1.VolumeReady), "copies root from a to b; VolumesChange True", "a"},
		"the migration is in flight":        {vm(wants("b"), recorded(aToB)), in(v1.VolumeReady, copies(aToB), inFlight), "", ""},
		"it is not in the guest yet":        {vm(wants("b")), in(v1.VolumeBound), out, ""},
		"it has left the guest since":       {vm(wants("b"), recorded(aToB)), in(v1.VolumeBound, copies(aToB)), "copies ; VolumesChange False; " + out, "a"},
		"it is taken back":                  {vm(wants("a"), recorded(aToB)), in(v1.VolumeReady, copies(aToB)), "copies ; VolumesChange False", "a"},
		"the strategy is another":           {vm(wants("b"), afterRestart), in(v1.VolumeReady), "copies ", "removed"},
		"a copy was begun, and is not done": {vm(wants("b"), afterRestart, recorded(aToB)), in(v1.VolumeReady), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{VM: test.vm, VMI: test.vmi, Now: now}
			o.Started = test.vm.Spec.Template.Spec.DeepCopy()
			onClaim(o.Started, "a")
			hot(o.Started)
			p := decide(o)
			if got := volumesOf(o, p); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			claim := ""
			switch {
			case p.Sync != nil && len(p.Sync.Spec.Volumes) == 0:
				claim = "removed"
			case p.Sync != nil:
				claim = p.Sync.Spec.Volumes[0].DataVolume.Name
			}
			if claim != test.claim {
				t.Errorf("the VMI comes to the claim %q, want %q", claim, test.claim)
			}
		})
	}
}

// TestARecordGoesByTheAPIServersWord: a cache with no VMI, or an old one, must not make the VM forget it.
func TestARecordGoesByTheAPIServersWord(t *testing.T) {
	for name, vmi := range map[string]*v1.VirtualMachineInstance{"none": nil, "one that has arrived": newTestVMI(running, isOn("a"))} {
		o := Observed{VM: newVM(v1.RunStrategyManual, wants("a"), recorded(aToB)), VMI: vmi, VMConfirmed: true, Now: now}
		if p := Decide(o); p.Needs != NeedVMI {
			t.Errorf("%s: it asks for %q", name, p.Needs)
		}
	}
	still := Observed{VM: newVM(v1.RunStrategyManual, wants("b"), recorded(aToB)), VMI: newTestVMI(running, isOn("a")), VMConfirmed: true, Destinations: claims("b"), Now: now}
	if p := Decide(still); p.Needs != "" {
		t.Errorf("it asks for %s where nothing is forgotten", p.Needs)
	}
	still.Destinations = nil
	if p := Decide(still); p.Needs != NeedDestinations || !slices.Equal(DestinationNames(&still), []string{"b"}) {
		t.Errorf("it asks for %q, the claims %v", p.Needs, DestinationNames(&still))
	}
}

// TestWhatIsKnownOfAMoveIsWrittenOnce: nobody asks for the claims of a move that the VMI has.
func TestWhatIsKnownOfAMoveIsWrittenOnce(t *testing.T) {
	o := Observed{VM: newVM(v1.RunStrategyManual, wants("b"), recorded(aToB)), VMI: newTestVMI(running, isOn("a")), VMConfirmed: true, Destinations: claims("b"), Now: now}
	o.Destinations["b"].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	first := Decide(o)
	if first.Sync == nil || len(first.Sync.Status.MigratedVolumes) != 1 || len(first.Sync.Status.MigratedVolumes[0].DestinationPVCInfo.AccessModes) != 1 {
		t.Fatalf("it becomes %+v", first.Sync)
	}
	o.VM, o.VMI, o.Destinations = first.VM, first.Sync, nil
	if second := Decide(o); second.Sync != nil || second.Needs != "" {
		t.Errorf("it is written again, as %+v, or %q is asked", second.Sync, second.Needs)
	}
}

// TestARequestToStartWaitsForTheRecovery: it must be served when the template is reverted.
func TestARequestToStartWaitsForTheRecovery(t *testing.T) {
	stuck := newVM(v1.RunStrategyManual, wants("b"), recorded(aToB), requests(start))
	p := decide(Observed{VM: stuck, Now: now})
	if p.Create != nil || len(p.VM.Status.StateChangeRequests) != 1 || p.VM.Status.PrintableStatus != v1.VirtualMachineStatusStopped {
		t.Errorf("it becomes %+v, and is %s with %v", p.Create, p.VM.Status.PrintableStatus, p.VM.Status.StateChangeRequests)
	}
	if c := condition.Find(p.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired); c == nil || c.Status != corev1.ConditionTrue ||
		c.Reason != "VolumesNotCopied" || !strings.Contains(c.Message, "root from a to b") {
		t.Errorf("it says %+v", c)
	}
	back := p.VM.DeepCopy()
	onClaim(&back.Spec.Template.Spec, "a")
	if p := decide(Observed{VM: back, Now: now}); p.Create == nil || p.VM.Status.VolumeUpdateState != nil ||
		condition.Find(p.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired) != nil {
		t.Errorf("it is not started: %+v", p.VM.Status)
	}
}

// TestAVMINamesItsClaimAsTheTemplateDoes once it is on it.
func TestAVMINamesItsClaimAsTheTemplateDoes(t *testing.T) {
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "b"}}}
	named := func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Volumes[0].VolumeSource = claim }
	p := decide(Observed{VM: newVM(v1.RunStrategyAlways, wants("b"), named), VMI: newTestVMI(running, isOn("b")), Now: now})
	if p.Sync == nil || p.Sync.Spec.Volumes[0].PersistentVolumeClaim == nil || len(p.Sync.Status.MigratedVolumes) > 0 {
		t.Errorf("it becomes %+v", p.Sync)
	}
	for name, o := range map[string]Observed{
		"while it is migrated":      {VM: newVM(v1.RunStrategyAlways, wants("b"), named), VMI: newTestVMI(running, isOn("b"), inFlight)},
		"where nothing is migrated": {VM: newVM(v1.RunStrategyAlways, wants("b"), named, afterRestart), VMI: newTestVMI(running, isOn("b"))},
		"where it does so already":  {VM: newVM(v1.RunStrategyAlways, wants("b")), VMI: newTestVMI(running, isOn("b"))},
	} {
		o.Now = now
		if p := decide(o); p.Sync != nil {
			t.Errorf("%s: it becomes %+v", name, p.Sync)
		}
	}
}
