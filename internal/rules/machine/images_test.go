package machine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// virt-launcher must prepare an overlay only for a disk that is written to.
func TestWhichImagesAreOverlaid(t *testing.T) {
	cd := func(s *v1.VirtualMachineInstanceSpec) { last(s).DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{}} }
	disk := v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("1Mi")}}
	for name, test := range map[string]struct {
		spec *v1.VirtualMachineInstanceSpec
		want []string
	}{
		"an image that is written to":   {specOf(cold("a", 0, image)), []string{"a overlaid"}},
		"an image that is only read":    {specOf(cold("a", 0, image), cd), []string{"a"}},
		"an empty disk, even on a CD":   {specOf(cold("a", 0, disk), cd), []string{"a overlaid"}},
		"what comes later, and a disk":  {specOf(hot("later", 0), cold("a", 0, image)), []string{"a overlaid"}},
		"what others make, and a disk":  {specOf(cold("init", 0, cloud), cold("a", 0, image)), []string{"a overlaid"}},
		"a kernel, of which nothing is": {specOf(kernel), nil},
		"a kernel alone": {specOf(func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{Container: &v1.KernelBootContainer{KernelPath: "/vmlinuz"}}}
		}), []string{"kernelBoot.kernel"}},
		"a kernel and its first file system": {specOf(func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{Container: &v1.KernelBootContainer{KernelPath: "/vmlinuz", InitrdPath: "/initrd"}}}
		}), []string{"kernelBoot.kernel", "kernelBoot.initrd"}},
		"firmware without a bootloader": {specOf(func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Firmware = &v1.Firmware{} }), nil},
		"the variables of UEFI": {specOf(func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{}}}
		}), []string{"firmware/nvram overlaid"}},
	} {
		var got []string
		for _, i := range Images(&v1.VirtualMachineInstance{Spec: *test.spec}) {
			text := i.Name
			if i.Overlay != "" {
				text += " overlaid"
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func last(s *v1.VirtualMachineInstanceSpec) *v1.Disk {
	return &s.Domain.Devices.Disks[len(s.Domain.Devices.Disks)-1]
}

func TestWhatAGuestBootsFromBesideWhatComes(t *testing.T) {
	iso := v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}
	noVolume := func(s *v1.VirtualMachineInstanceSpec) {
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, v1.Disk{Name: "drive", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}})
	}
	for name, test := range map[string]struct {
		spec  *v1.VirtualMachineInstanceSpec
		boots bool
	}{
		"nothing":                           {specOf(hot("a", 0)), true},
		"a drive without a medium":          {specOf(noVolume, hot("a", 0)), true},
		"a file that Drydock makes":         {specOf(cold("iso", 0, iso), hot("a", 0)), true},
		"a disk":                            {specOf(cold("root", 0, image), hot("a", 0)), false},
		"a disk behind a drive":             {specOf(noVolume, cold("root", 0, image), hot("a", 0)), false},
		"firmware without a kernel":         {specOf(func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Firmware = &v1.Firmware{} }, hot("a", 0)), true},
		"an interface, which is in order":   {specOf(hot("a", 0), netBoot(1)), false},
		"an interface, which is in none":    {specOf(hot("a", 0), netBoot(0)), true},
		"an interface and itself, in order": {specOf(hot("a", 2), netBoot(1)), true},
	} {
		awaited := AwaitedVolumes(test.spec)
		if len(awaited) != 1 || awaited[0].Boots != test.boots {
			t.Errorf("%s: %+v, want that the guest may boot from it: %v", name, awaited, test.boots)
		}
	}
}

// netBoot adds an interface, with its place in the boot order unless that is 0.
func netBoot(order uint) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		iface := v1.Interface{Name: fmt.Sprint("nic", len(s.Domain.Devices.Interfaces))}
		if order > 0 {
			iface.BootOrder = &order
		}
		s.Domain.Devices.Interfaces = append(s.Domain.Devices.Interfaces, iface)
	}
}
