package datavolume

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func vmNamed(name, uid string) *v1.VirtualMachine {
	return &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
}

func TestWhoHasMadeADataVolume(t *testing.T) {
	given := func(to *v1.VirtualMachine, edits ...func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
		dv := &cdiv1.DataVolume{}
		GiveTo(to, dv)
		for _, edit := range edits {
			edit(dv)
		}
		return dv
	}
	orphaned := func(dv *cdiv1.DataVolume) { dv.OwnerReferences = nil }
	unnamed := func(dv *cdiv1.DataVolume) { delete(dv.Annotations, MadeForVM) }
	unlabelled := func(dv *cdiv1.DataVolume) { delete(dv.Labels, v1.CreatedByLabel) }
	vm, earlier, other := vmNamed("vm", "2"), vmNamed("vm", "1"), vmNamed("other", "3")
	for name, c := range map[string]struct {
		dv   *cdiv1.DataVolume
		want Maker
	}{
		"the VM itself":                                   {given(vm), ThisVM},
		"the VM itself, in an earlier version":            {given(vm, unnamed), ThisVMUnnamed},
		"a user, who has given it to the VM":              {given(vm, unnamed, unlabelled), ThisVM},
		"the VM itself, and its owner was taken off":      {given(vm, orphaned), SameName},
		"a VM of the name that is gone":                   {given(earlier, orphaned), SameName},
		"a VM of another name that is gone":               {given(other, orphaned), AnotherVM},
		"an earlier version, and nobody knows which VM's": {given(earlier, orphaned, unnamed), AnotherVM},
		"a VM of the name that is going":                  {given(earlier), Somebody},
		"a VM of another name":                            {given(other), Somebody},
		"a user":                                          {&cdiv1.DataVolume{}, Nobody},
		"a user, who wants it for his own":                {given(other, orphaned, unlabelled), Nobody},
	} {
		if got := MakerOf(c.dv, vm); got != c.want {
			t.Errorf("%s: it was made by %s, want %s", name, got, c.want)
		}
	}
}

func TestADataVolumeIsGivenToAVMOnce(t *testing.T) {
	dv, vm := &cdiv1.DataVolume{}, vmNamed("vm", "1")
	GiveTo(vm, dv)
	GiveTo(vm, dv)
	if len(dv.OwnerReferences) != 1 || !metav1.IsControlledBy(dv, vm) || dv.Labels[v1.CreatedByLabel] != "1" || dv.Annotations[MadeForVM] != "vm" {
		t.Errorf("the DataVolume is %+v", dv.ObjectMeta)
	}
}
