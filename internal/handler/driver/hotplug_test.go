package driver

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
)

// claims has the claims of these tests, with their sizes.
var claims = map[string]resource.Quantity{"claim-a": resource.MustParse("8Mi"), "claim-b": resource.MustParse("16Mi")}

// mount returns the path at which the kubelet mounts a claim's file system for a pod.
func (n *node) mount(pod, claim string) string {
	return filepath.Join(n.dir, pod, "volumes/kubernetes.io~csi/volume-of-"+claim+"/mount")
}

// storage returns the path of a claim's file system, which all mounts share.
func (n *node) storage(claim string) string {
	return filepath.Join(filepath.Dir(n.dir), "storage", claim)
}

// image returns the path of the disk image on a claim.
func (n *node) image(claim string) string { return filepath.Join(n.storage(claim), "disk.img") }

// attachmentPod returns an attachment pod with empty file system claims.
func (n *node) attachmentPod(instance *v1.VirtualMachineInstance, uid string, volumes map[string]string) *corev1.Pod {
	n.t.Helper()
	needRoot(n.t)
	p := runningAttachmentPod(instance, uid, volumes)
	for _, claim := range volumes {
		n.mountClaim(uid, claim)
	}
	return p
}

// runningAttachmentPod returns the object of an attachment pod; volumes maps volumes to claims.
func runningAttachmentPod(instance *v1.VirtualMachineInstance, uid string, volumes map[string]string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = layout.AttachmentPrefix+uid, instance.Namespace, types.UID(uid)
	p.Labels = map[string]string{v1.CreatedByLabel: string(instance.UID), v1.AppLabel: layout.AttachmentApp}
	p.CreationTimestamp = metav1.Now()
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.AttachmentContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for volume, claim := range volumes {
		v := corev1.Volume{Name: volume}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	return p
}

// mountClaim makes an empty file system with a disk image, and mounts it for a pod as the
// kubelet does.
func (n *node) mountClaim(pod, claim string) {
	n.t.Helper()
	shared := n.storage(claim)
	mount := n.mount(pod, claim)
	for _, dir := range []string{shared, filepath.Dir(mount)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.Mkdir(mount, 0o755); err != nil {
		n.t.Fatal(err)
	}
	// The kubelet would mount the storage like this.
	if err := unix.Mount(shared, mount, "", unix.MS_BIND, ""); err != nil {
		n.t.Fatalf("playing the kubelet: %v", err)
	}
	n.t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	image := n.image(claim)
	if f, err := os.OpenFile(image, os.O_CREATE, 0o600); err != nil {
		n.t.Fatal(err)
	} else {
		f.Close()
	}
	if err := os.Truncate(image, 8<<20); err != nil {
		n.t.Fatal(err)
	}
}

// want changes the VMI like virt-api and virt-controller do for a volume with an attachment pod.
func want(volume, claim string, bus v1.DiskBus, attachment *corev1.Pod) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		instance.Spec.Volumes = append(instance.Spec.Volumes, v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: claim, Hotpluggable: true},
		}})
		instance.Spec.Domain.Devices.Disks = append(instance.Spec.Domain.Devices.Disks, v1.Disk{
			Name: volume, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}},
		})
		instance.Status.VolumeStatus = append(instance.Status.VolumeStatus, v1.VolumeStatus{
			Name: volume, Phase: v1.HotplugVolumeAttachedToNode,
			HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: attachment.Name, AttachPodUID: attachment.UID},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: claim},
		})
		record(attachment)(instance)
	}
}

// record adds an attachment pod to the record.
func record(attachment *corev1.Pod) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		r, _ := hotplug.ReadRecord(instance.Annotations)
		r.Generation++
		r.Pods = append(r.Pods, hotplug.AttachmentPod{Name: attachment.Name, UID: attachment.UID})
		instance.Annotations = map[string]string{hotplug.RecordAnnotation: r.Text()}
	}
}

// dropA removes volume a from the spec.
func dropA(instance *v1.VirtualMachineInstance) {
	spec := &instance.Spec
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == "a" })
	spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool { return d.Name == "a" && d.CDRom == nil })
}

func volume(instance *v1.VirtualMachineInstance, name string) v1.VolumeStatus {
	for _, s := range instance.Status.VolumeStatus {
		if s.Name == name {
			return s
		}
	}
	return v1.VolumeStatus{}
}

