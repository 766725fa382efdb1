package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
)

// These tests use a model of QEMU's monitor (qmptest), which is tested against QEMU, and folders that no kubelet has
// mounted.

// patience bounds one short wait.
const patience = 4 * time.Minute

// claimSize is the size of each claim.
const claimSize = 8 << 20

// storage is an API server with a claim for each name, and the folders of their volumes.
type storage struct {
	dir string

	mu     sync.Mutex
	broken error
	events []string
}

func (s *storage) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID("uid-of-"+name)
	claim.Spec.VolumeName = "volume-of-" + name
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI)}
	return claim, nil
}

func (s *storage) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	claim := strings.TrimPrefix(name, "volume-of-")
	volume := &corev1.PersistentVolume{}
	volume.Name = name
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: claim, UID: types.UID("uid-of-" + claim)}
	return volume, nil
}

func (s *storage) Event(_ *v1.VirtualMachineInstance, kind, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, kind+" "+reason+": "+message)
}

func (s *storage) Open(id podpath.VolumeID) (*podpath.Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, s.broken
	}
	folder, err := podpath.Open(filepath.Join(s.dir, id.Pod, id.Name))
	if err != nil {
		return nil, err
	}
	return &podpath.Volume{Folder: folder}, nil
}

func (s *storage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

func (s *storage) reported() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// image makes the disk image of a claim in its place in a pod.
func (s *storage) image(t *testing.T, pod, claim string) {
	t.Helper()
	dir := filepath.Join(s.dir, pod, "volume-of-"+claim)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, layout.DiskImage)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, claimSize); err != nil {
		t.Fatal(err)
	}
}

// world is a QEMU and the Volumes of its guest, with their owner.
type world struct {
	*Volumes
	t       *testing.T
	qemu    *qmptest.Server
	monitor *qmp.Client
	storage *storage
	view    View
	helpers sync.WaitGroup
	woken   chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, qemu: qmptest.New(t), storage: &storage{dir: t.TempDir()}, woken: make(chan struct{}, 1)}
	wake := func() {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
	w.Volumes = New(Env{
		Tolerated: func() int { return 10 },
		Namespace: "shop", Cluster: w.storage, Opener: w.storage, Now: time.Now, Log: logr.Discard(),
		Go: func(f func()) { w.helpers.Go(f) }, Wake: wake,
	})
	var err error
	w.monitor, err = qmp.New(t.Context(), w.qemu.Dial(), func(e qmp.Event) {
		if w.HandleEvent(e) {
			wake()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.helpers.Wait()
		w.Close()
		_ = w.monitor.Close()
	})
	w.qemu.SetRunState("running")
	instance := &v1.VirtualMachineInstance{}
	instance.Namespace, instance.Name, instance.UID, instance.ResourceVersion = "shop", "web", "u", "1"
	instance.Status.Phase = v1.Running
	w.view = View{VMI: instance, LauncherPod: "launcher"}
	return w
}

// wants makes the VMI's spec and status want a volume on a claim of an attachment pod.
func (w *world) wants(volume, claim string, pod types.UID) {
	w.t.Helper()
	w.storage.image(w.t, string(pod), claim)
	instance := w.view.VMI.DeepCopy()
	v := v1.Volume{Name: volume}
	v.DataVolume = &v1.DataVolumeSource{Name: claim, Hotpluggable: true}
	instance.Spec.Volumes = append(instance.Spec.Volumes, v)
	instance.Spec.Domain.Devices.Disks = append(instance.Spec.Domain.Devices.Disks, v1.Disk{
		// A read-only disk is not given to QEMU's user, which would need root.
		Name: volume, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI, ReadOnly: true}},
	})
	instance.Status.VolumeStatus = append(instance.Status.VolumeStatus, v1.VolumeStatus{
		Name: volume, Phase: v1.HotplugVolumeAttachedToNode,
		HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: "hp-" + string(pod), AttachPodUID: pod},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: claim},
	})
	record, err := hotplug.ReadRecord(instance.Annotations)
	if err != nil {
		w.t.Fatal(err)
	}
	record.Generation++
	record.Pods = append(record.Pods, hotplug.AttachmentPod{Name: "hp-" + string(pod), UID: pod})
	instance.Annotations = map[string]string{hotplug.RecordAnnotation: record.Text()}
	w.view.VMI = instance
	w.view.AttachmentPods = append(w.view.AttachmentPods, hotplug.Pod{
		Name: "hp-" + string(pod), UID: pod, Running: true, Volumes: []hotplug.Volume{{Name: volume, Claim: claim}},
	})
}

