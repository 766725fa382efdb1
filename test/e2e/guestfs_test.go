//go:build e2e

package e2e

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestGuestfsWritesToDisksOfAVMThatDoesNotRun is a user's session: a shell with the disks of a stopped VM, which is in
// maintenance and can't start until the shell ends. The real libguestfs opens the guest's boot disk, a file on a claim
// with a file system, and another disk on a block claim. The guest must read the files that it wrote. No other test of
// `make test` uses libguestfs, because each use emulates a machine.
func TestGuestfsWritesToDisksOfAVMThatDoesNotRun(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeMode: new(corev1.PersistentVolumeBlock), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
		},
	})
	root := newDataVolume(ns, "root", "64Mi", cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://" + guestImage), PullMethod: new(cdiv1.RegistryPullNode),
	}})
	root.Spec.Storage.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	vmi := newVMI(ns, "vm-cirros")
	vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: root.Name}}
	addDisk(vmi, v1.Disk{Name: "data", Serial: "DATA", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
	vm := newVM(vmi, v1.RunStrategyHalted)
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: root.Name}, Spec: root.Spec}}
	create(t, vm)

	// This starts at once, before the claims exist.
	var said transcript
	command := exec.CommandContext(t.Context(), binary("virtctl"), "-n", ns, "guestfs", "--vm", "vm-cirros")
	command.Stdout, command.Stderr = &said, &said
	keyboard, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	types := func(text string) {
		t.Helper()
		if _, err := io.WriteString(keyboard, text+"\n"); err != nil {
			t.Fatalf("typing %q: %v; it says\n%s", text, err, said.String())
		}
	}
	said.await(t, "the shell", "Attached")
	awaitPrintable(t, ns, "vm-cirros", "Maintenance")
	out, err := virtctl(t.Context(), "-n", ns, "start", "vm-cirros")
	if err == nil || !strings.Contains(out, "Failed to start vm-cirros as it is in maintenance mode\n") {
		t.Errorf("a start meanwhile: %v, %q", err, out)
	}
	types("guestfish --format=raw -a /disks/root/disk.img -a /disks/data run : mount /dev/sda1 / : write /hello 'on a file' : umount / : " +
		"mkfs ext4 /dev/sdb : mount /dev/sdb / : write /hello 'on a device' && echo writ''ten")
	said.awaitWithin(t, libguestfsTime, "libguestfs", "written")
	types("exit")
	if err := command.Wait(); err != nil {
		t.Fatalf("virtctl guestfs: %v; it says\n%s", err, said.String())
	}
	awaitPrintable(t, ns, "vm-cirros", v1.VirtualMachineStatusStopped)
	if out := do(t, ns, "start", "vm-cirros"); out != "VM vm-cirros was scheduled to start" {
		t.Errorf("virtctl start printed %q", out)
	}
	awaitPrintable(t, ns, "vm-cirros", v1.VirtualMachineStatusRunning)
	g := login(t, ns, "vm-cirros")
	g.sees("what libguestfs has written to the disk that it boots from", "mount -t vfat -o ro /dev/vda1 /mnt && cat /mnt/hello && echo && umount /mnt", "on a file")
	g.sees("what libguestfs has written to the other one", "mount -t ext4 "+g.device("DATA")+" /mnt && cat /mnt/hello && echo", "on a device")
}
