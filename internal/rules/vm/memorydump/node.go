package memorydump

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

// Progress is QEMU's status of its last dump.
type Progress string

// The statuses are QEMU's. QEMU has at most one dump, and does not say of which file.
const (
	None      Progress = "none"
	Active    Progress = "active"
	Completed Progress = "completed"
	Failed    Progress = "failed"
)

// Work is the state of a file in this virt-handler. The next one begins with the zero value.
type Work struct {
	Busy     bool // an action is not at its end
	Prepared bool // the partial file is open
	Sent     bool // QEMU writes to it, or has
	Stored   bool // the file has its name
	Cleaned  bool // the partial file is gone, or can't be deleted
	Failure  string
	Ended    time.Time // when Stored or Failure was set
}

// OnNode is the input of DecideOnNode.
type OnNode struct {
	VMI    *v1.VirtualMachineInstance
	Name   string // of the volume
	Record hotplug.Record
	Pods   []hotplug.Pod
	// May means that the guest can be dumped now: it runs here, and does not migrate.
	May   bool
	QEMU  Progress
	Error string // QEMU's, of a dump of this virt-handler that has failed
	Work  Work   // of the file in the status
	Now   time.Time
}

// Action is virt-handler's next action.
type Action string

// The actions. Send is QEMU's, the others are on the claim's files.
const (
	Rest    Action = ""
	Prepare Action = "Prepare" // find the file of a virt-handler before, or make a new one
	Send    Action = "Send"    // give the file to QEMU, which begins
	Finish  Action = "Finish"  // store the file and give it its name
	Clean   Action = "Clean"   // delete the partial file
)

// Decision is virt-handler's next step for a volume.
type Decision struct {
	Action      Action
	File, Claim string
	Source      hotplug.Pod // has the claim, for all actions but Send
	// Phase is empty if the status stays.
	Phase           v1.VolumePhase
	Reason, Message string
	PodName         string
	PodUID          types.UID
	Info            *v1.DomainMemoryDumpInfo
}

// Reasons of the volume's status.
const (
	reasonDump      = "MemoryDump"
	reasonDetaching = "DetachingVolume"
	reasonUnmounted = "VolumeUnMountedFromPod"
)

// DecideOnNode returns the next step for a memory dump's volume.
//
//	status            QEMU        action
//	AttachedToNode    –           name the file in the status: InProgress
//	InProgress        –           Prepare, then Send
//	                  active      wait
//	                  completed   Finish: Completed
//	                  failed      Clean: Failed
//	not wanted        active      Detaching: QEMU can't be interrupted
//	                  other       Clean: UnMountedFromPod
//
// A virt-handler that has not sent a file can't know whose dump QEMU reports: Prepare finds out by the files.
func DecideOnNode(o OnNode) Decision {
	s := StatusOf(o.VMI, o.Name)
	if s == nil || s.HotplugVolume == nil {
		return Decision{}
	}
	d := Decision{Claim: s.MemoryDumpVolume.ClaimName, File: s.MemoryDumpVolume.TargetFileName, Info: s.MemoryDumpVolume.DeepCopy()}
	d.PodName, d.PodUID = s.HotplugVolume.AttachPodName, s.HotplugVolume.AttachPodUID
	source := o.source(s)
	if source != nil {
		d.Source = *source
		d.PodName, d.PodUID = source.Name, source.UID
	}
	switch v := VolumeOf(o.VMI, o.Name); {
	case v == nil || v.ClaimName != d.Claim:
		o.release(&d, s, source != nil)
	case s.Phase == v1.HotplugVolumeAttachedToNode:
		o.begin(&d, source != nil)
	case s.Phase == v1.MemoryDumpVolumeInProgress:
		o.proceed(&d, s, source != nil)
	case hotplug.InUse(s.Phase):
		d.report(s.Phase, s.Reason, s.Message) // with the pod
	}
	return d
}

// source returns the pod that the status names or, when that is gone, its successor.
func (o *OnNode) source(s *v1.VolumeStatus) *hotplug.Pod {
	v := hotplug.Volume{Name: o.Name, Claim: s.MemoryDumpVolume.ClaimName}
	for i := range o.Pods {
		if p := &o.Pods[i]; p.UID == s.HotplugVolume.AttachPodUID && p.Alive() && p.Holds(v) {
			return p
		}
	}
	if hotplug.InUse(s.Phase) {
		return hotplug.Successor(o.Record, v, o.Pods)
	}
	return nil
}

func (d *Decision) report(phase v1.VolumePhase, reason, message string) {
	d.Phase, d.Reason, d.Message = phase, reason, message
}

func (o *OnNode) begin(d *Decision, held bool) {
	if !held || !o.May {
		return
	}
	d.Info.TargetFileName = FileName(o.VMI.Name, d.Claim, o.Now)
	d.Info.StartTimestamp, d.Info.EndTimestamp = timestamp(o.Now), nil
	d.report(v1.MemoryDumpVolumeInProgress, reasonDump, fmt.Sprintf("The guest's memory is being dumped to the PVC %s.", d.Claim))
}

func (o *OnNode) proceed(d *Decision, s *v1.VolumeStatus, held bool) {
	d.report(s.Phase, s.Reason, s.Message)
	failure := o.Work.Failure
	if failure == "" && o.Work.Sent && (o.QEMU == Failed || o.QEMU == None) {
		failure = "QEMU could not write the dump"
		if o.Error != "" {
			failure += ": " + o.Error
		}
	}
	switch {
	case o.Work.Busy, o.QEMU == Active: // a dump that is thought to have failed, too: QEMU may have begun it late
	case failure != "" && !o.Work.Cleaned:
		d.act(Clean, held)
	case failure != "":
		d.Info.EndTimestamp = timestamp(o.Work.Ended)
		d.report(v1.MemoryDumpVolumeFailed, reasonDump, failure)
	case o.Work.Stored:
		d.Info.EndTimestamp = timestamp(o.Work.Ended)
		d.report(v1.MemoryDumpVolumeCompleted, reasonDump, fmt.Sprintf("The guest's memory has been dumped to the file %s in the PVC %s.", d.File, d.Claim))
	case o.Work.Sent:
		d.act(Finish, held)
	case !o.May:
	case o.Work.Prepared:
		d.Action = Send
	default:
		d.act(Prepare, held)
	}
}

func timestamp(at time.Time) *metav1.Time { return &metav1.Time{Time: at} }

func (d *Decision) act(action Action, held bool) {
	if held {
		d.Action = action
	}
}

// release takes a claim from a guest that is not to be dumped any more. Without a pod that has the claim, the partial file
// stays there: perhaps no pod will ever get the claim again.
func (o *OnNode) release(d *Decision, s *v1.VolumeStatus, held bool) {
	switch ended := s.Phase == v1.MemoryDumpVolumeCompleted || s.Phase == v1.MemoryDumpVolumeFailed; {
	case s.Phase != v1.HotplugVolumeAttachedToNode && !hotplug.InUse(s.Phase):
		return
	case ended, d.File == "", (o.Work.Cleaned || !held) && !o.Work.Busy && o.QEMU != Active:
		d.report(v1.HotplugVolumeUnMounted, reasonUnmounted, fmt.Sprintf("Volume %s has been unmounted from virt-launcher pod", o.Name))
		return
	case !o.Work.Busy && o.QEMU != Active:
		d.act(Clean, held)
	}
	d.report(v1.HotplugVolumeDetaching, reasonDetaching, "the claim is released when QEMU has finished the memory dump")
}
