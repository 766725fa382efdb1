package hotplug

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// A guest and another VM's maintenance pod exclude each other on a plugged claim (decision 460):
//
//	virt-controller  records an attachment pod for the volume on the VMI, which is Scheduled or Running
//	virt-controller  asks the API server for the maintenance pods on the claim
//	virt-controller  if there is none, sets AttachedToNode: virt-handler may plug the volume
//
// The other side takes the lock and then looks for such VMIs (Plugged): at least one of the two sees the other.

// ReasonClaimInUse means that a maintenance pod has the volume's claim.
const ReasonClaimInUse = "ClaimInUse"

// NeedMaintainers asks for the maintenance pods on the claims to plug.
const NeedMaintainers Question = "the maintenance pods on the claims"

// Maintainer is another writer to a claim.
type Maintainer struct {
	Pod     string
	Of      string // the VM whose disks the maintenance pod has
	Filling string // why the claim is not filled; the other fields are empty then
}

// maintained returns why the claim can't be plugged. The plan waits if the API server was not asked.
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

// postponeForMaintainers makes unrecorded volumes wait. Recorded ones make the maintenance pod wait.
func (p *planning) postponeForMaintainers() {
	if p.Stage != Active {
		return
	}
	p.Wanted = slices.Clone(p.Wanted)
	for i := range p.Wanted {
		w := &p.Wanted[i]
		e := p.entry(w.Volume)
		has := e != nil && !unattached(e.Phase) && e.Phase != v1.HotplugVolumeUnMounted
		if !w.Attach || has || p.designated(w.Volume) != "" {
			continue
		}
		if w.Empty && p.MaintainersAsked && p.Maintainers[w.Claim].Filling != "" {
			continue // Its pod binds the claim for its filling.
		}
		if why := p.maintained(w.Claim); why != "" {
			w.Attach, w.Reason, w.Message = false, ReasonClaimInUse, why
		}
	}
}

func (p *planning) withheldAtTarget(h *AttachmentPod) bool {
	return slices.ContainsFunc(p.Destinations, func(d Destination) bool {
		return d.From != d.To && contains(h.Volumes, d.To) && (p.maintained(d.To.Claim) != "" || p.unasked)
	})
}

// GuestOf returns the VMI of a launcher pod or an attachment pod, "" for another pod.
func GuestOf(pod metav1.Object) string {
	switch pod.GetLabels()[v1.AppLabel] {
	case layout.LauncherApp, layout.AttachmentApp:
		return pod.GetAnnotations()[v1.DomainAnnotation]
	}
	return ""
}

// Plugged returns the first claim that the guest has or may get without another check.
func Plugged(vmi *v1.VirtualMachineInstance, claims []string) string {
	if vmistatus.StageOf(vmi.Status.Phase) != vmistatus.HandedOver {
		return "" // It checks when it gets a guest.
	}
	var has []string
	for _, e := range EntriesOf(vmi) {
		if InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode {
			has = append(has, e.Claim)
		}
	}
	// An unreadable record is replaced before it is used.
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
