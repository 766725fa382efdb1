//go:build apiserver

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// TestAVMIFollowsItsTemplatesVolumes adds a volume to the template of a running VM, and removes it. Both must reach the
// VMI without a restart.
func TestAVMIFollowsItsTemplatesVolumes(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	edit := func(change func(*v1.VirtualMachineInstanceSpec) error) {
		t.Helper()
		vm := w.vm("vm")
		before := vm.DeepCopy()
		w.do("editing the template", change(&vm.Spec.Template.Spec))
		w.do("writing the template", w.client.Patch(w.ctx, vm, client.MergeFrom(before)))
	}
	has := func(want bool) {
		t.Helper()
		w.eventually("the VMI to follow", func() (bool, string) {
			return (volumeclaim.Named(w.vmi("vm").Spec.Volumes, "data") != nil) == want, "it does not"
		})
		w.awaitSettled()
		if c := condition.Find(w.vm("vm").Status.Conditions, v1.VirtualMachineRestartRequired); c != nil {
			t.Errorf("a restart is asked for: %s", c.Message)
		}
	}
	edit(func(spec *v1.VirtualMachineInstanceSpec) error {
		return hotplugspec.Add(spec, &v1.AddVolumeOptions{
			Name: "data", Disk: &v1.Disk{}, VolumeSource: &v1.HotplugVolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}},
		})
	})
	has(true)
	edit(func(spec *v1.VirtualMachineInstanceSpec) error { return hotplugspec.Remove(spec, "data") })
	has(false)
}

// TestARunningVMIHearsOfAClaimThatHasGrown plays a virt-handler that has reported the claim, and storage that has made
// it larger. The VMI must get the new size.
func TestARunningVMIHearsOfAClaimThatHasGrown(t *testing.T) {
	w := newWorld(t)
	w.createVMI("vmi")
	w.run("vmi")
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			StorageClassName: new("none"),
		},
	}
	w.do("creating the claim", w.client.Create(w.ctx, claim))
	w.bindClaim("data")
	grow := func(size string) {
		t.Helper()
		w.do("reading the claim", w.client.Get(w.ctx, client.ObjectKeyFromObject(claim), claim))
		before := claim.DeepCopy()
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		w.do("growing the claim", w.client.Status().Patch(w.ctx, claim, client.MergeFrom(before)))
	}
	told := func(size string) {
		t.Helper()
		want := resource.MustParse(size)
		w.eventually("the VMI to be told of "+size, func() (bool, string) {
			for _, s := range w.vmi("vmi").Status.VolumeStatus {
				if s.PersistentVolumeClaimInfo != nil {
					got := s.PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
					return got.Cmp(want) == 0, got.String()
				}
			}
			return false, "no claim is in its status"
		})
	}
	vmi := w.vmi("vmi")
	before := vmi.DeepCopy()
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data"}}}
	w.do("listing the VMI's volumes", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
	told("1Gi")
	grow("2Gi")
	told("2Gi")
}
