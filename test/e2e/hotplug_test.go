//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// TestVolumesArePluggedAndUnplugged plugs claims of both modes on both buses, writes to them, and plugs them
// again: the guest must read the same data. internal/rules/hotplug explores the steps; only here a kubelet runs
// the attachment pods and a kernel finds the disks.
func TestVolumesArePluggedAndUnplugged(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claim(t, ns, "file-scsi", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "file-scsi"))
	claim(t, ns, "file-virtio", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "file-virtio"))
	claim(t, ns, "block-scsi", corev1.PersistentVolumeBlock, blockDevice(t))
	claim(t, ns, "block-virtio", corev1.PersistentVolumeBlock, blockDevice(t))
	g := bootVM(t, newVM(onNode1(newVMI(ns, "plugged")), v1.RunStrategyAlways))

	volumes := []string{"file-scsi", "file-virtio", "block-scsi", "block-virtio"}
	for _, name := range volumes {
		_, bus, _ := strings.Cut(name, "-")
		do(t, ns, "addvolume", "plugged", "--volume-name="+name, "--bus="+bus)
	}
	for _, name := range volumes {
		g.gets(name)
		if bytes := g.diskBySerial(name).bytes; bytes != claimSize {
			t.Errorf("disk %s has %d bytes in the guest, want %d", name, bytes, claimSize)
		}
		g.run("echo written-to-" + name + " | dd of=" + g.device(name) + " conv=fsync")
	}
	for _, name := range volumes {
		do(t, ns, "removevolume", "plugged", "--volume-name="+name)
	}
	for _, name := range volumes {
		g.loses(name)
	}
	awaitAttachmentPods(t, ns, "plugged", 0)
	for _, name := range volumes {
		do(t, ns, "addvolume", "plugged", "--volume-name="+name, "--persist")
	}
	for _, name := range volumes {
		g.gets(name)
		g.sees("what was written to "+name, "head -n 1 "+g.device(name), "written-to-"+name)
	}
	awaitNoRestartRequired(t, ns, "plugged")

	restartAndAwait(t, ns, "plugged")
	g = login(t, ns, "plugged")
	for _, name := range volumes {
		g.gets(name)
		g.sees("what was written to "+name+" before the restart", "head -n 1 "+g.device(name), "written-to-"+name)
	}
}

// TestAVMBootsFromAHotpluggableDisk starts a VM whose only disk is hotpluggable: only real firmware waits for it
// and boots from it.
func TestAVMBootsFromAHotpluggableDisk(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, whereItIsUsed(newDataVolume(ns, "root", "64Mi", cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://" + guestImage), PullMethod: new(cdiv1.RegistryPullNode),
	}})))
	vmi := newVMI(ns, "boots")
	vmi.Spec.Domain.Devices.Disks[0].Disk.Bus = v1.DiskBusSCSI
	vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root", Hotpluggable: true}}
	g := bootVM(t, newVM(vmi, v1.RunStrategyAlways))
	g.run("echo it-has-booted")
	g.gets("root")
	awaitPrintable(t, ns, "boots", v1.VirtualMachineStatusRunning)
}

// onNode1 pins a VMI to the node that has these tests' claims.
func onNode1(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node1"}
	return vmi
}

// gets waits until a volume is Ready and the guest has its disk.
func (g *guest) gets(volume string) {
	g.t.Helper()
	awaitVMI(g.t, g.namespace, g.name, volume+" Ready", func(vmi *v1.VirtualMachineInstance) bool {
		s := volumeStatus(vmi, volume)
		return s != nil && s.Phase == v1.VolumeReady && s.Target != ""
	})
	eventually(g.t, volume+" in the guest", func(context.Context) error { return g.has(volume, true) })
}

// loses waits until a volume is gone from the guest and from the status.
func (g *guest) loses(volume string) {
	g.t.Helper()
	awaitVMI(g.t, g.namespace, g.name, volume+" gone from the status", func(vmi *v1.VirtualMachineInstance) bool {
		return volumeStatus(vmi, volume) == nil
	})
	// QEMU has released the disk, but the guest's kernel may not have handled the removal.
	eventually(g.t, volume+" out of the guest", func(context.Context) error { return g.has(volume, false) })
}

// has reports whether the guest has a disk with the volume's name as its serial.
func (g *guest) has(volume string, want bool) error {
	out, err := g.try("guestinfo disks")
	if err != nil {
		return err
	}
	serial := volume
	found := false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		found = found || len(f) >= 3 && f[2] == serial
	}
	if found != want {
		return fmt.Errorf("a disk with serial %s is there: %v, want %v; the guest has:\n%s", serial, found, want, out)
	}
	return nil
}

func volumeStatus(vmi *v1.VirtualMachineInstance, volume string) *v1.VolumeStatus {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == volume {
			return s
		}
	}
	return nil
}

func attachmentPods(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := cluster.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{v1.AppLabel: layout.AttachmentApp})
	var own []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Annotations[v1.DomainAnnotation] == name {
			own = append(own, pod)
		}
	}
	return own, err
}

func awaitAttachmentPods(t *testing.T, namespace, name string, most int) {
	t.Helper()
	eventually(t, fmt.Sprintf("at most %d attachment pods of %s", most, name), func(ctx context.Context) error {
		pods, err := attachmentPods(ctx, namespace, name)
		if err == nil && len(pods) > most {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
}

func awaitNoRestartRequired(t *testing.T, namespace, name string) {
	t.Helper()
	awaitVM(t, namespace, name, "no need of a restart", func(vm *v1.VirtualMachine) bool {
		for _, c := range vm.Status.Conditions {
			if c.Type == v1.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue {
				return false
			}
		}
		return vm.Status.DesiredGeneration == vm.Generation
	})
}

// TestManyVolumesComeWithOneEdit adds sixty-four volumes to a template in one edit. Only a real guest must find
// them all.
func TestManyVolumesComeWithOneEdit(t *testing.T) {
	t.Parallel()
	onlyInTestAll(t)
	const many = 64
	ns := newNamespace(t)
	g := bootVM(t, newVM(onNode1(newVMI(ns, "many")), v1.RunStrategyAlways))
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "many"}, vm); err != nil {
		t.Fatal(err)
	}
	edited := vm.DeepCopy()
	spec := &edited.Spec.Template.Spec
	for i := range many {
		name := fmt.Sprintf("vol-%d", i)
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: claimSource(name, true)})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
	}
	if err := cluster.client.Patch(t.Context(), edited, client.MergeFrom(vm)); err != nil {
		t.Fatal(err)
	}
	awaitVMI(t, ns, "many", "all volumes Ready", func(vmi *v1.VirtualMachineInstance) bool {
		ready := 0
		for _, s := range vmi.Status.VolumeStatus {
			if s.HotplugVolume != nil && s.Phase == v1.VolumeReady {
				ready++
			}
		}
		return ready == many
	})
	eventually(t, "all disks in the guest", func(context.Context) error {
		if got := g.run("guestinfo disks | grep -c vol-"); got != fmt.Sprint(many) {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
	// If a busy node does not start a pod in time, its volumes are split over several pods and merged later.
	awaitAttachmentPods(t, ns, "many", 5)
}

func claimSource(name string, hotpluggable bool) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		Hotpluggable:                      hotpluggable,
	}}
}
