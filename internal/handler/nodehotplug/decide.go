package nodehotplug

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplugspec"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// Observed is what is decided on.
type Observed struct {
	VMI    *v1.VirtualMachineInstance
	Record hotplug.Record
	// AttachmentPods are those on this node.
	AttachmentPods []hotplug.Pod
	// Disks are what QEMU has, by volume.
	Disks map[string]diskhotplug.Disk
	// Opened says through which attachment pod each volume's disk has been opened, and
	// has not been plugged or let go of since.
	Opened map[string]types.UID
	// Halted means that the guest's CPUs have never been started.
	Halted bool
	// Verified says in which attachment pod each volume's disk was seen to be there, too.
	Verified map[string]types.UID
	// Arriving means that QEMU waits for a guest that comes with its disks: Places has where they
	// are, and Record the attachment pods that hold them here.
	Arriving bool
	Places   map[string]machine.Slot
	// Copied are the sizes, by volume, of the disks whose content the source copies to their claims here.
	Copied map[string]int64
}

// Action is what is to be done about one volume.
type Action string

const (
	// Rest does nothing.
	Rest Action = ""
	// Open opens the disk in an attachment pod.
	Open Action = "Open"
	// Plug gives the open disk to the guest.
	Plug Action = "Plug"
	// Verify opens the disk in a newer attachment pod, to see that it is there.
	Verify Action = "Verify"
	// Drop closes a disk that was opened and is not wanted any more.
	Drop Action = "Drop"
	// Ask asks the guest to let go.
	Ask Action = "Ask"
	// Eject takes the medium out of a tray that the guest has opened.
	Eject Action = "Eject"
	// Force takes the disk from a guest that does not let go of it.
	Force Action = "Force"
	// Clear takes away what the guest does not have.
	Clear Action = "Clear"
)

// Decision is about one volume.
type Decision struct {
	Volume, Claim string
	Action        Action
	// Source is the attachment pod in which Open, Plug and Verify find the disk.
	Source hotplug.Pod
	// Place is where the disk is plugged; nil for wherever there is room.
	Place *machine.Slot
	// Size is that of an image that Open makes, 0 for as much as the claim gives.
	Size int64
	// Phase is what the status shall say; empty when it is not for virt-handler to
	// say anything.
	Phase v1.VolumePhase
	// PodName and PodUID are the attachment pod to be named with the phase.
	PodName string
	PodUID  types.UID
	// Message says what the phase alone does not.
	Reason, Message string
}

// Reasons of a volume's status, in KubeVirt's words where it has some.
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

// Decide decides about every volume that comes or goes, sorted by name.
func Decide(o Observed) []Decision {
	names := map[string]bool{}
	for i := range o.VMI.Spec.Volumes {
		if v := &o.VMI.Spec.Volumes[i]; machine.Hotpluggable(v) {
			names[v.Name] = true
		}
	}
	for i := range o.VMI.Status.VolumeStatus {
		if s := &o.VMI.Status.VolumeStatus[i]; s.HotplugVolume != nil {
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

// entry is what the status says of a volume.
type entry struct {
	claim string
	phase v1.VolumePhase
	pod   types.UID
	name  string
}

// attached reports whether virt-controller has given the volume to virt-handler,
// which has not given it back yet.
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
	// What is left of a disk that was forced out is of no claim.
	has := disk.Stage != diskhotplug.Absent && !disk.Detached
	wanted := claim != "" && e.phase != v1.HotplugVolumeDetaching && e.claim == claim && (!has || disk.Claim == claim)
	d := Decision{Volume: name, Claim: e.claim}
	if o.Arriving {
		o.receive(&d, e, disk)
		return d
	}
	if has {
		d.Claim = disk.Claim
	}
	switch {
	case disk.Stage == diskhotplug.Partial:
		o.clear(&d, e, disk, wanted)
	case !wanted:
		o.takeOut(&d, e, disk)
	case disk.Stage == diskhotplug.Plugged:
		o.keep(&d, e)
	case disk.Stage == diskhotplug.Detached:
		d.Action = Ask
		if e.attached() {
			d.say(e.phase, e, ReasonDetached, "the guest still has the disk of this name that was forced out; the volume is plugged in when the guest releases that disk or is restarted")
		}
	case e.attached():
		o.bringIn(&d, e)
	}
	return d
}

// receive is for a disk of a guest that arrives: it is plugged in where it is in the source, whatever
// the spec says by now. Nothing is said of it in the status.
func (o Observed) receive(d *Decision, e entry, disk diskhotplug.Disk) {
	place, comes := o.Places[d.Volume]
	_, opened := o.Opened[d.Volume]
	switch {
	case disk.Stage == diskhotplug.Partial && !disk.Bare:
		d.Action = Clear
	case comes && disk.Stage != diskhotplug.Plugged && hotplug.InUse(e.phase):
		d.Place, d.Size = &place, o.Copied[d.Volume]
		o.bringIn(d, e)
	case opened:
		d.Action = Drop
	}
}

// clear is for a disk of which QEMU has only a part.
func (o Observed) clear(d *Decision, e entry, disk diskhotplug.Disk, wanted bool) {
	if disk.Bare && o.Halted && wanted && e.attached() {
		// A plug that failed. QEMU 7.2 keeps the descriptor until the guest runs, and
		// the guest may not run before the disk is there: it is plugged beside that.
		o.bringIn(d, e)
		return
	}
	d.Action = Clear
	if !wanted && e.attached() {
		d.say(v1.HotplugVolumeDetaching, e, ReasonDetaching, "the guest has released the disk, QEMU has not yet")
	}
}

// takeOut is for a volume that nobody wants, or not on this claim.
func (o Observed) takeOut(d *Decision, e entry, disk diskhotplug.Disk) {
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
			d.say(v1.HotplugVolumeDetaching, e, ReasonDetaching, "waiting for the guest to release the disk")
		}
	case disk.Stage == diskhotplug.Detached:
		d.Action = Ask
		if e.attached() {
			d.say(v1.HotplugVolumeUnMounted, e, ReasonForced, fmt.Sprintf("Volume %s has been taken from the guest by force: what the guest still does with its disk fails", d.Volume))
		}
	case opened:
		d.Action = Drop
	case e.attached():
		d.say(v1.HotplugVolumeUnMounted, e, ReasonUnmounted, fmt.Sprintf("Volume %s has been unmounted from virt-launcher pod", d.Volume))
	}
}

