package hotplugspec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// machine is a spec with a root disk on virtio and an empty drive for CDs.
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

func TestAdd(t *testing.T) {
	for name, test := range map[string]struct {
		spec func(*v1.VirtualMachineInstanceSpec)
		o    *v1.AddVolumeOptions
		// want is the refusal, or empty and the bus that the disk gets.
		want string
		bus  v1.DiskBus
	}{
		"a disk of no bus is on scsi":     {o: options("a", "a", v1.DiskDevice{}), bus: v1.DiskBusSCSI},
		"a disk on scsi":                  {o: options("a", "a", on(v1.DiskBusSCSI)), bus: v1.DiskBusSCSI},
		"a disk on virtio":                {o: options("a", "a", on(v1.DiskBusVirtio)), bus: v1.DiskBusVirtio},
		"a lun":                           {o: options("a", "a", v1.DiskDevice{LUN: &v1.LunTarget{}}), bus: v1.DiskBusSCSI},
		"a medium into the drive there":   {o: options("drive", "a", v1.DiskDevice{})},
		"the name is a volume's":          {o: options("root", "a", on("")), want: "volume with that name already exists"},
		"the claim is in use here":        {o: options("a", "root-disk", on("")), want: "PVC [root-disk] is already in use by volume [root]"},
		"a disk on a bus without hotplug": {o: options("a", "a", on(v1.DiskBusSATA)), want: "a hotplugged disk must be on the bus scsi or virtio, not sata"},
		"a lun on virtio": {
			o:    options("a", "a", v1.DiskDevice{LUN: &v1.LunTarget{Bus: v1.DiskBusVirtio}}),
			want: "a hotplugged lun must be on the bus scsi, not virtio",
		},
		"a new drive": {
			o:    options("a", "a", v1.DiskDevice{CDRom: &v1.CDRomTarget{}}),
			want: "only a medium can be put into a cdrom, whose drive must be among the machine's disks",
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

// added fails when the spec lacks the volume, or its disk is on another bus; a medium's
// drive may be on any.
func added(t *testing.T, spec *v1.VirtualMachineInstanceSpec, name string, bus v1.DiskBus) {
	t.Helper()
	if v := Find(spec, name); v == nil || !v.DataVolume.Hotpluggable {
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
	spec := machineSpec()
	spec.Volumes = append(spec.Volumes,
		v1.Volume{Name: "alone", VolumeSource: source(options("", "x", on("")).VolumeSource)},
		v1.Volume{Name: "sata", VolumeSource: source(options("", "y", on("")).VolumeSource)})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: "sata", DiskDevice: on(v1.DiskBusSATA)})
	want := []string{
		"spec.volumes[1]: Forbidden: a hotpluggable volume needs a disk of its name",
		"spec.domain.devices.disks[2]: Forbidden: a hotplugged disk must be on the bus scsi or virtio, not sata",
	}
	var got []string
	for _, err := range Judge(spec, field.NewPath("spec")) {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("errors:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFollow: whatever users do to the template and to the VMI alone, the VMI
// ends up with what was asked for last, and is then left alone.
func TestFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
					asked[name] = drift.added(name) && Find(&vmi.Spec, name) != nil
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
			if has := Find(&vmi.Spec, name) != nil; has != asked[name] {
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
	if !SyncTemplate(vmi, template) || Find(&vmi.Spec, "a") != nil {
		t.Fatalf("while the old one is in the guest, the VMI has %+v", vmi.Spec.Volumes)
	}
	vmi.Status.VolumeStatus = nil
	if !SyncTemplate(vmi, template) || volumeclaim.Disk(&Find(&vmi.Spec, "a").VolumeSource) != "new" {
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
	if a, b := Lasting(plain), Lasting(plugged); len(a.Volumes) != len(b.Volumes) || len(a.Domain.Devices.Disks) != len(b.Domain.Devices.Disks) {
		t.Errorf("%+v differs from %+v", a, b)
	}
}