// drops makes the VMI no longer want a volume.
func (w *world) drops(volume string) {
	instance := w.view.VMI.DeepCopy()
	instance.Spec.Volumes = slices.DeleteFunc(instance.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	instance.Spec.Domain.Devices.Disks = slices.DeleteFunc(instance.Spec.Domain.Devices.Disks, func(d v1.Disk) bool { return d.Name == volume })
	w.view.VMI = instance
}

// await calls Tend until volume a should have the phase in the status.
func (w *world) await(phase v1.VolumePhase, reason string) {
	w.t.Helper()
	for timeout := time.After(patience); ; {
		due, after := w.Tend(w.t.Context(), w.monitor, w.view)
		if f := w.Observe(w.view.VMI).Hotplugged["a"]; f.Phase == phase && f.Reason == reason {
			return
		}
		if due {
			w.Act(w.t.Context(), w.monitor, machine.Input{VMI: w.view.VMI, Images: map[string]launch.PreparedImage{}, Now: time.Now()})
			continue
		}
		var later <-chan time.Time
		if after > 0 {
			later = time.After(after)
		}
		select {
		case <-w.woken:
		case <-later:
		case <-timeout:
			w.t.Fatalf("volume a: %+v, want %s for %s; QEMU was told %v", w.Observe(w.view.VMI).Hotplugged["a"], phase, reason, w.qemu.Commands())
		}
	}
}

func TestAVolumeIsPluggedAndUnplugged(t *testing.T) {
	w := newWorld(t)
	w.wants("a", "claim-a", "x")
	w.await(v1.VolumeReady, "VolumeReady")
	if !w.qemu.HasDevice(machine.DiskID("a")) {
		t.Error("QEMU has no disk")
	}
	facts := w.Observe(w.view.VMI)
	if f := facts.Hotplugged["a"]; f.PodUID != "x" || f.Size != claimSize || !facts.Plugged["a"] {
		t.Errorf("known is %+v", facts)
	}
	later := w.view.VMI.DeepCopy()
	later.ResourceVersion = "2"
	if f := w.Observe(later).Hotplugged; len(f) > 0 {
		t.Errorf("on a version that nothing was decided on, this is said: %+v", f)
	}
	w.drops("a")
	w.await(v1.HotplugVolumeUnMounted, "VolumeUnMountedFromPod")
	if w.qemu.HasDevice(machine.DiskID("a")) || w.Observe(w.view.VMI).Plugged["a"] {
		t.Error("QEMU still has the disk")
	}
}

func TestAVolumeThatCannotBeOpenedIsReported(t *testing.T) {
	w := newWorld(t)
	w.storage.fail(errors.New("the storage is away"))
	w.wants("a", "claim-a", "x")
	w.await(v1.HotplugVolumeAttachedToNode, "FailedHotplug")
	if f := w.Observe(w.view.VMI).Hotplugged["a"]; !strings.Contains(f.Message, "the storage is away") {
		t.Errorf("its status says %q", f.Message)
	}
	w.storage.fail(nil)
	w.await(v1.VolumeReady, "VolumeReady")
}

func TestAVolumeOfAVMIThatIsToEndIsLeftAlone(t *testing.T) {
	for name, end := range map[string]func(*v1.VirtualMachineInstance){
		"it is being deleted": func(instance *v1.VirtualMachineInstance) { instance.DeletionTimestamp = &instance.CreationTimestamp },
		"it is final":         func(instance *v1.VirtualMachineInstance) { instance.Status.Phase = v1.Succeeded },
	} {
		w := newWorld(t)
		w.wants("a", "claim-a", "x")
		end(w.view.VMI)
		if due, after := w.Tend(t.Context(), w.monitor, w.view); due || after > 0 {
			t.Errorf("%s: something is due: %v, %v", name, due, after)
		}
		if got := w.qemu.Commands(); len(got) > 0 {
			t.Errorf("%s: QEMU was told %v", name, got)
		}
	}
}

// grows is a world with a disk of 1 MiB whose claim has claimSize.
func grows(t *testing.T) *world {
	w := newWorld(t)
	w.storage.image(t, "launcher", "claim-root")
	w.qemu.AddNode(machine.NodeName("root"), 1<<20)
	w.view.Images = map[string]launch.PreparedImage{"root": {Name: "root"}}
	w.view.Claims = Claims{"root": {ClaimName: "claim-root"}}
	w.view.VMI.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}}
	w.view.VMI.Status.VolumeStatus = []v1.VolumeStatus{status("root", "claim-root", claimSize, 1<<20)}
	return w
}

