package snapshot

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
)

func TestOnClaims(t *testing.T) {
	got := OnClaims([]v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}},
		{Name: "b", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "i"}}},
		{Name: "c", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc"}}}},
		{Name: "d", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "below"}}}},
	})
	if !slices.Equal(got, [][2]string{{"a", "dv"}, {"c", "pvc"}}) {
		t.Errorf("the volumes on claims are %v", got)
	}
}

func TestNewDisk(t *testing.T) {
	bound := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	going := bound.DeepCopy()
	going.DeletionTimestamp = then
	filled := &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded}}
	filling := &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress}}
	classes := []Class{{"slow", "csi", false}, {"other", "else", true}, {"fast", "csi", false}}
	preferred := append(slices.Clone(classes), Class{"zz-default", "csi", true}, Class{"another", "csi", false})
	for name, c := range map[string]struct {
		claim             *corev1.PersistentVolumeClaim
		filler            *cdiv1.DataVolume
		driver            string
		classes           []Class
		class, why, waits string
	}{
		"bound":                     {bound, nil, "csi", classes, "fast", "", ""},
		"with a default class":      {bound, filled, "csi", preferred, "zz-default", "", ""},
		"without a claim":           {nil, nil, "", classes, "", "", "the claim c of the volume v does not exist"},
		"with one that goes":        {going, nil, "csi", classes, "", "", "the claim c of the volume v is being deleted"},
		"with one that is filled":   {bound, filling, "csi", classes, "", "", "the DataVolume c of the volume v is not filled yet (phase ImportInProgress)"},
		"with one that waits":       {&corev1.PersistentVolumeClaim{}, nil, "csi", classes, "", "", "the claim c of the volume v is not bound yet"},
		"on a local path":           {bound, nil, "", classes, "", "v (the claim c is on no CSI volume)", ""},
		"of a driver that has none": {bound, nil, "csi", classes[1:2], "", "v (there is no VolumeSnapshotClass for the driver csi of the claim c)", ""},
	} {
		got := NewDisk([2]string{"v", "c"}, c.claim, c.filler, c.driver, c.classes)
		if got.Volume != "v" || got.Class != c.class || got.Why != c.why || got.Waits != c.waits {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// keeping is a VM with a disk and a kept TPM.
func keeping() *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "v1"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}},
	}}}
	vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	return vm
}

func TestTheVMsStateIsKept(t *testing.T) {
	vm := keeping()
	state := stateclaim.ClaimName(stateclaim.Next(vm))
	if got := Kept(vm); !slices.Equal(got, [][2]string{{"a", "dv"}, {"vm/state", state}}) {
		t.Errorf("a snapshot is to keep %v", got)
	}
	vm.Spec.Template.Spec.Domain.Devices.TPM = nil
	if got := Kept(vm); !slices.Equal(got, [][2]string{{"a", "dv"}}) {
		t.Errorf("without a state a snapshot is to keep %v", got)
	}
	// A preference's fields are not in the template.
	vm.Spec.Preference = &v1.PreferenceMatcher{Name: "windows.11"}
	if got := Kept(vm); !slices.Equal(got, [][2]string{{"a", "dv"}, {"vm/state", state}}) {
		t.Errorf("with a preference, by which it may have a state, a snapshot is to keep %v", got)
	}
}

func TestWhoseStateIsKept(t *testing.T) {
	const notIts = "vm/state (the PVC persistent-state-for-vm-hp6cnfmu55, on which the state of VirtualMachine vm is to be kept, belongs to something else: delete it)"
	vm, classes := keeping(), []Class{{"fast", "csi", false}}
	going := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = then }
	foreign := func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }
	unbound := func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }
	for name, c := range map[string]struct {
		edits             []func(*corev1.PersistentVolumeClaim)
		driver            string
		none              bool
		class, why, waits string
	}{
		"the VM's":                          {nil, "csi", false, "fast", "", ""},
		"one that no driver snapshots":      {nil, "", false, "", "vm/state (the claim persistent-state-for-vm-hp6cnfmu55 is on no CSI volume)", ""},
		"one that nothing is on yet":        {[]func(*corev1.PersistentVolumeClaim){unbound}, "", true, "", "", ""},
		"nothing of nobody's":               {[]func(*corev1.PersistentVolumeClaim){unbound, foreign}, "", true, "", "", ""},
		"one that goes":                     {[]func(*corev1.PersistentVolumeClaim){going}, "csi", false, "", "", "the claim persistent-state-for-vm-hp6cnfmu55 of the volume vm/state is being deleted"},
		"one that goes, of nobody's":        {[]func(*corev1.PersistentVolumeClaim){going, foreign}, "csi", false, "", notIts, ""},
		"somebody else's of the VM's name":  {[]func(*corev1.PersistentVolumeClaim){foreign}, "csi", false, "", notIts, ""},
		"one that goes before it is bound":  {[]func(*corev1.PersistentVolumeClaim){unbound, going}, "", false, "", "", "the claim persistent-state-for-vm-hp6cnfmu55 of the volume vm/state is being deleted"},
		"that of another VM of this name's": {[]func(*corev1.PersistentVolumeClaim){func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].UID = "v2" }}, "csi", false, "", notIts, ""},
	} {
		claim := stateclaim.Claim(stateclaim.Next(vm), "", nil)
		claim.Status.Phase = corev1.ClaimBound
		for _, edit := range c.edits {
			edit(claim)
		}
		others := []Disk{disk("a", "slow")}
		got := Append(others, vm, NewDisk([2]string{stateclaim.Volume, claim.Name}, claim, nil, c.driver, classes))
		if c.none {
			if len(got) != 1 {
				t.Errorf("%s: got %+v", name, got[1:])
			}
			continue
		}
		if len(got) != 2 || got[1].Class != c.class || got[1].Why != c.why || got[1].Waits != c.waits {
			t.Errorf("%s: got %+v", name, got[1:])
		}
	}
	if got := Append(nil, vm, NewDisk([2]string{stateclaim.Volume, "c"}, nil, nil, "", nil)); len(got) != 0 {
		t.Errorf("a VM without a state has %+v", got)
	}
	if got := Append(nil, vm, NewDisk([2]string{"a", "c"}, nil, nil, "", nil)); len(got) != 1 {
		t.Error("a disk without a claim is forgotten")
	}
}

func TestTheStatesCutHasANameOfItsOwn(t *testing.T) {
	o := observed(inProgress, locked, func(o *Observed) { o.Disks = []Disk{disk("state", "fast"), disk(stateclaim.Volume, "fast")} })
	content := Decide(o).Content
	var got []string
	for _, b := range content.Spec.VolumeBackups {
		got = append(got, b.VolumeName, *b.VolumeSnapshotName)
	}
	if !slices.Equal(got, []string{"state", "vmsnapshot-s1-volume-state", "vm/state", "vmsnapshot-s1-state"}) {
		t.Errorf("the content has %q", got)
	}
}
