package hotplugspec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// machineSpec has a root disk on virtio and an empty CD drive.
func machineSpec() *v1.VirtualMachineInstanceSpec {
	spec := &v1.VirtualMachineInstanceSpec{}
	spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root-disk"}}}}
	spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		{Name: "drive", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}},
	}
	return spec
}

func options(name, claim string, disk v1.DiskDevice) *v1.AddVolumeOptions {
	return &v1.AddVolumeOptions{
		Name: name, Disk: &v1.Disk{DiskDevice: disk},
		VolumeSource: &v1.HotplugVolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim}},
	}
}

func on(bus v1.DiskBus) v1.DiskDevice { return v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}} }

// KubeVirt's clients match the text before the colon.
func TestAClaimIsNotAddedTwice(t *testing.T) {
	const want = "Unable to add volume source [root-disk] because it already exists: volume [root] is on that PVC"
	if err := Add(machineSpec(), options("a", "root-disk", on(""))); err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

func TestAdd(t *testing.T) {
	for name, test := range map[string]struct {
		spec func(*v1.VirtualMachineInstanceSpec)
		o    *v1.AddVolumeOptions
		// want is the refusal, or empty if the disk gets the bus.
		want string
		bus  v1.DiskBus
	}{
		"a disk of no bus is on scsi":     {o: options("a", "a", v1.DiskDevice{}), bus: v1.DiskBusSCSI},
		"a disk on scsi":                  {o: options("a", "a", on(v1.DiskBusSCSI)), bus: v1.DiskBusSCSI},
		"a disk on virtio":                {o: options("a", "a", on(v1.DiskBusVirtio)), bus: v1.DiskBusVirtio},
		"a lun":                           {o: options("a", "a", v1.DiskDevice{LUN: &v1.LunTarget{}}), bus: v1.DiskBusSCSI},
		"a medium into the drive there":   {o: options("drive", "a", v1.DiskDevice{})},
		"the name is a volume's":          {o: options("root", "a", on("")), want: "volume with that name already exists"},
		"a disk on a bus without hotplug": {o: options("a", "a", on(v1.DiskBusSATA)), want: "a hotplugged disk must be on the bus scsi or virtio, not sata"},
		"a lun on virtio": {
			o:    options("a", "a", v1.DiskDevice{LUN: &v1.LunTarget{Bus: v1.DiskBusVirtio}}),
			want: "a hotplugged lun must be on the bus scsi, not virtio",
		},
		"a new drive": {
			o:    options("a", "a", v1.DiskDevice{CDRom: &v1.CDRomTarget{}}),
			want: "only a medium can be put into a cdrom, whose drive must be among the machine's disks",
		},
		"the name is that of the first disk": {
			spec: func(s *v1.VirtualMachineInstanceSpec) { s.Volumes = nil },
			o:    options("root", "a", on("")), want: "disk with that name already exists",
		},
		"a medium into a drive that is the first disk": {
			spec: func(s *v1.VirtualMachineInstanceSpec) { slices.Reverse(s.Domain.Devices.Disks) },
			o:    options("drive", "a", v1.DiskDevice{}),
		},
		"a machine without hotplug": {
			spec: func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.DisableHotplug = true },
			o:    options("a", "a", on("")), want: "spec.domain.devices.disableHotplug is set",
		},
		"virtio is full": {
			spec: func(s *v1.VirtualMachineInstanceSpec) { fill(t, s, v1.DiskBusVirtio, 7) },
			o:    options("a", "a", on(v1.DiskBusVirtio)),
			want: "the bus virtio is full: this machine takes at most 7 disks on it beside those that it starts with",
		},
		"scsi takes sixty-five": {
			spec: func(s *v1.VirtualMachineInstanceSpec) { fill(t, s, v1.DiskBusSCSI, 64) },
			o:    options("a", "a", on(v1.DiskBusSCSI)), bus: v1.DiskBusSCSI,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := machineSpec()
			if test.spec != nil {
				test.spec(spec)
			}
			before := spec.DeepCopy()
			err := Add(spec, test.o)
			if test.want != "" {
				if want := fmt.Sprintf("Unable to add volume [%s] because %s", test.o.Name, test.want); err == nil || err.Error() != want {
					t.Errorf("it says %v, want %s", err, want)
				}
				if len(spec.Volumes) != len(before.Volumes) || len(spec.Domain.Devices.Disks) != len(before.Domain.Devices.Disks) {
					t.Error("a refused addition has changed the spec")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			added(t, spec, test.o.Name, test.bus)
			if errs := Judge(spec, field.NewPath("spec")); len(errs) > 0 {
				t.Errorf("what was added is refused: %v", errs)
			}
			if err := Remove(spec, test.o.Name); err != nil || len(spec.Volumes) != len(before.Volumes) ||
				len(spec.Domain.Devices.Disks) != len(before.Domain.Devices.Disks) {
				t.Errorf("taking it out again (%v) leaves %+v", err, spec)
			}
		})
	}
}

// added fails if the spec lacks the volume, or its disk is on another bus; a medium's drive may be on any.
func added(t *testing.T, spec *v1.VirtualMachineInstanceSpec, name string, bus v1.DiskBus) {
	t.Helper()
	if v := volumeclaim.Named(spec.Volumes, name); v == nil || !v.DataVolume.Hotpluggable {
		t.Errorf("the volume is %+v", v)
	}
	d := spec.Domain.Devices.Disks[diskAt(spec, name)]
	if bus != "" && (d.Disk == nil || d.Disk.Bus != bus) && (d.LUN == nil || d.LUN.Bus != bus) {
		t.Errorf("the disk is %+v", d)
	}
}

func fill(t *testing.T, spec *v1.VirtualMachineInstanceSpec, bus v1.DiskBus, count int) {
	t.Helper()
	for i := range count {
		name := fmt.Sprintf("filler-%d", i)
		if err := Add(spec, options(name, name, on(bus))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemoveRefuses(t *testing.T) {
	for volume, want := range map[string]string{"none": "it does not exist", "root": "it is not hotpluggable"} {
		err := Remove(machineSpec(), volume)
		if want := fmt.Sprintf("Unable to remove volume [%s] because %s", volume, want); err == nil || err.Error() != want {
			t.Errorf("%s: it says %v, want %s", volume, err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	first := &v1.VirtualMachineInstanceSpec{}
	if err := Add(first, options("a", "a", on(""))); err != nil {
		t.Fatal(err)
	}
	if errs := Judge(first, field.NewPath("spec")); len(errs) > 0 {
		t.Errorf("a hotpluggable volume with the first disk: %v", errs)
	}
	spec := machineSpec()
	spec.Volumes = append(spec.Volumes,
		v1.Volume{Name: "alone", VolumeSource: source(options("", "x", on("")).VolumeSource)},
		v1.Volume{Name: "sata", VolumeSource: source(options("", "y", on("")).VolumeSource)},
		v1.Volume{Name: "usb", VolumeSource: source(options("", "z", on("")).VolumeSource)})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
		v1.Disk{Name: "sata", DiskDevice: on(v1.DiskBusSATA)}, v1.Disk{Name: "usb", DiskDevice: on(v1.DiskBusUSB)})
	want := []string{
		"spec.volumes[1]: Forbidden: a hotpluggable volume needs a disk of its name",
		"spec.domain.devices.disks[2]: Forbidden: a hotplugged disk must be on the bus scsi or virtio, not sata",
		"spec.domain.devices.disks[3]: Forbidden: a hotplugged disk must be on the bus scsi or virtio, not usb",
	}
	var got []string
	for _, err := range Judge(spec, field.NewPath("spec")) {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("errors:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFollow changes template and VMI in random order. The VMI must end up with the last requested volumes, and then
// stay.
func TestFollow(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		template := machineSpec()
		vmi := &v1.VirtualMachineInstance{Spec: *machineSpec()}
		names := []string{"a", "b", "c"}
		asked := map[string]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0: // addvolume --persist
				if Add(template, options(name, "claim-"+name, on(""))) == nil {
					asked[name] = true
				}
			case 1: // removevolume --persist
				if Remove(template, name) == nil {
					drift := ReadDrift(vmi.Annotations)
					asked[name] = drift.Added(name) && volumeclaim.Named(vmi.Spec.Volumes, name) != nil
				}
			case 2: // addvolume
				if Add(&vmi.Spec, options(name, "claim-"+name, on(""))) == nil {
					NoteAdded(vmi, name)
					asked[name] = true
				}
			case 3: // removevolume
				if Remove(&vmi.Spec, name) == nil {
					NoteRemoved(vmi, name)
					asked[name] = false
				}
			}
			SyncTemplate(vmi, template)
			if SyncTemplate(vmi, template) {
				t.Fatalf("following twice changes the VMI twice: %+v", vmi)
			}
		}
		for _, name := range names {
			if has := volumeclaim.Named(vmi.Spec.Volumes, name) != nil; has != asked[name] {
				t.Fatalf("volume %s is in the VMI: %v, asked for: %v; annotations %v, template %+v",
					name, has, asked[name], vmi.Annotations, template.Volumes)
			}
		}
	})
}

func TestAVolumeOnAnotherClaimGoesBeforeItComes(t *testing.T) {
	template := machineSpec()
	vmi := &v1.VirtualMachineInstance{Spec: *machineSpec()}
	for spec, claim := range map[*v1.VirtualMachineInstanceSpec]string{template: "new", &vmi.Spec: "old"} {
		if err := Add(spec, options("a", claim, on(""))); err != nil {
			t.Fatal(err)
		}
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "a", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"},
	}}
	if !SyncTemplate(vmi, template) || volumeclaim.Named(vmi.Spec.Volumes, "a") != nil {
		t.Fatalf("while the old one is in the guest, the VMI has %+v", vmi.Spec.Volumes)
	}
	vmi.Status.VolumeStatus = nil
	if !SyncTemplate(vmi, template) || volumeclaim.Disk(&volumeclaim.Named(vmi.Spec.Volumes, "a").VolumeSource) != "new" {
		t.Fatalf("after that, the VMI has %+v", vmi.Spec.Volumes)
	}
}

func TestLastingIsWhatNeedsARestart(t *testing.T) {
	plain, plugged := machineSpec(), machineSpec()
	for _, name := range []string{"a", "drive"} {
		if err := Add(plugged, options(name, name, v1.DiskDevice{})); err != nil {
			t.Fatal(err)
		}
	}
	for name, spec := range map[string]*v1.VirtualMachineInstanceSpec{"plain": plain, "plugged": plugged} {
		if diff := cmp.Diff(plain, Lasting(spec)); diff != "" {
			t.Errorf("%s: what lasts is not the spec without what is plugged:\n%s", name, diff)
		}
	}
	only := &v1.VirtualMachineInstanceSpec{}
	if err := Add(only, options("a", "a", on(""))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&v1.VirtualMachineInstanceSpec{}, Lasting(only)); diff != "" {
		t.Errorf("a spec that has nothing but what is plugged:\n%s", diff)
	}
}

// hot is a hotpluggable volume on the claim of its name.
func hot(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true}}}
}

func scsi(name string) v1.Disk { return v1.Disk{Name: name, DiskDevice: on(v1.DiskBusSCSI)} }

func drive(name string) v1.Disk {
	return v1.Disk{Name: name, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}}
}

