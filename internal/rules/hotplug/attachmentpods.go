package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// designated returns the last recorded attachment pod with the volume, except on a node that the guest has left.
func (p *planning) designated(v Volume) string {
	for i := len(p.record.Pods) - 1; i >= 0; i-- {
		h := &p.record.Pods[i]
		if pod := p.pod(h.Name); contains(h.Volumes, v) && (pod == nil || !pod.Elsewhere) {
			return h.Name
		}
	}
	return ""
}

func (p *planning) designees(h *AttachmentPod) []Volume {
	var out []Volume
	for _, v := range h.Volumes {
		if p.neededVolume(v) && p.designated(v) == h.Name {
			out = append(out, v)
		}
	}
	return out
}

func (p *planning) replaceDead() {
	for _, h := range slices.Clone(p.record.Pods) {
		if !p.dead(&h) && !p.outranked(&h) {
			continue
		}
		volumes := p.designees(&h)
		p.record.Pods = slices.DeleteFunc(p.record.Pods, func(other AttachmentPod) bool { return other.Name == h.Name })
		p.addApart(volumes)
	}
}

// addApart records one attachment pod for the volumes that may share one, and one for each other volume.
func (p *planning) addApart(volumes []Volume) {
	var together []Volume
	for _, v := range volumes {
		if p.alone(v) {
			p.add([]Volume{v})
		} else {
			together = append(together, v)
		}
	}
	p.add(together)
}

func (p *planning) dead(h *AttachmentPod) bool {
	pod := p.pod(h.Name)
	if pod == nil {
		return p.Live && p.missing(h)
	}
	return pod.Terminating || pod.Finished && !pod.Cooling
}

// missing reports whether somebody has deleted the pod.
func (p *planning) missing(h *AttachmentPod) bool {
	return p.pod(h.Name) == nil && (h.UID != "" || p.assigned(h.Name))
}

// assigned reports whether a volume's status names the pod: it has existed.
func (p *planning) assigned(pod string) bool {
	return slices.ContainsFunc(p.entries, func(e Entry) bool {
		return e.PodName == pod && (InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode)
	})
}

func (p *planning) coverNew() {
	var inUse, waiting []Volume
	for i := range p.entries {
		e := &p.entries[i]
		switch {
		case !p.needed(e) || p.designated(e.Volume) != "":
		case InUse(e.Phase):
			inUse = append(inUse, e.Volume)
		case p.alone(e.Volume):
			p.add([]Volume{e.Volume})
		default:
			waiting = append(waiting, e.Volume)
		}
	}
	p.addApart(inUse)
	if p.starting() < maxStarting {
		p.add(waiting)
	}
}

func (p *planning) starting() int {
	n := 0
	for i := range p.record.Pods {
		h := &p.record.Pods[i]
		if pod := p.pod(h.Name); pod != nil && (pod.Running || pod.Stuck || pod.Finished) {
			continue
		}
		if slices.ContainsFunc(p.designees(h), func(v Volume) bool { return !p.alone(v) && !InUse(p.entry(v).Phase) }) {
			n++
		}
	}
	return n
}

// splitStuck records a pod for each volume of a pod that does not start, so that only the faulty volume waits.
func (p *planning) splitStuck() {
	for _, h := range slices.Clone(p.record.Pods) {
		pod := p.pod(h.Name)
		if pod == nil || !pod.Stuck || pod.Running || len(h.Volumes) < 2 {
			continue
		}
		for _, v := range p.designees(&h) {
			held := slices.ContainsFunc(p.Pods, func(pod Pod) bool { return pod.Alive() && pod.Holds(v) })
			serving := p.pod(p.entry(v).PodName)
			withUnneeded := serving != nil && slices.ContainsFunc(serving.Volumes, func(other Volume) bool { return !p.neededVolume(other) })
			if !held || withUnneeded {
				p.add([]Volume{v})
			}
		}
	}
}

// releaseUnneeded records a successor without the unneeded volumes, to free their claims. A pod stays while one of
// its volumes is leaving the guest.
func (p *planning) releaseUnneeded() {
	for _, h := range slices.Clone(p.record.Pods) {
		pod := p.pod(h.Name)
		if pod == nil || !pod.Alive() {
			continue
		}
		stay := p.designees(&h)
		if slices.ContainsFunc(stay, func(v Volume) bool { return p.wanted(v) == nil }) {
			continue
		}
		if slices.ContainsFunc(h.Volumes, func(v Volume) bool { return !p.neededVolume(v) }) {
			p.addApart(stay)
		}
	}
}

// merge records one attachment pod for the volumes of the smallest ones, if there are too many and nothing is changing.
// Volumes that wait for their claim or pod, perhaps forever, don't delay it.
func (p *planning) merge() {
	if !p.Settled || p.Stage != Active || slices.ContainsFunc(p.entries, func(e Entry) bool {
		handedOver := e.Phase == v1.VolumeReady && e.PodName == p.designated(e.Volume)
		return p.wanted(e.Volume) == nil || !handedOver && !unattached(e.Phase)
	}) {
		return
	}
	var sharers []AttachmentPod
	for i := range p.record.Pods {
		h := &p.record.Pods[i]
		volumes := p.designees(h)
		if slices.ContainsFunc(volumes, func(v Volume) bool { return !InUse(p.entry(v).Phase) || p.alone(v) }) {
			continue
		}
		if pod := p.pod(h.Name); pod != nil && pod.Alive() && len(volumes) > 0 {
			sharers = append(sharers, AttachmentPod{Name: h.Name, Volumes: volumes})
		}
	}
	over := len(sharers) - max(1, p.MaxAttachmentPods)
	if over <= 0 {
		return
	}
	slices.SortStableFunc(sharers, func(a, b AttachmentPod) int { return len(a.Volumes) - len(b.Volumes) })
	var union []Volume
	for _, h := range sharers[:over+1] {
		union = append(union, h.Volumes...)
	}
	p.add(union)
}

func (p *planning) dropIdle() {
	var kept []AttachmentPod
	for _, h := range p.record.Pods {
		if slices.ContainsFunc(h.Volumes, func(v Volume) bool {
			e := p.entry(v)
			return e != nil && p.needed(e) && (e.PodName == h.Name || p.designated(v) == h.Name)
		}) {
			kept = append(kept, h)
		}
	}
	p.record.Pods = kept
}

// deletable skips a pod that is about to get its node: the scheduler would warn that it is missing.
func (p *planning) deletable() []Pod {
	var out []Pod
	for i := range p.Pods {
		if pod := &p.Pods[i]; !pod.Terminating && !pod.Scheduling && !p.record.Names(pod.Name) && p.unused(pod) {
			out = append(out, *pod)
		}
	}
	return out
}

// unused is invariant H2 for a pod that is not recorded. A pod on another node than the guest's stays while a QEMU there
// may have its volumes open, and does not count as another holder.
func (p *planning) unused(pod *Pod) bool {
	if pod.Elsewhere && !pod.Left {
		return false
	}
	// Claims don't count: after a migration to another claim, the status names the source's pod before the target's.
	if slices.ContainsFunc(p.entries, func(e Entry) bool {
		return e.PodUID == pod.UID && (InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode)
	}) {
		return false
	}
	for _, v := range pod.Volumes {
		e := p.entry(v)
		if e == nil || !InUse(e.Phase) {
			continue
		}
		through := p.pod(e.PodName)
		if through == nil || through.UID != e.PodUID || !through.Alive() || through.Elsewhere && !pod.Elsewhere {
			return false
		}
	}
	return true
}
