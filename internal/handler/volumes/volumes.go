// Package volumes looks after the persistent volumes of a guest: what a VMI's claims are, the
// disks that are plugged into one QEMU and taken out of it, and those that grow with their
// claims.
//
// What a Volumes knows belongs to one QEMU; the VMI's other QEMUs have their own. It decides
// what to plug by package nodehotplug and what grows in decide.go, and must not write a VMI's
// status: Observe gives what it should say of each volume.
package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmstate"
)

// commandTimeout bounds the questions to QEMU in one look, and a command.
const commandTimeout = 10 * time.Second

// Cluster is the API server as far as it is needed here.
type Cluster interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// Event reports to the VM's owner what happened; it never fails or waits.
	Event(vmi *v1.VirtualMachineInstance, eventType, reason, message string)
}

// Opener opens volumes in the kubelet's folders (podpath.Volumes).
type Opener interface {
	Open(id podpath.VolumeID) (*podpath.Volume, error)
}

// Env is what a Volumes needs of its surroundings.
type Env struct {
	// Namespace is that of the VMI, and of its claims.
	Namespace string
	Cluster   Cluster
	Opener    Opener
	// Tolerated is how much smaller than its claim, in percent, a disk may be that is made.
	Tolerated func() int
	// Label gives files that are made the launcher's SELinux context; nil without.
	Label podpath.Labeler
	// Go runs what may wait for storage, on a goroutine that the owner waits for.
	Go func(func())
	// Wake is called when there is something to look at.
	Wake func()
	Now  func() time.Time
	Log  logr.Logger
}

// Volumes are those of one QEMU. HandleEvent may be called from any goroutine, the other
// methods from one.
type Volumes struct {
	env    Env
	worker *nodehotplug.Worker

	mu      sync.Mutex
	growing growing
}

// New gives the Volumes of a QEMU whose monitor is about to be connected.
func New(env Env) *Volumes {
	v := &Volumes{env: env, growing: newGrowing()}
	v.worker = nodehotplug.NewWorker(nodehotplug.Env{Volume: v.open, Capacity: v.capacity, Tolerated: env.Tolerated, Go: env.Go, Wake: env.Wake, Now: env.Now})
	return v
}

// Close lets go of what was opened and not plugged.
func (v *Volumes) Close() { v.worker.Close() }

// HandleEvent takes note of QEMU's events about disks, and reports whether Tend is to be
// called for it.
func (v *Volumes) HandleEvent(e qmp.Event) bool {
	var data struct {
		Device string `json:"device"`
	}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) != nil {
		return false // none of the events that a disk waits for
	}
	v.worker.HandleEvent(e.Name, data.Device)
	switch e.Name {
	case "DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "DEVICE_TRAY_MOVED":
		return true
	}
	return false
}

// View is what is looked at beside QEMU.
type View struct {
	VMI            *v1.VirtualMachineInstance
	AttachmentPods []hotplug.Pod
	// LauncherPod has the claims that are not hotplugged.
	LauncherPod types.UID
	// Images are the disks that QEMU has been started with.
	Images map[string]launch.PreparedImage
	// Claims are those of the launcher pod.
	Claims Claims
	// Halted means that the guest's CPUs have never been started.
	Halted bool
	// Still means that the guest is to keep what it has: it is being migrated.
	Still bool
}

// Arrival is what is looked at beside QEMU when that waits for a guest.
type Arrival struct {
	VMI            *v1.VirtualMachineInstance
	AttachmentPods []hotplug.Pod
	// Disks are those that come with the guest, beside those that it was started with.
	Disks []nodehotplug.PluggedDisk
	// Copied are the sizes, by volume, of those whose content the source copies to their claims here.
	Copied map[string]int64
}

// Tend looks at the volumes, makes grow what can, and reports whether Act has something to
// do, or when to call Tend again; 0 for when something happens.
func (v *Volumes) Tend(ctx context.Context, m diskhotplug.Monitor, view View) (due bool, after time.Duration) {
	grow := v.grow(ctx, m, view)
	due, after = v.look(ctx, m, view)
	return due, backoff.Sooner(after, grow)
}

