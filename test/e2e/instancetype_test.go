//go:build e2e

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAGuestHasTheShapeOfItsType boots a guest that must have the CPUs, memory and disk bus of its type and
// preference, and the next one's after its VM selects another type. The API server's tests show that a VM keeps
// its shape; only a guest sees it.
func TestAGuestHasTheShapeOfItsType(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, newType(ns, "small", 2, "160Mi"))
	create(t, newType(ns, "large", 3, "192Mi"))
	create(t, &instancetypev1.VirtualMachinePreference{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "scsi"},
		Spec: instancetypev1.VirtualMachinePreferenceSpec{
			Devices: &instancetypev1.DevicePreferences{PreferredDiskBus: v1.DiskBusSCSI},
			CPU:     &instancetypev1.CPUPreferences{PreferredCPUTopology: new(instancetypev1.Cores)},
		},
	})
	vmi := newVMI(ns, "vm")
	vmi.Spec.Domain.Memory, vmi.Spec.Domain.Resources = nil, v1.ResourceRequirements{}
	addDisk(vmi, v1.Disk{Name: "data", Serial: "DATA"}, v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("4Mi")}})
	vm := newVM(vmi, v1.RunStrategyAlways)
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Kind: "VirtualMachineInstancetype", Name: "small"}
	vm.Spec.Preference = &v1.PreferenceMatcher{Kind: "VirtualMachinePreference", Name: "scsi"}
	g := bootVM(t, vm)
	g.hasShape("2", "160Mi")
	g.sees("the disk's bus", "basename "+g.device("DATA")+" | cut -c 1-2", "sd")

	selects := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"instancetype":{"name":"large","revisionName":null}}}`))
	if err := cluster.client.Patch(t.Context(), &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vm"}}, selects); err != nil {
		t.Fatalf("selecting another type: %v", err)
	}
	restartAndAwait(t, ns, "vm")
	login(t, ns, "vm").hasShape("3", "192Mi")
}

func newType(ns, name string, cpus uint32, memory string) *instancetypev1.VirtualMachineInstancetype {
	return &instancetypev1.VirtualMachineInstancetype{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: instancetypev1.VirtualMachineInstancetypeSpec{
			CPU: instancetypev1.CPUInstancetype{Guest: cpus}, Memory: instancetypev1.MemoryInstancetype{Guest: resource.MustParse(memory)},
		},
	}
}

// hasShape checks the CPUs of the guest and the memory of its VMI.
func (g *guest) hasShape(cpus, memory string) {
	g.t.Helper()
	g.sees("its CPUs", "grep -c ^processor /proc/cpuinfo", cpus)
	vmi := awaitRunning(g.t, g.namespace, g.name)
	if got := vmi.Spec.Domain.Memory.Guest; got == nil || got.Cmp(resource.MustParse(memory)) != 0 {
		g.t.Errorf("the VMI has %v of memory, want %s", got, memory)
	}
	if resources := launcherPod(g.t, vmi).Spec.Containers[0].Resources; resources.Requests.Memory().Cmp(resource.MustParse(memory)) <= 0 {
		g.t.Errorf("the launcher pod asks for %v, which is no more than the guest's %s", resources.Requests[corev1.ResourceMemory], memory)
	}
}
