package rollout

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
)

func TestPathsNameTheFields(t *testing.T) {
	base := func() *v1.VirtualMachineInstanceSpec {
		memory := resource.MustParse("1Gi")
		return &v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{
				CPU:    &v1.CPU{Cores: 1},
				Memory: &v1.Memory{Guest: &memory},
				Devices: v1.Devices{Disks: []v1.Disk{
					{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
					{Name: "data"},
				}},
			},
			Tolerations: []corev1.Toleration{{Key: "a"}},
		}
	}
	tests := map[string]struct {
		edit func(*v1.VirtualMachineInstanceSpec)
		want []string
	}{
		"nothing": {func(*v1.VirtualMachineInstanceSpec) {}, nil},
		"a value": {func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Cores = 2 },
			[]string{"spec.template.spec.domain.cpu.cores"}},
		"the same quantity in other words is no change": {func(s *v1.VirtualMachineInstanceSpec) {
			same := resource.MustParse("1024Mi")
			s.Domain.Memory.Guest = &same
		}, nil},
		"a field of a disk, by the disk's name": {func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[0].Disk.Bus = v1.DiskBusSATA
		}, []string{"spec.template.spec.domain.devices.disks[root].disk.bus"}},
		"a disk more, and one less": {func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[1].Name = "more"
		}, []string{"spec.template.spec.domain.devices.disks[data]", "spec.template.spec.domain.devices.disks[more]"}},
		"another order of disks": {func(s *v1.VirtualMachineInstanceSpec) {
			slices.Reverse(s.Domain.Devices.Disks)
		}, []string{"spec.template.spec.domain.devices.disks"}},
		"an element without a name, by its place": {func(s *v1.VirtualMachineInstanceSpec) {
			s.Tolerations[0].Key = "b"
		}, []string{"spec.template.spec.tolerations[0].key"}},
		"a part that was not there": {func(s *v1.VirtualMachineInstanceSpec) {
			s.NodeSelector = map[string]string{"zone": "a"}
		}, []string{"spec.template.spec.nodeSelector"}},
		"the UUID that it counts as having is no change": {func(s *v1.VirtualMachineInstanceSpec) {
			firmware.Set(s, firmware.Legacy("vm"))
		}, nil},
		"another UUID is one": {func(s *v1.VirtualMachineInstanceSpec) { firmware.Set(s, "5d307ca9-b3ef-428c-8861-06e72d69f223") },
			[]string{"spec.template.spec.domain.firmware.uuid"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			to := base()
			test.edit(to)
			if got := Paths(base(), to, "vm"); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
