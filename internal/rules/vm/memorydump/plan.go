package memorydump

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
)

const (
	guestEnded  = "the guest has ended before its memory was dumped: start the VM and ask again"
	volumeGone  = "the claim was taken from the guest before its memory was dumped: ask again"
	unserved    = "the guest's node has released the claim without a dump: ask again when virt-handler there is updated"
	unknownFail = "the memory was not dumped: ask again"
)

// Observed is the input of Decide.
type Observed struct {
	Request *v1.VirtualMachineMemoryDumpRequest // the VM's, nil for none
	// VMI is the VM's own, nil for none. Asked means that the API server was asked for it: a cache may be behind the request.
	VMI   *v1.VirtualMachineInstance
	Asked bool
	Now   time.Time
}

// Plan is the VM's new request, nil for none, and the VMI's utility volumes. Request is written after them.
type Plan struct {
	Request *v1.VirtualMachineMemoryDumpRequest
	Volumes []v1.UtilityVolume
	Changed bool // Volumes differ from the VMI's
	Ask     bool // for the VMI; then another plan is made
}

type planning struct {
	Plan
	o     Observed
	guest bool // there is one, and it may get or have a claim
	has   bool // the VMI has the request's volume
	entry *v1.VolumeStatus
}

// Decide returns virt-controller's next step for a VM. A step waits for the one before it to be written: the result is in
// the VM's status before the volume leaves the VMI.
func Decide(o Observed) Plan {
	p := &planning{o: o, Plan: Plan{Request: o.Request.DeepCopy()}}
	p.guest = o.VMI != nil && !o.VMI.IsFinal()
	if p.guest {
		p.Volumes = slices.Clone(o.VMI.Spec.UtilityVolumes)
	}
	if p.Request == nil {
		p.remove("")
		return p.Plan
	}
	name := p.Request.ClaimName
	if p.guest {
		p.has, p.entry = VolumeOf(o.VMI, name) != nil, StatusOf(o.VMI, name)
	}
	p.remove(name)
	switch p.Request.Phase {
	case v1.MemoryDumpAssociating:
		p.associate()
	case v1.MemoryDumpInProgress:
		p.follow()
	case v1.MemoryDumpUnmounting:
		if p.released() {
			p.end()
		}
	case v1.MemoryDumpDissociating:
		if p.released() {
			p.Request = nil
		}
	default:
		p.remove("")
	}
	return p.Plan
}

// remove removes the utility volumes of other names.
func (p *planning) remove(keep string) {
	kept := slices.DeleteFunc(p.Volumes, func(v v1.UtilityVolume) bool { return v.Name != keep })
	p.Changed = p.Changed || p.guest && len(kept) != len(p.o.VMI.Spec.UtilityVolumes)
	p.Volumes = kept
}

// released removes the volume, and reports whether the guest has nothing of it.
func (p *planning) released() bool {
	p.remove("")
	return !p.has && p.entry == nil
}

func (p *planning) associate() {
	vmi, name := p.o.VMI, p.Request.ClaimName
	switch {
	case !p.guest || vmi.DeletionTimestamp != nil || !vmi.IsRunning():
		p.lose(guestEnded)
	case migration.InFlight(vmi):
	case !p.has && p.entry == nil:
		if err := conflict(vmi, name); err != nil {
			p.fail(err.Error())
			return
		}
		kind := v1.MemoryDump
		p.Volumes = append(p.Volumes, v1.UtilityVolume{Name: name, Type: &kind,
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
		p.Changed = true
	case p.has && p.entry != nil && p.entry.Phase == v1.HotplugVolumeUnMounted:
		// A virt-handler that knows no memory dumps takes the volume for a disk that leaves, again and again.
		p.fail(unserved)
	case p.entry != nil && begun(p.entry):
		p.Request.Phase = v1.MemoryDumpInProgress
		p.follow()
	}
}

func begun(s *v1.VolumeStatus) bool {
	switch s.Phase {
	case v1.MemoryDumpVolumeInProgress, v1.MemoryDumpVolumeCompleted, v1.MemoryDumpVolumeFailed:
		return true
	}
	return false
}

// follow copies the progress from the volume's status.
func (p *planning) follow() {
	switch {
	case !p.guest:
		p.lose(guestEnded)
		return
	case p.entry == nil:
		p.lose(volumeGone)
		return
	}
	info := p.entry.MemoryDumpVolume
	if p.Request.StartTimestamp == nil {
		p.Request.StartTimestamp = info.StartTimestamp.DeepCopy()
	}
	switch p.entry.Phase {
	case v1.MemoryDumpVolumeCompleted:
		p.Request.FileName = new(info.TargetFileName)
	case v1.MemoryDumpVolumeFailed:
		if p.Request.Message = p.entry.Message; p.Request.Message == "" {
			p.Request.Message = unknownFail
		}
	default:
		return
	}
	p.Request.Phase = v1.MemoryDumpUnmounting
	if p.Request.EndTimestamp = info.EndTimestamp.DeepCopy(); p.Request.EndTimestamp == nil {
		p.Request.EndTimestamp = &metav1.Time{Time: p.o.Now}
	}
}

// lose fails the request if the VMI is known to be as it seems.
func (p *planning) lose(why string) {
	if p.Ask = !p.o.Asked; !p.Ask {
		p.fail(why)
	}
}

// fail ends the request. The guest's volume, if there is one, is removed by later plans.
func (p *planning) fail(why string) {
	p.Request.Message = why
	p.Request.EndTimestamp = &metav1.Time{Time: p.o.Now}
	if p.Request.Phase = v1.MemoryDumpUnmounting; !p.guest {
		p.end()
	}
}

func (p *planning) end() {
	if p.Request.Phase = v1.MemoryDumpCompleted; p.Request.FileName == nil {
		p.Request.Phase = v1.MemoryDumpFailed
	}
}
