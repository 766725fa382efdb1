package hotplug

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// A guest and a maintenance pod of another VM exclude each other on a claim that is plugged (decision 530):
//
//	virt-controller  records an attachment pod for the volume on the VMI, which is Scheduled or Running
//	virt-controller  asks the API server for the maintenance pods on the claim
//	virt-controller  when there is none, hands the volume to virt-handler: it is AttachedToNode
//
// Whoever locks a VM for a maintenance pod locks first, and looks for such VMIs afterwards (Plugged). So at least one of
// the two sees the other.

// ReasonClaimInUse is the reason of a volume whose claim a maintenance pod has.
const ReasonClaimInUse = "ClaimInUse"

// NeedMaintainers asks the API server for the maintenance pods on the claims that volumes are to be plugged from.
const NeedMaintainers Question = "the maintenance pods on the claims"

// Maintainer is who may write to a claim beside a guest: a maintenance pod, or what fills the claim.
type Maintainer struct {
	Pod string
	// Of is the machine whose disks it has.
	Of string
	// Filling says what fills the claim, or is still to fill it; then the rest is empty.
	Filling string
}

// maintained says which maintenance pod, or what fills a claim, keeps it from being plugged, "" for none. While that was not
// asked for, the plan has to wait for the answer.
func (p *planning) maintained(claim string) string {
	if !p.MaintainersAsked {
		p.unasked = true
		return ""
	}
	m, is := p.Maintainers[claim]
	switch {
	case !is:
		return ""
	case m.Filling != "":
		return m.Filling + "; the volume is attached when it is filled"
	}
	return fmt.Sprintf("PVC %s is used by the maintenance pod %s of %s; the volume is attached when that has ended", claim, m.Pod, m.Of)
}

// heedMaintainers has volumes wait that nothing is recorded for yet. What is recorded already keeps its turn: the next
// maintenance pod waits for it.
func (p *planning) heedMaintainers() {
	if p.Stage != Active {
		return
	}
	p.Wanted = slices.Clone(p.Wanted)
	for i := range p.Wanted {
		w := &p.Wanted[i]
		if e := p.entry(w.Volume); !w.Attach || e != nil && !p.comes(e) || p.designated(w.Volume) != "" {
			continue
		}
		if w.Empty && p.MaintainersAsked && p.Maintainers[w.Claim].Filling != "" {
			continue // Its pod binds the claim, so that it can be filled.
		}
		if why := p.maintained(w.Claim); why != "" {
			w.Attach, w.Reason, w.Message = false, ReasonClaimInUse, why
		}
	}
}

// comes reports whether the guest does not have a volume, and is not about to have it.
func (p *planning) comes(e *Entry) bool {
	return unattached(e.Phase) || e.Phase == v1.HotplugVolumeUnMounted
}

// withheldAtTarget reports whether an attachment pod must not be used yet to copy a disk to a claim of its: that a
// maintenance pod has it.
func (p *planning) withheldAtTarget(h *AttachmentPod) bool {
	return slices.ContainsFunc(p.Destinations, func(d Destination) bool {
		return d.From != d.To && contains(h.Volumes, d.To) && (p.maintained(d.To.Claim) != "" || p.unasked)
	})
}

// GuestOf is the name of the VMI that a launcher pod or an attachment pod says it is of, "" for another pod.
func GuestOf(pod metav1.Object) string {
	switch pod.GetLabels()[v1.AppLabel] {
	case layout.LauncherApp, layout.AttachmentApp:
		return pod.GetAnnotations()[v1.DomainAnnotation]
	}
	return ""
}

// Plugged is the first of the claims that a VMI's guest has plugged, or gets plugged without anybody being asked once more;
// "" for none.
func Plugged(vmi *v1.VirtualMachineInstance, claims []string) string {
	if vmistatus.StageOf(vmi.Status.Phase) != vmistatus.HandedOver {
		return "" // It has no guest, or asks when it has one.
	}
	var has []string
	for _, e := range EntriesOf(vmi) {
		if InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode {
			has = append(has, e.Claim)
		}
	}
	// Of a record that can't be read nothing is used: it is written anew first.
	record, err := ReadRecord(vmi.Annotations)
	for _, h := range record.all() {
		for _, v := range h.Volumes {
			if err == nil {
				has = append(has, v.Claim)
			}
		}
	}
	if i := slices.IndexFunc(claims, func(c string) bool { return slices.Contains(has, c) }); i >= 0 {
		return claims[i]
	}
	return ""
}