func specOf(disks []v1.Disk, volumes ...v1.Volume) v1.VirtualMachineInstanceSpec {
	spec := v1.VirtualMachineInstanceSpec{Volumes: volumes}
	spec.Domain.Devices.Disks = disks
	return spec
}

func TestWhatAVMITakesOverFromItsTemplate(t *testing.T) {
	status := func(name, claim string, hotplugged bool) v1.VolumeStatus {
		s := v1.VolumeStatus{Name: name, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: claim}}
		if hotplugged {
			s.HotplugVolume = &v1.HotplugVolumeStatus{}
		}
		return s
	}
	for name, test := range map[string]struct {
		template, vmi  v1.VirtualMachineInstanceSpec
		status         []v1.VolumeStatus
		volumes, disks string
	}{
		"a volume whose disk is the template's first": {
			template: specOf([]v1.Disk{scsi("a")}, hot("a")), volumes: "a", disks: "a"},
		"a volume without a disk is left out, and the next is not": {
			template: specOf([]v1.Disk{scsi("b")}, hot("a"), hot("b")), volumes: "b", disks: "b"},
		"a volume that the VMI has a disk for, which is the first, and no drive": {
			template: specOf([]v1.Disk{scsi("a"), scsi("b")}, hot("a"), hot("b")), vmi: specOf([]v1.Disk{scsi("a")}), volumes: "b", disks: "a b"},
		"a medium for the drive that the VMI has": {
			template: specOf([]v1.Disk{drive("cd")}, hot("cd")), vmi: specOf([]v1.Disk{drive("cd")}), volumes: "cd", disks: "cd"},
		"a drive needs a restart, and what comes after it does not": {
			template: specOf([]v1.Disk{drive("cd"), scsi("b")}, hot("cd"), hot("b")), volumes: "b", disks: "b"},
		"another volume is on its way out": {
			template: specOf([]v1.Disk{scsi("a")}, hot("a")), status: []v1.VolumeStatus{status("b", "old", true)}, volumes: "a", disks: "a"},
		"what the machine began with is not on its way out": {
			template: specOf([]v1.Disk{scsi("a")}, hot("a")), status: []v1.VolumeStatus{status("a", "old", false)}, volumes: "a", disks: "a"},
		"the same volume on another claim is on its way out": {
			template: specOf([]v1.Disk{scsi("a")}, hot("a")), status: []v1.VolumeStatus{status("b", "b", true), status("a", "old", true)}},
		"the same volume is coming back": {
			template: specOf([]v1.Disk{scsi("a")}, hot("a")), status: []v1.VolumeStatus{status("a", "a", true)}, volumes: "a", disks: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{Spec: test.vmi}
			vmi.Status.VolumeStatus = test.status
			SyncTemplate(vmi, &test.template)
			var volumes, disks []string
			for _, v := range vmi.Spec.Volumes {
				volumes = append(volumes, v.Name)
			}
			for _, d := range vmi.Spec.Domain.Devices.Disks {
				disks = append(disks, d.Name)
			}
			if got := strings.Join(volumes, " "); got != test.volumes {
				t.Errorf("it has the volumes %q, want %q", got, test.volumes)
			}
			if got := strings.Join(disks, " "); got != test.disks {
				t.Errorf("it has the disks %q, want %q", got, test.disks)
			}
		})
	}
}