// look reports whether there is something to be done about the hotplugged disks, or when there
// will be. A guest that is to end keeps what it has.
func (v *Volumes) look(ctx context.Context, m diskhotplug.Monitor, view View) (due bool, after time.Duration) {
	if view.VMI.DeletionTimestamp != nil || view.VMI.IsFinal() {
		return false, 0
	}
	record, err := hotplug.RecordOf(view.VMI)
	if err != nil {
		v.env.Log.Error(err, "no volume is handed over", "vmi", view.VMI.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	due, after, err = v.worker.Look(ctx, m, nodehotplug.View{
		VMI: view.VMI, Record: record, AttachmentPods: view.AttachmentPods, Halted: view.Halted, Still: view.Still,
	})
	if err != nil {
		v.env.Log.Info("a step failed", "step", guestlifecycle.Plug, "reason", err.Error())
	}
	return due, after
}

// Receive does what Tend does for a QEMU that waits for a guest.
func (v *Volumes) Receive(ctx context.Context, m diskhotplug.Monitor, a Arrival) (due bool, after time.Duration) {
	record, _ := hotplug.Arrivals(a.VMI, a.AttachmentPods)
	view := nodehotplug.View{
		VMI: a.VMI, Record: record, AttachmentPods: a.AttachmentPods, Halted: true, Arriving: true, Places: map[string]machine.Slot{}, Copied: a.Copied,
	}
	for _, d := range a.Disks {
		view.Places[d.Volume] = d.Place
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	due, after, err := v.worker.Look(ctx, m, view)
	if err != nil {
		v.env.Log.Info("a step failed", "step", guestlifecycle.Plug, "reason", err.Error())
	}
	return due, after
}

// Act plugs and unplugs what the last Tend has found to be due. What fails is reported in the
// volumes' own status and is tried again by itself.
func (v *Volumes) Act(ctx context.Context, m diskhotplug.Monitor, in machine.Input) {
	v.worker.Act(ctx, m, in)
}

// Facts are what is known of a guest's volumes.
type Facts struct {
	// Hotplugged are the volumes of which the last Tend has something to say on this
	// version of the VMI.
	Hotplugged map[string]guestlifecycle.Plugged
	// Plugged are the volumes of the spec that QEMU has.
	Plugged map[string]bool
	// Grown are the sizes in bytes that disks have grown to.
	Grown map[string]int64
	// Plugs are the disks of a guest that is being migrated away, and Settled means that they stay as
	// they are. Received means that QEMU has all disks of a guest that it waits for.
	Plugs    nodehotplug.Plugs
	Settled  bool
	Received bool
}

// Observe gives what is known, for the status of a VMI. It asks nobody.
func (v *Volumes) Observe(instance *v1.VirtualMachineInstance) Facts {
	facts := Facts{Hotplugged: map[string]guestlifecycle.Plugged{}, Plugged: v.worker.Plugged(instance)}
	facts.Plugs, facts.Settled = v.worker.Still()
	facts.Received = v.worker.Received(instance)
	for name, f := range v.worker.Facts(instance) {
		facts.Hotplugged[name] = guestlifecycle.Plugged{
			Phase: f.Phase, Reason: f.Reason, Message: f.Message,
			PodName: f.PodName, PodUID: f.PodUID, Size: f.Size,
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	facts.Grown = v.growing.grown()
	return facts
}

// capacity is the size that one of the VMI's claims was given, or asked for.
func (v *Volumes) capacity(ctx context.Context, claim string) (int64, error) {
	found, err := v.env.Cluster.Claim(ctx, v.env.Namespace, claim)
	if err != nil {
		return 0, fmt.Errorf("reading PVC %s/%s: %w", v.env.Namespace, claim, err)
	}
	return capacityOf(found.Status.Capacity, found.Spec.Resources.Requests), nil
}

// capacityOf is what a claim was given, or, before it was, asked for.
func capacityOf(given, requested corev1.ResourceList) int64 {
	size, ok := given[corev1.ResourceStorage]
	if !ok {
		size = requested[corev1.ResourceStorage]
	}
	return size.Value()
}

// Claims are what is known of a VMI's claims, by volume.
type Claims map[string]*v1.PersistentVolumeClaimInfo

// ReadClaims reads a VMI's claims.
func ReadClaims(ctx context.Context, cluster Cluster, instance *v1.VirtualMachineInstance) (Claims, error) {
	claims := Claims{}
	for volume, name := range guestlifecycle.Claims(instance) {
		claim, err := cluster.Claim(ctx, instance.Namespace, name)
		if volume == vmstate.Volume && apierrors.IsNotFound(err) {
			// Its guest may run all the same: another VM of the name has adopted the VMI (decision 441).
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading PVC %s/%s: %w", instance.Namespace, name, err)
		}
		claims[volume] = &v1.PersistentVolumeClaimInfo{
			ClaimName: name, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			Capacity: claim.Status.Capacity, Requests: claim.Spec.Resources.Requests,
		}
	}
	return claims, nil
}

// Capacity is the size that a claim was given, or asked for.
func (c Claims) Capacity(_ context.Context, claim string) (int64, error) {
	for _, info := range c {
		if info.ClaimName == claim {
			return capacityOf(info.Capacity, info.Requests), nil
		}
	}
	return 0, fmt.Errorf("PVC %s is none of the VMI's", claim)
}
