package nodehotplug

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Observed is the input of Decide.
type Observed struct {
	VMI            *v1.VirtualMachineInstance
	Record         hotplug.Record
	AttachmentPods []hotplug.Pod
	Disks          map[string]diskhotplug.Disk
	// Opened has, by volume, the attachment pod whose disk is open and not plugged.
	Opened map[string]types.UID
	// Halted means that the guest's CPUs have never been started.
	Halted bool
	// Verified has, by volume, the newer attachment pod in which the disk was opened.
	Verified map[string]types.UID
	// Arriving means that QEMU waits for a guest with disks in Places. Record has their attachment pods here.
	Arriving bool
	Places   map[string]machine.Slot
	// Copied has the sizes in bytes, by volume, of disks that the source copies to their claims here.
	Copied map[string]int64
}

// Action is the action on a volume.
type Action string

// The actions on a volume.
const (
	Rest   Action = ""
	Open   Action = "Open"
	Plug   Action = "Plug"
	Verify Action = "Verify" // open the disk in a newer attachment pod, and close it
	Drop   Action = "Drop"   // close an open disk that is not wanted
	Ask    Action = "Ask"    // the guest to release the disk
	Eject  Action = "Eject"  // the medium from an open tray
	Force  Action = "Force"  // take the disk from a guest that does not release it
	Clear  Action = "Clear"  // QEMU's parts of a disk that the guest does not have
)

// Decision is about one volume.
type Decision struct {
	Volume, Claim string
	Action        Action
	Source        hotplug.Pod   // for Open, Plug and Verify
	Place         *machine.Slot // nil for any free one
	// Size is of an image that Open makes, in bytes, 0 for the claim's capacity.
	Size int64
	// Phase is empty if virt-handler does not write the status.
	Phase           v1.VolumePhase
	PodName         string
	PodUID          types.UID
	Reason, Message string
}

// Reasons of a volume's status: KubeVirt's, where it has one.
const (
	ReasonReady     = "VolumeReady"
	ReasonMounted   = "VolumeMountedToPod"
	ReasonUnmounted = "VolumeUnMountedFromPod"
	ReasonDetaching = "DetachingVolume"
	ReasonPodGone   = "AttachmentPodGone"
	ReasonFailed    = "FailedHotplug"
	ReasonRefused   = "GuestRefused"
	ReasonForced    = "VolumeForcedOut"
	ReasonDetached  = "GuestKeepsForcedDisk"
)

// Decide decides about every hotplugged volume, sorted by name.
func Decide(o Observed) []Decision {
	names := map[string]bool{}
	for i := range o.VMI.Spec.Volumes {
		if v := &o.VMI.Spec.Volumes[i]; machine.Hotpluggable(v) {
			names[v.Name] = true
		}
	}
	for i := range o.VMI.Status.VolumeStatus {
		if s := &o.VMI.Status.VolumeStatus[i]; s.HotplugVolume != nil && s.MemoryDumpVolume == nil {
			names[s.Name] = true
		}
	}
	for name := range o.Disks {
		names[name] = true
	}
	for name := range o.Opened {
		names[name] = true
	}
	for name := range o.Places {
		names[name] = true
	}
	var list []Decision
	for name := range names {
		list = append(list, o.decide(name))
	}
	slices.SortFunc(list, func(a, b Decision) int { return cmp.Compare(a.Volume, b.Volume) })
	return list
}

type entry struct {
	claim string
	phase v1.VolumePhase
	pod   types.UID
	name  string
}

// attached reports whether the volume is virt-handler's: virt-controller has handed it over, and not got it back.
func (e entry) attached() bool {
	return e.phase == v1.HotplugVolumeAttachedToNode || hotplug.InUse(e.phase)
}

func entryOf(vmi *v1.VirtualMachineInstance, name string) entry {
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.Name != name || s.HotplugVolume == nil {
			continue
		}
		e := entry{phase: s.Phase, pod: s.HotplugVolume.AttachPodUID, name: s.HotplugVolume.AttachPodName}
		if s.PersistentVolumeClaimInfo != nil {
			e.claim = s.PersistentVolumeClaimInfo.ClaimName
		}
		return e
	}
	return entry{}
}

func (o Observed) decide(name string) Decision {
	e, disk, claim := entryOf(o.VMI, name), o.Disks[name], Claim(&o.VMI.Spec, name)
	// The remains of a disk that was forced out belong to no claim.
	has := disk.Stage != diskhotplug.Absent && !disk.Detached
	wanted := claim != "" && e.phase != v1.HotplugVolumeDetaching && e.claim == claim && (!has || disk.Claim == claim)
	d := Decision{Volume: name, Claim: e.claim}
	if o.Arriving {
		o.decideArriving(&d, e, disk)
		return d
	}
	if has {
		d.Claim = disk.Claim
	}
	switch {
	case disk.Stage == diskhotplug.Partial:
		o.decidePartial(&d, e, disk, wanted)
	case !wanted:
		o.decideUnplug(&d, e, disk)
	case disk.Stage == diskhotplug.Plugged:
		o.decidePlugged(&d, e)
	case disk.Stage == diskhotplug.Detached:
		d.Action = Ask
		if e.attached() {
			d.setStatus(e.phase, e, ReasonDetached, "the guest still has the disk of this name that was forced out; the volume is plugged in when the guest releases that disk or is restarted")
		}
	case e.attached():
		o.decidePlug(&d, e)
	}
	return d
}