func TestWhatIsNotedOfAVMIsOwnChanges(t *testing.T) {
	add := func(name string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) { NoteAdded(vmi, name) }
	}
	remove := func(name string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) { NoteRemoved(vmi, name) }
	}
	for name, test := range map[string]struct {
		steps      []func(*v1.VirtualMachineInstance)
		added, out string
	}{
		"two are added":                            {[]func(*v1.VirtualMachineInstance){add("a"), add("b")}, `["a","b"]`, ""},
		"one is added twice":                       {[]func(*v1.VirtualMachineInstance){add("a"), add("a")}, `["a"]`, ""},
		"two are removed":                          {[]func(*v1.VirtualMachineInstance){remove("a"), remove("b")}, "", `["a","b"]`},
		"one is removed twice":                     {[]func(*v1.VirtualMachineInstance){remove("a"), remove("a")}, "", `["a"]`},
		"one of two that were removed comes again": {[]func(*v1.VirtualMachineInstance){remove("a"), remove("b"), add("a")}, `["a"]`, `["b"]`},
		"one of two that were added goes again":    {[]func(*v1.VirtualMachineInstance){add("a"), add("b"), remove("a")}, `["b"]`, ""},
	} {
		vmi := &v1.VirtualMachineInstance{}
		for _, step := range test.steps {
			step(vmi)
		}
		if added, out := vmi.Annotations[EphemeralAnnotation], vmi.Annotations[RemovedAnnotation]; added != test.added || out != test.out {
			t.Errorf("%s: added %s, removed %s; want %s, %s", name, added, out, test.added, test.out)
		}
	}
}

// The note of a volume that only the VMI has must end when the volume is gone, or the template has it.
func TestWhatIsNoDifferenceAnyMoreIsForgotten(t *testing.T) {
	fixed := hot("d")
	fixed.DataVolume.Hotpluggable = false
	template := specOf([]v1.Disk{scsi("c"), scsi("d")}, hot("c"), fixed)
	vmi := &v1.VirtualMachineInstance{Spec: specOf([]v1.Disk{scsi("b"), scsi("c"), scsi("d")}, hot("b"), hot("c"), hot("d"))}
	vmi.Annotations = map[string]string{EphemeralAnnotation: `["a","b","c","d"]`, RemovedAnnotation: `["c","x"]`}
	SyncTemplate(vmi, &template)
	if added, out := vmi.Annotations[EphemeralAnnotation], vmi.Annotations[RemovedAnnotation]; added != `["b","d"]` || out != `["c"]` {
		t.Errorf("added alone %s, removed alone %s; want b and d, which the template does not plug, and c, which it has", added, out)
	}
}
