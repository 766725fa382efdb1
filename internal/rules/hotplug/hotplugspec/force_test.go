package hotplugspec

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// removing is a VMI from which volume a was removed, in a phase.
func removing(phase v1.VolumePhase) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{Spec: *machineSpec()}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{
		{Name: "a", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{}}, {Name: "root", Phase: v1.HotplugVolumeDetaching},
	}
	return vmi
}

func TestOnlyWhatIsDetachingIsForced(t *testing.T) {
	for name, test := range map[string]struct {
		volume string
		phase  v1.VolumePhase
		want   string
	}{
		"the guest does not let go":       {"a", v1.HotplugVolumeDetaching, ""},
		"the guest was not asked":         {"a", v1.VolumeReady, "Unable to force out volume [a] because it is not Detaching: remove it first, and force it out if the guest does not release it"},
		"it is out":                       {"a", v1.HotplugVolumeUnMounted, "Unable to force out volume [a] because it is not Detaching: remove it first, and force it out if the guest does not release it"},
		"there is no such volume":         {"b", v1.HotplugVolumeDetaching, "Unable to force out volume [b] because it does not exist"},
		"the guest began with the volume": {"root", v1.HotplugVolumeDetaching, "Unable to force out volume [root] because it does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi, said := removing(test.phase), ""
			if err := NoteForced(vmi, test.volume); err != nil {
				said = err.Error()
			}
			if said != test.want || Forced(vmi, test.volume) != (said == "") {
				t.Errorf("it says %q, and is forced: %v; want %q", said, Forced(vmi, test.volume), test.want)
			}
		})
	}
}

// TestAForcedRemovalForcesNoOther: adding the volume again or removing it again must end the note, even if nobody has
// deleted it.
func TestAForcedRemovalForcesNoOther(t *testing.T) {
	template := machineSpec()
	if err := Add(template, options("a", "claim-a", on(""))); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*v1.VirtualMachineInstance){
		"addvolume":           func(vmi *v1.VirtualMachineInstance) { NoteAdded(vmi, "a") },
		"removevolume":        func(vmi *v1.VirtualMachineInstance) { NoteRemoved(vmi, "a") },
		"the template has it": func(vmi *v1.VirtualMachineInstance) { SyncTemplate(vmi, template) },
		"the template loses it": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec = *template.DeepCopy()
			SyncTemplate(vmi, machineSpec())
		},
		"it is out": func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus[0].Phase = v1.HotplugVolumeUnMounted
			SettleForced(vmi)
			vmi.Status.VolumeStatus[0].Phase = v1.HotplugVolumeDetaching
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := removing(v1.HotplugVolumeDetaching)
			if err := NoteForced(vmi, "a"); err != nil {
				t.Fatal(err)
			}
			SettleForced(vmi)
			if !Forced(vmi, "a") {
				t.Fatal("the note is forgotten while the guest keeps the disk")
			}
			if change(vmi); Forced(vmi, "a") {
				t.Errorf("the annotations are still %v", vmi.Annotations)
			}
		})
	}
}