// bringIn is for a volume that an attachment pod has and QEMU has not.
func (o Observed) bringIn(d *Decision, e entry) {
	source := o.source(d.Volume, e)
	opened, isOpen := o.Opened[d.Volume]
	switch {
	case isOpen && (source == nil || opened != source.UID):
		d.Action = Drop
	case source == nil:
		// Its end is seen by virt-controller, too, which finds another.
	case isOpen:
		d.Action, d.Source = Plug, *source
	default:
		d.Action, d.Source = Open, *source
	}
}

// source is the attachment pod to bring a volume in from: the one that the status names. Where
// that one is gone, a volume that the guest had before comes from the next, as a
// handover has it, because virt-controller names the first one only.
func (o Observed) source(volume string, e entry) *hotplug.Pod {
	v := hotplug.Volume{Name: volume, Claim: e.claim}
	if named, ok := o.attachmentPod(e.pod); ok && named.Alive() && named.Holds(v) {
		return &named
	}
	if hotplug.InUse(e.phase) {
		return hotplug.Successor(o.Record, v, o.AttachmentPods)
	}
	return nil
}

// keep is for a volume that the guest has and shall have.
func (o Observed) keep(d *Decision, e entry) {
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
		d.say(v1.VolumeReady, e, ReasonReady, fmt.Sprintf("Successfully attach hotplugged volume %s to VM", d.Volume))
	case d.Action == Verify:
		// The next one follows, as in every guest that has arrived from another node; that it can't is said when it has been tried.
	case e.phase != v1.HotplugVolumeAttachedToNode:
		d.say(e.phase, e, ReasonPodGone, fmt.Sprintf("the guest keeps the disk although its attachment pod %s does not run any more", e.name))
	}
	// Else virt-controller names another pod.
}

func (d *Decision) say(phase v1.VolumePhase, e entry, reason, message string) {
	d.Phase, d.PodName, d.PodUID, d.Reason, d.Message = phase, e.name, e.pod, reason, message
}

// attachmentPod finds one by what names it in the status.
func (o Observed) attachmentPod(uid types.UID) (hotplug.Pod, bool) {
	for _, p := range o.AttachmentPods {
		if p.UID == uid {
			return p, true
		}
	}
	return hotplug.Pod{}, false
}

// Claim is the claim of a hotpluggable volume; empty when the spec has
// no such volume.
func Claim(spec *v1.VirtualMachineInstanceSpec, volume string) string {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Name == volume && machine.Hotpluggable(v) {
			return volumeclaim.Disk(&v.VolumeSource)
		}
	}
	return ""
}