func in(name string, phase v1.VolumePhase) func(*v1.VirtualMachineInstance) bool {
	return func(instance *v1.VirtualMachineInstance) bool { return volume(instance, name).Phase == phase }
}

// running starts a guest under a handler.
func (n *node) running() (*pod, *handler) {
	n.t.Helper()
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	p.start()
	n.api.await(n.t, "phase Running", phase(v1.Running))
	return p, h
}

// disks returns the guest's disks from QEMU.
func (h *handler) disks(t *testing.T, instance *v1.VirtualMachineInstance) map[string]diskhotplug.Disk {
	t.Helper()
	m, err := h.supervisor.Lookup(instance.Namespace, instance.Name, instance.UID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	disks, err := diskhotplug.Observe(ctx, m.QEMU.Monitor())
	if err != nil {
		t.Fatal(err)
	}
	return disks
}

func TestAVolumeComesAndGoes(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("plug"))
	_, h := n.running()
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(attachment)
	n.api.update(want("a", "claim-a", v1.DiskBusSCSI, attachment))

	ready := n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))
	got := volume(ready, "a")
	if got.Target != "sdb" || got.HotplugVolume.AttachPodUID != "attachment-1" || got.Size != 8<<20 {
		t.Errorf("the status of a volume that is Ready: %+v", got)
	}
	if d := h.disks(t, ready)["a"]; d.Stage != diskhotplug.Plugged {
		t.Errorf("QEMU has %+v", d)
	}

	n.api.update(dropA)
	gone := n.api.await(t, "volume a UnMountedFromPod", in("a", v1.HotplugVolumeUnMounted))
	if left := h.disks(t, gone); len(left) > 0 {
		t.Errorf("QEMU still has %+v", left)
	}
	// The status is written first.
	for _, reason := range []string{"VolumeReady", "VolumeUnMountedFromPod"} {
		n.api.await(t, "the event "+reason, func(*v1.VirtualMachineInstance) bool {
			return strings.Contains(strings.Join(n.api.events, "\n"), "Normal "+reason)
		})
	}
}

func TestANewerAttachmentPodTakesOverWithoutTouchingTheDisk(t *testing.T) {
	n := newNode(t, scheduled("handover"))
	_, h := n.running()
	older := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(older)
	n.api.update(want("a", "claim-a", v1.DiskBusSCSI, older))
	before := h.disks(t, n.api.await(t, "volume a Ready", in("a", v1.VolumeReady)))

	newer := n.attachmentPod(n.api.vmi, "attachment-2", map[string]string{"a": "claim-a"})
	newer.CreationTimestamp = metav1.NewTime(older.CreationTimestamp.Add(time.Second))
	h.supervisor.PodSeen(newer)
	n.api.update(record(newer))
	taken := n.api.await(t, "the newer attachment pod in the status", func(instance *v1.VirtualMachineInstance) bool {
		return volume(instance, "a").HotplugVolume.AttachPodUID == "attachment-2"
	})
	if s := volume(taken, "a"); s.Phase != v1.VolumeReady {
		t.Errorf("the phase is %s", s.Phase)
	}
	h.supervisor.PodGone(older)
	if after := h.disks(t, taken); !sameDisk(before["a"], after["a"]) {
		t.Errorf("QEMU had %+v and has %+v", before, after)
	}
}

func sameDisk(a, b diskhotplug.Disk) bool {
	return a.Stage == b.Stage && a.Number == b.Number && a.Size == b.Size
}

// TestAVolumeThatCannotBePluggedDelaysNoOther: the image of a is a folder, b is valid.
func TestAVolumeThatCannotBePluggedDelaysNoOther(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("broken"))
	_, h := n.running()
	broken := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	image := filepath.Join(n.mount("attachment-1", "claim-a"), "disk.img")
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(image, 0o755); err != nil {
		t.Fatal(err)
	}
	well := n.attachmentPod(n.api.vmi, "attachment-2", map[string]string{"b": "claim-b"})
	h.supervisor.PodSeen(broken)
	h.supervisor.PodSeen(well)
	n.api.update(want("a", "claim-a", v1.DiskBusSCSI, broken))
	n.api.update(want("b", "claim-b", v1.DiskBusVirtio, well))

	n.api.await(t, "volume b Ready", in("b", v1.VolumeReady))
	n.api.await(t, "the reason why a is not", func(instance *v1.VirtualMachineInstance) bool {
		s := volume(instance, "a")
		return s.Phase == v1.HotplugVolumeAttachedToNode && s.Reason == "FailedHotplug" && strings.Contains(s.Message, "no regular file")
	})
	n.api.update(dropA)
	n.api.await(t, "volume a UnMountedFromPod", in("a", v1.HotplugVolumeUnMounted))
}

