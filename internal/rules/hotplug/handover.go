package hotplug

// A handover moves a volume in use to another pod. Each step waits for the one before it.
//
//	virt-controller  records the new attachment pod, in one write of the VMI
//	virt-controller  creates the pod
//	kubelet          starts the pod, which makes every volume available
//	virt-controller  adds the pod's UID to the record
//	virt-handler     finds the Successor, opens the disk there, and names the pod in the
//	                 volume's status
//	virt-controller  drops the old attachment pod from the record
//	virt-controller  deletes it, since neither record nor status names it
//
// A volume that is not in use yet needs no handover: it comes only from the pod that AttachedToNode names.

// Alive reports whether the pod holds its volumes and is not ending.
func (p *Pod) Alive() bool { return p.Running && !p.Terminating && !p.Finished }

// Holds reports whether the pod has the volume.
func (p *Pod) Holds(v Volume) bool { return contains(p.Volumes, v) }

// newerThan breaks ties by UID, since creation times have whole seconds.
func (p *Pod) newerThan(q *Pod) bool {
	if !p.Created.Equal(q.Created) {
		return p.Created.After(q.Created)
	}
	return p.UID > q.UID
}

// Successor returns the newest living pod with the volume whose UID is recorded. The record must be of the VMI
// version that will name the pod.
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

// outranked reports whether the pod can never be the Successor: the serving pod, of the same second, is newerThan it.
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