func TestADiskGrowsWithItsClaim(t *testing.T) {
	w := grows(t)
	w.Tend(t.Context(), w.monitor, w.view)
	w.helpers.Wait()
	size := w.Observe(w.view.VMI).Grown["root"]
	if size <= 1<<20 || size > claimSize || w.qemu.NodeSize(machine.NodeName("root")) != size {
		t.Errorf("it has grown to %d bytes, in QEMU to %d", size, w.qemu.NodeSize(machine.NodeName("root")))
	}
	if got := w.storage.reported(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal VolumeResized: The disk of volume root has grown from 1048576 to ") {
		t.Errorf("the events are %q", got)
	}
	// Nothing else may happen until the claim grows again.
	if _, after := w.Tend(t.Context(), w.monitor, w.view); after > 0 || w.qemu.Executed("block_resize") != 1 {
		t.Errorf("again after %v; QEMU was told %v", after, w.qemu.Commands())
	}
}

func TestADiskThatCannotGrowIsTriedAgain(t *testing.T) {
	w := grows(t)
	w.storage.fail(errors.New("the storage is away"))
	w.Tend(t.Context(), w.monitor, w.view)
	w.helpers.Wait()
	if got := w.storage.reported(); len(got) != 1 || got[0] != "Warning FailedResize: disk of volume root: the storage is away" {
		t.Errorf("the events are %q", got)
	}
	if _, after := w.Tend(t.Context(), w.monitor, w.view); after <= 0 || after > growPause {
		t.Errorf("it is tried again after %v", after)
	}
	if len(w.Observe(w.view.VMI).Grown) > 0 {
		t.Error("it counts as grown")
	}
}

func TestClaims(t *testing.T) {
	instance := &v1.VirtualMachineInstance{}
	instance.Namespace = "shop"
	v := v1.Volume{Name: "root"}
	v.DataVolume = &v1.DataVolumeSource{Name: "claim-root"}
	instance.Spec.Volumes = []v1.Volume{v}
	claims, err := ReadClaims(t.Context(), &storage{}, instance)
	if err != nil || len(claims) != 1 || claims["root"].ClaimName != "claim-root" {
		t.Fatalf("%+v, %v", claims, err)
	}
	if size, err := claims.Capacity(t.Context(), "claim-root"); err != nil || size != claimSize {
		t.Errorf("%d, %v", size, err)
	}
	requested := Claims{"new": {ClaimName: "new", Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Mi")}}}
	if size, err := requested.Capacity(t.Context(), "new"); err != nil || size != 3<<20 {
		t.Errorf("of a claim that has not been given anything: %d, %v", size, err)
	}
	if _, err := claims.Capacity(t.Context(), "other"); err == nil {
		t.Error("the size of another's claim is known")
	}
}

// withoutClaims is an API server without claims.
type withoutClaims struct{ storage }

func (*withoutClaims) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

func TestAStateThatIsGoneKeepsNobodyFromAGuest(t *testing.T) {
	instance := &v1.VirtualMachineInstance{}
	instance.Name, instance.Namespace = "web", "shop"
	instance.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	claims, err := ReadClaims(t.Context(), &storage{}, instance)
	if err != nil || len(claims) != 1 || claims[stateclaim.Volume].ClaimName != stateclaim.ClaimName(instance) {
		t.Errorf("%+v, %v", claims, err)
	}
	if claims, err = ReadClaims(t.Context(), &withoutClaims{}, instance); err != nil || len(claims) != 0 {
		t.Errorf("without it: %+v, %v", claims, err)
	}
	instance.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}}}
	if _, err = ReadClaims(t.Context(), &withoutClaims{}, instance); !apierrors.IsNotFound(err) {
		t.Errorf("without a disk: %v", err)
	}
}

func TestOtherEventsAreNoneOfTheDisks(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]bool{
		"DEVICE_DELETED": true, "DEVICE_UNPLUG_GUEST_ERROR": true, "DEVICE_TRAY_MOVED": true, "RESUME": false, "STOP": false,
	} {
		if got := w.HandleEvent(qmp.Event{Name: name, Data: []byte(`{"device": "disk-a"}`)}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if w.HandleEvent(qmp.Event{Name: "DEVICE_DELETED", Data: []byte(`"?"`)}) {
		t.Error("an event that makes no sense counts")
	}
}
