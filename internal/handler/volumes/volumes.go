// Package volumes manages the persistent volumes of a guest: a VMI's claims, the disks that are plugged into one QEMU
// and unplugged from it, and those that grow with their claims.
//
// A Volumes belongs to one QEMU; the VMI's other QEMUs have their own. Package nodehotplug decides about plugging, and
// decide.go about growth. The package must not write a VMI's status: Observe returns its part of each volume's.
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
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// commandTimeout limits the queries to QEMU in one look, and one command.
const commandTimeout = 10 * time.Second

// Cluster is the used part of the API server.
type Cluster interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// Event records an event on the VMI. It never fails or blocks.
	Event(vmi *v1.VirtualMachineInstance, eventType, reason, message string)
}

// Opener opens volumes in the kubelet's folders (podpath.Volumes).
type Opener interface {
	Open(id podpath.VolumeID) (*podpath.Volume, error)
}

// Env has a Volumes' dependencies.
type Env struct {
	Namespace string
	Cluster   Cluster
	Opener    Opener
	// Tolerated is how much smaller than its claim a new disk may be, in percent.
	Tolerated func() int
	// Label gives new files the launcher's SELinux context, nil without SELinux.
	Label podpath.Labeler
	// Go runs a function that may wait for storage, on a goroutine for which the owner waits.
	Go func(func())
	// Wake is called after a change.
	Wake func()
	Now  func() time.Time
	Log  logr.Logger
}

// Volumes are those of one QEMU. HandleEvent may be called from any goroutine, the other methods from one.
type Volumes struct {
	env    Env
	worker *nodehotplug.Worker

	mu      sync.Mutex
	growing growing
}

// New returns the Volumes of a QEMU before its monitor is connected.
func New(env Env) *Volumes {
	v := &Volumes{env: env, growing: newGrowing()}
	v.worker = nodehotplug.NewWorker(nodehotplug.Env{Volume: v.open, Capacity: v.capacity, Tolerated: env.Tolerated, Go: env.Go, Wake: env.Wake, Now: env.Now})
	return v
}

// Close closes the opened volumes that were not plugged.
func (v *Volumes) Close() { v.worker.Close() }

// HandleEvent records QEMU's events about disks, and reports whether Tend must be called.
func (v *Volumes) HandleEvent(e qmp.Event) bool {
	var data struct {
		Device string `json:"device"`
	}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) != nil {
		return false // not one of the awaited events
	}
	v.worker.HandleEvent(e.Name, data.Device)
	switch e.Name {
	case "DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "DEVICE_TRAY_MOVED":
		return true
	}
	return false
}

// View is the state outside of QEMU.
type View struct {
	VMI            *v1.VirtualMachineInstance
	AttachmentPods []hotplug.Pod
	// LauncherPod has the claims that are not hotplugged.
	LauncherPod types.UID
	// Images are the disks with which QEMU was started.
	Images map[string]launch.PreparedImage
	Claims Claims
	// Halted means that the guest's CPUs have never been started.
	Halted bool
	// Still means that nothing may be plugged or resized: the guest is being migrated.
	Still bool
}

// Arrival is the state outside of a QEMU that waits for a guest.
type Arrival struct {
	VMI            *v1.VirtualMachineInstance
	AttachmentPods []hotplug.Pod
	// Disks come with the guest, beside those that it was started with.
	Disks []nodehotplug.PluggedDisk
	// Copied are the sizes, by volume, of the disks that the source copies to their claims here.
	Copied map[string]int64
}

// Tend looks at the volumes and starts growth. It reports whether Act has work, or when to call Tend again, 0 for after
// the next event.
func (v *Volumes) Tend(ctx context.Context, m diskhotplug.Monitor, view View) (due bool, after time.Duration) {
	grow := v.grow(ctx, m, view)
	due, after = v.updateDisks(ctx, m, view)
	return due, backoff.Sooner(after, grow)
}

// updateDisks reports whether a hotplugged disk needs work, or when it will. The disks of an ending guest stay.
func (v *Volumes) updateDisks(ctx context.Context, m diskhotplug.Monitor, view View) (due bool, after time.Duration) {
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
		v.env.Log.Info("a step failed", "step", vmihandler.Plug, "reason", err.Error())
	}
	return due, after
}

// Receive is Tend for a QEMU that waits for a guest.
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
		v.env.Log.Info("a step failed", "step", vmihandler.Plug, "reason", err.Error())
	}
	return due, after
}

// Act plugs and unplugs the disks that the last Tend found due. A failure is reported in the volume's status and
// retried.
func (v *Volumes) Act(ctx context.Context, m diskhotplug.Monitor, in machine.Input) {
	v.worker.Act(ctx, m, in)
}

// Facts are the state of a guest's volumes.
type Facts struct {
	// Hotplugged are the volumes with a status from the last Tend for this version of the VMI.
	Hotplugged map[string]vmihandler.Plugged
	// Plugged are the volumes of the spec that QEMU has.
	Plugged map[string]bool
	// Grown are the sizes of grown disks, in bytes.
	Grown map[string]int64
	// Plugs are the disks of a guest that is being migrated away, and Settled means that they no longer change.
	// Received means that QEMU has all disks of the guest that it waits for.
	Plugs    nodehotplug.Plugs
	Settled  bool
	Received bool
}

// Observe returns the state for the status of a VMI. It queries nothing.
func (v *Volumes) Observe(instance *v1.VirtualMachineInstance) Facts {
	facts := Facts{Hotplugged: map[string]vmihandler.Plugged{}, Plugged: v.worker.Plugged(instance)}
	facts.Plugs, facts.Settled = v.worker.Still()
	facts.Received = v.worker.Received(instance)
	for name, f := range v.worker.Facts(instance) {
		facts.Hotplugged[name] = vmihandler.Plugged{
			Phase: f.Phase, Reason: f.Reason, Message: f.Message,
			PodName: f.PodName, PodUID: f.PodUID, Size: f.Size,
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	facts.Grown = v.growing.grown()
	return facts
}

func (v *Volumes) capacity(ctx context.Context, claim string) (int64, error) {
	found, err := v.env.Cluster.Claim(ctx, v.env.Namespace, claim)
	if err != nil {
		return 0, fmt.Errorf("reading PVC %s/%s: %w", v.env.Namespace, claim, err)
	}
	return capacityOf(found.Status.Capacity, found.Spec.Resources.Requests), nil
}

func capacityOf(given, requested corev1.ResourceList) int64 {
	size, ok := given[corev1.ResourceStorage]
	if !ok {
		size = requested[corev1.ResourceStorage]
	}
	return size.Value()
}

// Claims are a VMI's claims, by volume.
type Claims map[string]*v1.PersistentVolumeClaimInfo

// ReadClaims reads a VMI's claims.
func ReadClaims(ctx context.Context, cluster Cluster, instance *v1.VirtualMachineInstance) (Claims, error) {
	claims := Claims{}
	for volume, name := range vmihandler.Claims(instance) {
		claim, err := cluster.Claim(ctx, instance.Namespace, name)
		if volume == stateclaim.Volume && apierrors.IsNotFound(err) {
			// The guest may run without it: another VM of the name has adopted the VMI (decision 441).
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

// Capacity returns the capacity of a claim, or the requested size.
func (c Claims) Capacity(_ context.Context, claim string) (int64, error) {
	for _, info := range c {
		if info.ClaimName == claim {
			return capacityOf(info.Capacity, info.Requests), nil
		}
	}
	return 0, fmt.Errorf("PVC %s is none of the VMI's", claim)
}