// TestAnotherHandlerGoesOn: virt-handler is killed while a volume comes and
// while one goes.
func TestAnotherHandlerGoesOn(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("killed"))
	p, h := n.running()
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.stop()
	n.api.update(want("a", "claim-a", v1.DiskBusSCSI, attachment))
	h = n.startHandler(p)
	h.supervisor.PodSeen(attachment)
	n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))

	h.stop()
	n.api.update(dropA)
	h = n.startHandler(p)
	h.supervisor.PodSeen(attachment)
	gone := n.api.await(t, "volume a UnMountedFromPod", in("a", v1.HotplugVolumeUnMounted))
	if left := h.disks(t, gone); len(left) > 0 {
		t.Errorf("QEMU still has %+v", left)
	}
}

// The test's machine has only its firmware, which does not answer PCI hotplug.
func TestAGuestThatDoesNotLetGoIsReported(t *testing.T) {
	n := newNode(t, scheduled("refuses"))
	_, h := n.running()
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(attachment)
	n.api.update(want("a", "claim-a", v1.DiskBusVirtio, attachment))
	n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))
	n.api.update(dropA)
	detaching := n.api.await(t, "volume a Detaching", in("a", v1.HotplugVolumeDetaching))
	if s := volume(detaching, "a"); s.Message != "waiting for the guest to release the disk" || s.HotplugVolume.AttachPodUID != "attachment-1" {
		t.Errorf("the status is %+v", s)
	}
	if d := h.disks(t, detaching)["a"]; d.Stage != diskhotplug.Plugged {
		t.Errorf("QEMU has %+v", d)
	}
}

func TestAMediumIsPutIntoADriveThatWasEmpty(t *testing.T) {
	t.Parallel()
	instance := scheduled("medium")
	instance.Spec.Domain.Devices.Disks = append(instance.Spec.Domain.Devices.Disks, v1.Disk{
		Name: "a", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}},
	})
	n := newNode(t, instance)
	_, h := n.running()
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(attachment)
	insert := want("a", "claim-a", "", attachment)
	n.api.update(func(i *v1.VirtualMachineInstance) {
		drives := len(i.Spec.Domain.Devices.Disks)
		insert(i)
		i.Spec.Domain.Devices.Disks = i.Spec.Domain.Devices.Disks[:drives]
	})
	ready := n.api.await(t, "the medium Ready", in("a", v1.VolumeReady))
	if d := h.disks(t, ready)["a"]; d.Stage != diskhotplug.Plugged || d.TrayOpen {
		text, _ := json.Marshal(d)
		t.Errorf("QEMU has %s", text)
	}
	n.api.update(dropA)
	n.api.await(t, "the medium out", in("a", v1.HotplugVolumeUnMounted))
}

func TestADiskGrowsWithItsClaim(t *testing.T) {
	t.Parallel()
	const grownTo = 30 << 20 // the file system keeps its share of 32 MiB
	n := newNode(t, scheduled("grows"))
	_, h := n.running()
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(attachment)
	n.api.update(want("a", "claim-a", v1.DiskBusSCSI, attachment))
	n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))
	n.api.update(func(instance *v1.VirtualMachineInstance) {
		for i := range instance.Status.VolumeStatus {
			if info := instance.Status.VolumeStatus[i].PersistentVolumeClaimInfo; info != nil {
				info.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}
			}
		}
	})
	grown := n.api.await(t, "the new size", func(instance *v1.VirtualMachineInstance) bool {
		return volume(instance, "a").Size == grownTo
	})
	if d := h.disks(t, grown)["a"]; d.Size != grownTo {
		t.Errorf("QEMU has %+v", d)
	}
	if info, err := os.Stat(filepath.Join(n.mount("attachment-1", "claim-a"), "disk.img")); err != nil || info.Size() != grownTo {
		t.Errorf("the image: %v, %v", info, err)
	}
}