// An arriving guest's disk is plugged in the same place as at the source, whatever the spec says.
func (o Observed) decideArriving(d *Decision, e entry, disk diskhotplug.Disk) {
	place, comes := o.Places[d.Volume]
	_, opened := o.Opened[d.Volume]
	switch {
	case disk.Stage == diskhotplug.Partial && !disk.Bare:
		d.Action = Clear
	case comes && disk.Stage != diskhotplug.Plugged && hotplug.InUse(e.phase):
		d.Place, d.Size = &place, o.Copied[d.Volume]
		o.decidePlug(d, e)
	case opened:
		d.Action = Drop
	}
}

func (o Observed) decidePartial(d *Decision, e entry, disk diskhotplug.Disk, wanted bool) {
	if disk.Bare && o.Halted && wanted && e.attached() {
		// A plug has failed. QEMU 7.2 keeps the descriptor until the guest runs, and the guest waits for the disk: plug
		// the disk beside it.
		o.decidePlug(d, e)
		return
	}
	d.Action = Clear
	if !wanted && e.attached() {
		d.setStatus(v1.HotplugVolumeDetaching, e, ReasonDetaching, "the guest has released the disk, QEMU has not yet")
	}
}

func (o Observed) decideUnplug(d *Decision, e entry, disk diskhotplug.Disk) {
	_, opened := o.Opened[d.Volume]
	switch {
	case disk.Stage == diskhotplug.Plugged:
		d.Action = Ask
		switch {
		case disk.Drive && disk.TrayOpen:
			d.Action = Eject
		case hotplugspec.Forced(o.VMI, d.Volume):
			d.Action = Force
		}
		if e.attached() {
			d.setStatus(v1.HotplugVolumeDetaching, e, ReasonDetaching, "waiting for the guest to release the disk")
		}
	case disk.Stage == diskhotplug.Detached:
		d.Action = Ask
		if e.attached() {
			d.setStatus(v1.HotplugVolumeUnMounted, e, ReasonForced, fmt.Sprintf("Volume %s has been taken from the guest by force: what the guest still does with its disk fails", d.Volume))
		}
	case opened:
		d.Action = Drop
	case e.attached():
		d.setStatus(v1.HotplugVolumeUnMounted, e, ReasonUnmounted, fmt.Sprintf("Volume %s has been unmounted from virt-launcher pod", d.Volume))
	}
}

func (o Observed) decidePlug(d *Decision, e entry) {
	source := o.sourcePod(d.Volume, e)
	opened, isOpen := o.Opened[d.Volume]
	switch {
	case isOpen && (source == nil || opened != source.UID):
		d.Action = Drop
	case source == nil:
		// virt-controller names another pod.
	case isOpen:
		d.Action, d.Source = Plug, *source
	default:
		d.Action, d.Source = Open, *source
	}
}

// sourcePod returns the pod that the status names or, for a volume in use, its successor: virt-controller names only the
// first pod.
func (o Observed) sourcePod(volume string, e entry) *hotplug.Pod {
	v := hotplug.Volume{Name: volume, Claim: e.claim}
	if named, ok := o.attachmentPod(e.pod); ok && named.Alive() && named.Holds(v) {
		return &named
	}
	if hotplug.InUse(e.phase) {
		return hotplug.Successor(o.Record, v, o.AttachmentPods)
	}
	return nil
}

func (o Observed) decidePlugged(d *Decision, e entry) {
	if _, opened := o.Opened[d.Volume]; opened {
		d.Action = Drop
	}
	if !e.attached() {
		return
	}
	next := hotplug.Successor(o.Record, hotplug.Volume{Name: d.Volume, Claim: e.claim}, o.AttachmentPods)
	if next != nil && next.UID != e.pod {
		if o.Verified[d.Volume] != next.UID {
			d.Action, d.Source = Verify, *next
		} else {
			e.name, e.pod = next.Name, next.UID
		}
	}
	serving, ok := o.attachmentPod(e.pod)
	switch {
	case ok && serving.Alive():
		d.setStatus(v1.VolumeReady, e, ReasonReady, fmt.Sprintf("Successfully attach hotplugged volume %s to VM", d.Volume))
	case d.Action == Verify:
		// The next pod follows. A failure is reported after the attempt.
	case e.phase != v1.HotplugVolumeAttachedToNode:
		d.setStatus(e.phase, e, ReasonPodGone, fmt.Sprintf("the guest keeps the disk although its attachment pod %s does not run any more", e.name))
	}
	// Otherwise virt-controller names another pod.
}

func (d *Decision) setStatus(phase v1.VolumePhase, e entry, reason, message string) {
	d.Phase, d.PodName, d.PodUID, d.Reason, d.Message = phase, e.name, e.pod, reason, message
}

func (o Observed) attachmentPod(uid types.UID) (hotplug.Pod, bool) {
	for _, p := range o.AttachmentPods {
		if p.UID == uid {
			return p, true
		}
	}
	return hotplug.Pod{}, false
}

// Claim returns the claim of a hotpluggable volume, empty for any other.
func Claim(spec *v1.VirtualMachineInstanceSpec, volume string) string {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Name == volume && machine.Hotpluggable(v) {
			return volumeclaim.Disk(&v.VolumeSource)
		}
	}
	return ""
}
