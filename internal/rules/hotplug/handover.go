package hotplug

// The order of a handover, by which a volume that the guest has comes to be held by
// another pod. Each step waits for the one before it.
//
//	virt-controller  records the new attachment pod, in one write of the VMI
//	virt-controller  makes its pod
//	kubelet          starts the pod, and with it every volume is there
//	virt-controller  notes the pod's UID in the record
//	virt-handler     finds it to be the Successor, opens the disk there, and names the
//	                 pod in the volume's status
//	virt-controller  drops the old attachment pod from the record
//	virt-controller  deletes the old attachment pod, which neither record nor status names
//
// The first time is no handover: a volume that the guest does not have yet
// comes from the pod that AttachedToNode names, and from no other.

// Alive reports whether the pod holds its volumes and goes on doing so.
func (p *Pod) Alive() bool { return p.Running && !p.Terminating && !p.Finished }

// Holds reports whether the pod has the volume.
func (p *Pod) Holds(v Volume) bool { return contains(p.Volumes, v) }

// newerThan is the order in which volumes are handed over. Creation times are whole
// seconds, and of two pods of one second the UID decides.
func (p *Pod) newerThan(q *Pod) bool {
	if !p.Created.Equal(q.Created) {
		return p.Created.After(q.Created)
	}
	return p.UID > q.UID
}

// Successor is the pod that is to hold a volume that the guest has: the newest of those
// that the record names by UID, that have the volume, run, and go on doing so; nil when
// there is none. The record must be that of the very VMI that the pod is then named in.
func Successor(record Record, v Volume, pods []Pod) *Pod {
	var newest *Pod
	for i := range pods {
		p := &pods[i]
		if !p.Alive() || !p.Holds(v) || !record.Has(p.Name, p.UID) {
			continue
		}
		if newest == nil || p.newerThan(newest) {
			newest = p
		}
	}
	return newest
}

// outranked reports whether the attachment pod would never be the Successor of a volume that it
// should follow with: its pod was made in the same second as the one that serves the
// volume, and comes before that in the order.
func (p *planning) outranked(h *AttachmentPod) bool {
	pod := p.pod(h.Name)
	if pod == nil {
		return false
	}
	for _, v := range p.designees(h) {
		e := p.entry(v)
		if !InUse(e.Phase) || e.PodName == h.Name {
			continue
		}
		if serving := p.pod(e.PodName); serving != nil && serving.Alive() && !serving.Elsewhere && serving.newerThan(pod) {
			return true
		}
	}
	return false
}
