package volumemigration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
)

// pluggedIn sets the phase of a hotplugged volume in the status of a VMI.
func pluggedIn(volume, claim string, phase v1.VolumePhase) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: volume, Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp-1"}, Size: 5,
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: claim},
		})
	}
}

// alone is a VMI with volumes that its VM's template does not have.
func alone(names string) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{hotplugspec.EphemeralAnnotation: names}
	}
}

func TestWhichPluggedDisksMigrate(t *testing.T) {
	const out = "volume root can't be migrated: it is not plugged in, and is copied as soon as its phase is Ready"
	unplugged := func(vmi *v1.VirtualMachineInstance) {
		pluggedIn("root", "a", v1.VolumeReady)(vmi)
		vmi.Status.VolumeStatus[0].HotplugVolume = nil
	}
	unknown := func(vmi *v1.VirtualMachineInstance) {
		pluggedIn("root", "a", v1.VolumeReady)(vmi)
		vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo = nil
	}
	ready := pluggedIn("root", "a", v1.VolumeReady)
	for name, test := range map[string]struct {
		edits []func(*v1.VirtualMachineInstance)
		to    *v1.VirtualMachineInstanceSpec
		want  string
	}{
		"one that the guest has":            {[]func(*v1.VirtualMachineInstance){ready}, spec(plugged(pvc("c")), dv("b")), "root from a to c"},
		"with one that was there":           {[]func(*v1.VirtualMachineInstance){ready}, spec(plugged(pvc("c")), dv("d")), "root from a to c, data from b to d"},
		"the same claim":                    {nil, spec(plugged(pvc("a")), dv("b")), ""},
		"one that is not in the status":     {nil, spec(plugged(pvc("c")), dv("b")), out},
		"one that comes":                    {[]func(*v1.VirtualMachineInstance){pluggedIn("root", "a", v1.HotplugVolumeAttachedToNode)}, spec(plugged(pvc("c")), dv("d")), out},
		"one that goes":                     {[]func(*v1.VirtualMachineInstance){pluggedIn("root", "a", v1.HotplugVolumeDetaching)}, spec(plugged(pvc("c")), dv("b")), out},
		"one whose name has another claim":  {[]func(*v1.VirtualMachineInstance){pluggedIn("root", "z", v1.VolumeReady)}, spec(plugged(pvc("c")), dv("b")), out},
		"another one is there":              {[]func(*v1.VirtualMachineInstance){pluggedIn("data", "a", v1.VolumeReady)}, spec(plugged(pvc("c")), dv("b")), out},
		"a status of none that was plugged": {[]func(*v1.VirtualMachineInstance){unplugged}, spec(plugged(pvc("c")), dv("b")), out},
		"a status without a claim":          {[]func(*v1.VirtualMachineInstance){unknown}, spec(plugged(pvc("c")), dv("b")), out},
		"another one was put in alone":      {[]func(*v1.VirtualMachineInstance){ready, alone(`["data"]`)}, spec(plugged(pvc("c")), dv("b")), "root from a to c"},
		"one that was put into the VMI alone": {[]func(*v1.VirtualMachineInstance){ready, alone(`["root"]`)}, spec(plugged(pvc("c")), dv("b")),
			"volume root can't be migrated: it was plugged into the VMI alone, and its VM's template names another claim by the same name"},
		"to a claim that another is on": {[]func(*v1.VirtualMachineInstance){ready}, spec(plugged(pvc("b")), dv("b")), "volume root can't be migrated: volume data is on the claim b"},
	} {
		t.Run(name, func(t *testing.T) {
			moves, refusals := Compare(leaving(plugged(pvc("a")), dv("b"), test.edits...), test.to)
			if got := Text(moves) + strings.Join(refusals, "; "); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestWhichPluggedDisksWouldBeExchanged(t *testing.T) {
	const mixed = "it can't become hotpluggable, or stop being so, with the same change"
	for name, test := range map[string]struct {
		before, after v1.VolumeSource
		edit          func(*v1.Disk)
		want          string
	}{
		"another claim":                 {before: plugged(pvc("a")), after: plugged(pvc("c"))},
		"another claim of a cdrom":      {plugged(pvc("a")), plugged(pvc("c")), func(d *v1.Disk) { d.CDRom = &v1.CDRomTarget{} }, "it is in a cdrom"},
		"the same claim of a cdrom":     {plugged(pvc("a")), plugged(pvc("a")), func(d *v1.Disk) { d.CDRom = &v1.CDRomTarget{} }, ""},
		"one that was in the machine":   {before: pvc("a"), after: plugged(pvc("c")), want: mixed},
		"one that will be":              {before: plugged(pvc("a")), after: pvc("c"), want: mixed},
		"one that is not hotpluggable":  {pvc("a"), pvc("c"), func(d *v1.Disk) { d.CDRom = &v1.CDRomTarget{} }, ""},
		"one in the place of something": {before: empty, after: plugged(pvc("c"))},
	} {
		t.Run(name, func(t *testing.T) {
			after := spec(dv("d"), test.after)
			if test.edit != nil {
				test.edit(&after.Domain.Devices.Disks[1])
			}
			var want []Exchange
			if test.want != "" {
				want = []Exchange{{Index: 1, Why: test.want}}
			}
			if diff := cmp.Diff(want, Exchanges(spec(dv("b"), test.before), after)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := Exchanges(&v1.VirtualMachineInstanceSpec{}, spec(plugged(pvc("a")), dv("b"))); got != nil {
		t.Errorf("a new volume is among them: %v", got)
	}
	both := Exchanges(spec(pvc("a"), plugged(pvc("b"))), spec(plugged(pvc("c")), pvc("d")))
	if len(both) != 2 || both[0].Index != 0 || both[1].Index != 1 {
		t.Errorf("of two there are %v", both)
	}
}

// TestNothingIsExchangedThatIsToBeCopied: while a disk waits to be copied, the guest must not get another one.
func TestNothingIsExchangedThatIsToBeCopied(t *testing.T) {
	template := spec(plugged(pvc("c")), dv("d"))
	was := template.DeepCopy()
	for name, test := range map[string]struct {
		vmi         *v1.VirtualMachineInstance
		byMigration bool
		unfinished  []Move
		want        *v1.VirtualMachineInstanceSpec
	}{
		"changes are migrations":       {leaving(plugged(pvc("a")), dv("b")), true, nil, spec(plugged(pvc("a")), dv("d"))},
		"changes are exchanges":        {leaving(plugged(pvc("a")), dv("b")), false, nil, template},
		"a migration is not completed": {leaving(plugged(pvc("a")), dv("b")), false, []Move{rootMove}, spec(plugged(pvc("a")), dv("d"))},
		"one of another claim is not":  {leaving(plugged(pvc("a")), dv("b")), false, []Move{{"root", "a", "x"}}, template},
		"it is there":                  {leaving(plugged(pvc("c")), dv("b")), true, nil, template},
		"the guest does not have it":   {&v1.VirtualMachineInstance{}, true, nil, template},
		"it is in the machine":         {leaving(pvc("a"), dv("b")), true, nil, template},
		"it was put into the VMI alone": {leaving(plugged(pvc("a")), dv("b"), alone(`["root"]`)), true, nil, func() *v1.VirtualMachineInstanceSpec {
			s := template.DeepCopy()
			s.Volumes = s.Volumes[1:]
			return s
		}()},
		"changes are exchanges, and it was put in alone": {leaving(plugged(pvc("a")), dv("b"), alone(`["root"]`)), false, nil, template},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, TemplateForPlugging(test.vmi, template, test.byMigration, test.unfinished)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(was, template); diff != "" {
		t.Errorf("the VM's template has changed:\n%s", diff)
	}
	stays := leaving(plugged(pvc("a")), dv("b"))
	will := spec(pvc("c"), dv("d"))
	if diff := cmp.Diff(will, TemplateForPlugging(stays, will, true, nil)); diff != "" {
		t.Errorf("what stops being hotpluggable is held (-want +got):\n%s", diff)
	}
}

// TestAPluggedDiskArrives: spec and status must name the claim of the copy.
func TestAPluggedDiskArrives(t *testing.T) {
	vmi := leaving(plugged(pvc("a")), dv("b"), pluggedIn("root", "a", v1.VolumeReady), reported("data", "b", once))
	vmi.Status.MigratedVolumes = Write([]Move{rootMove, dataMove})
	was := vmi.DeepCopy()
	target := Target(vmi)
	if diff := cmp.Diff(spec(plugged(pvc("c")), dv("d")), &target.Spec); diff != "" {
		t.Errorf("the target differs (-want +got):\n%s", diff)
	}
	want := vmi.DeepCopy().Status.VolumeStatus
	want[0].PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: "c"}
	if diff := cmp.Diff(want, target.Status.VolumeStatus); diff != "" {
		t.Errorf("the target's volumes differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(was, vmi); diff != "" {
		t.Errorf("the VMI itself has changed:\n%s", diff)
	}
	if Target(target) != target {
		t.Error("the target has a target")
	}
	for name, edit := range map[string]func(*v1.VolumeStatus){
		"another claim": func(s *v1.VolumeStatus) { s.PersistentVolumeClaimInfo.ClaimName = "z" },
		"no claim":      func(s *v1.VolumeStatus) { s.PersistentVolumeClaimInfo = nil },
		"another name":  func(s *v1.VolumeStatus) { s.Name = "z" },
	} {
		other := vmi.DeepCopy()
		edit(&other.Status.VolumeStatus[0])
		if diff := cmp.Diff(other.Status.VolumeStatus, Target(other).Status.VolumeStatus); diff != "" {
			t.Errorf("a status of %s changes (-want +got):\n%s", name, diff)
		}
	}
	hot := leaving(pvc("a"), dv("b"))
	hot.Spec.Volumes[1].DataVolume.Hotpluggable = true
	if got := Arrive(&hot.Spec, []Move{dataMove}); !got.Volumes[1].DataVolume.Hotpluggable || got.Volumes[1].DataVolume.Name != "d" {
		t.Errorf("it arrives as %+v", got.Volumes[1].DataVolume)
	}
}
