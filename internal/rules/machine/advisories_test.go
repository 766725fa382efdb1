package machine

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// GHSA-qv98-3369-g364: containerDisk.path and the paths of kernelBoot could leave their image.
func TestGHSAqv983369g364PathsStayInTheirImage(t *testing.T) {
	for _, evil := range []string{"../../../../etc/passwd", "/../../etc/passwd", "disk/../../../../etc/passwd", "/proc/self/environ", "."} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "i", Path: evil}}}}
		vmi.Spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{
			Container: &v1.KernelBootContainer{Image: "k", KernelPath: evil, InitrdPath: evil},
		}}
		images := Images(vmi)
		if len(images) != 3 {
			t.Fatalf("the images are %+v", images)
		}
		for _, image := range images {
			root := layout.KernelBootDir
			if image.Name == "root" {
				root = layout.VolumeDir("root")
			}
			if image.Root != root || image.Source != root && !strings.HasPrefix(image.Source, root+"/") || strings.Contains(image.Source, "..") {
				t.Errorf("%q: %s is looked for at %s, confined to %q", evil, image.Name, image.Source, image.Root)
			}
		}
		if at := inKernelBoot(evil); at != layout.KernelBootDir && !strings.HasPrefix(at, layout.KernelBootDir+"/") {
			t.Errorf("%q: QEMU reads %s", evil, at)
		}
	}
}
