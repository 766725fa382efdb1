package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// maxStarting bounds the starting attachment pods of new volumes; further volumes share the next pod. A user who adds a
// disk every second gets few pods and waits for no slow one.
const maxStarting = 2

type planning struct {
	Observed
	entries []Entry
	record  Record
	unasked bool // the plan depends on the maintainers, which were not read
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	switch o.Stage {
	case Over:
		// Terminating pods may linger for a successor that will not come.
		return Plan{Entries: o.Entries, Record: o.Record, Delete: o.Pods}
	case Frozen:
		return Plan{Entries: o.Entries, Record: o.Record}
	}
	p := &planning{Observed: o, entries: slices.Clone(o.Entries), record: o.Record}
	p.record.Pods = slices.Clone(o.Record.Pods)
	if o.Stage == Moving {
		return p.planMove()
	}
	p.record = p.record.after(o.Move)
	p.postponeForMaintainers()
	p.syncSpec()
	p.replaceDead()
	p.coverNew()
	p.splitStuck()
	p.releaseUnneeded()
	p.merge()
	p.assign()
	p.dropIdle()
	p.recordUIDs(p.record.Pods)
	p.dropEntries()
	return p.plan()
}

func (p *planning) plan() Plan {
	if p.unasked {
		return Plan{Needs: NeedMaintainers, Entries: p.Entries, Record: p.Record}
	}
	out := Plan{Entries: p.entries, Record: p.record}
	out.Changed = !slices.Equal(p.entries, p.Entries) || !sameRecord(p.record, p.Record)
	if out.Changed {
		return out
	}
	deletable := p.deletable()
	if !p.Live && (len(deletable) > 0 || p.missesPods()) {
		out.Needs = NeedPods
		return out
	}
	out.Delete = deletable
	for i := range p.record.Pods {
		switch h := &p.record.Pods[i]; {
		case h.UID != "" || p.pod(h.Name) != nil || p.assigned(h.Name):
		case p.guarded(h):
			out.Guarded = append(out.Guarded, *h)
		default:
			out.Create = append(out.Create, *h)
		}
	}
	return out
}

// missesPods reports whether an outdated cache may lack a pod of the plan.
func (p *planning) missesPods() bool {
	return slices.ContainsFunc(p.record.Pods, func(h AttachmentPod) bool { return p.missing(&h) }) ||
		slices.ContainsFunc(p.entries, func(e Entry) bool {
			return e.Phase == v1.HotplugVolumeAttachedToNode && p.wanted(e.Volume) != nil &&
				p.isPodUncached(&e) && p.serving(e.Volume) != nil
		})
}

func (p *planning) syncSpec() {
	p.entries = slices.DeleteFunc(p.entries, func(e Entry) bool {
		if p.wanted(e.Volume) != nil {
			return false
		}
		// An unmounted volume keeps its entry while a pod holds its claim, unless its name is wanted on another claim.
		nameWanted := slices.ContainsFunc(p.Wanted, func(w Wanted) bool { return w.Name == e.Name })
		return unattached(e.Phase) || e.Phase == v1.HotplugVolumeUnMounted && nameWanted
	})
	for i := range p.entries {
		e := &p.entries[i]
		if w := p.wanted(e.Volume); w != nil && (unattached(e.Phase) || e.Phase == v1.HotplugVolumeUnMounted) {
			*e = entryOf(w)
		}
	}
	for i := range p.Wanted {
		w := &p.Wanted[i]
		if !slices.ContainsFunc(p.entries, func(e Entry) bool { return e.Name == w.Name }) {
			p.entries = append(p.entries, entryOf(w))
		}
	}
}

func entryOf(w *Wanted) Entry {
	e := Entry{Volume: w.Volume, Phase: v1.VolumeBound}
	if w.Reason != "" {
		e.Phase, e.Reason, e.Message = v1.VolumePending, w.Reason, w.Message
	}
	return e
}

func unattached(phase v1.VolumePhase) bool {
	return phase == "" || phase == v1.VolumePending || phase == v1.VolumeBound
}

// assign gives each waiting volume the youngest running attachment pod. An AttachedToNode volume whose pod died gets
// another one and stays AttachedToNode, since virt-handler may have opened it.
func (p *planning) assign() {
	for i := range p.entries {
		e := &p.entries[i]
		w := p.wanted(e.Volume)
		if w == nil || !p.needed(e) || InUse(e.Phase) || attached(e) && p.serves(e) {
			continue
		}
		if next := p.serving(e.Volume); next != nil {
			if attached(e) && p.isPodUncached(e) {
				continue
			}
			if !w.Empty {
				p.serve(e, next)
				continue
			}
		}
		switch {
		case !attached(e):
			*e = entryOf(w)
			p.explain(e)
		case e.Reason == "" || e.Reason == ReasonAttachFailed:
			// Any other reason is virt-handler's.
			p.explain(e)
		}
	}
}

func attached(e *Entry) bool { return e.Phase == v1.HotplugVolumeAttachedToNode }

// serve assigns the pod unless the claim's maintainer must end first.
func (p *planning) serve(e *Entry, next *Pod) {
	if why := p.maintained(e.Claim); why != "" && !attached(e) {
		*e = Entry{Volume: e.Volume, Phase: v1.VolumePending, Reason: ReasonClaimInUse, Message: why}
		return
	}
	*e = Entry{Volume: e.Volume, Phase: v1.HotplugVolumeAttachedToNode, PodName: next.Name, PodUID: next.UID}
}

func (p *planning) explain(e *Entry) {
	if why := p.why(e.Volume); why != "" {
		e.Reason, e.Message = ReasonAttachFailed, why
	}
}

// serving returns the youngest recorded attachment pod that runs and has the volume.
func (p *planning) serving(v Volume) *Pod {
	for i := len(p.record.Pods) - 1; i >= 0; i-- {
		if pod := p.pod(p.record.Pods[i].Name); pod != nil && pod.Alive() && !pod.Elsewhere && pod.Holds(v) {
			return pod
		}
	}
	return nil
}

func (p *planning) why(v Volume) string {
	name := p.designated(v)
	if pod := p.pod(name); pod != nil {
		return pod.Why
	}
	if p.Budget.Why != "" && slices.ContainsFunc(p.record.Pods, func(h AttachmentPod) bool { return h.Name == name && p.guarded(&h) }) {
		return p.Budget.Why
	}
	return p.Failures[name]
}

// ReasonAttachFailed means that the volume's pod does not start.
const ReasonAttachFailed = "FailedAttach"

func (p *planning) serves(e *Entry) bool {
	pod := p.pod(e.PodName)
	return pod != nil && pod.UID == e.PodUID && !pod.Terminating && !pod.Finished
}

// isPodUncached reports whether a possibly outdated cache lacks the entry's pod.
func (p *planning) isPodUncached(e *Entry) bool { return !p.Live && p.pod(e.PodName) == nil }

func (p *planning) dropEntries() {
	p.entries = slices.DeleteFunc(p.entries, func(e Entry) bool {
		return e.Phase == v1.HotplugVolumeUnMounted && p.wanted(e.Volume) == nil && p.designated(e.Volume) == "" &&
			!slices.ContainsFunc(p.Pods, func(pod Pod) bool { return pod.Holds(e.Volume) })
	})
}

func (p *planning) needed(e *Entry) bool {
	if InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode {
		return true
	}
	w := p.wanted(e.Volume)
	return p.Stage == Active && w != nil && w.Attach
}

func (p *planning) neededVolume(v Volume) bool {
	e := p.entry(v)
	return e != nil && p.needed(e)
}

func (p *planning) wanted(v Volume) *Wanted {
	for i := range p.Wanted {
		if p.Wanted[i].Volume == v {
			return &p.Wanted[i]
		}
	}
	return nil
}

func (p *planning) alone(v Volume) bool {
	w := p.wanted(v)
	return w != nil && w.Alone
}

func (p *planning) entry(v Volume) *Entry {
	for i := range p.entries {
		if p.entries[i].Volume == v {
			return &p.entries[i]
		}
	}
	return nil
}

// pod returns nil for a pod whose UID is not the recorded one.
func (p *planning) pod(name string) *Pod {
	for i := range p.Pods {
		if p.Pods[i].Name == name && !p.foreign(&p.Pods[i]) {
			return &p.Pods[i]
		}
	}
	return nil
}

func sameRecord(a, b Record) bool {
	if (a.Incoming == nil) != (b.Incoming == nil) || a.Incoming != nil && a.Incoming.Migration != b.Incoming.Migration {
		return false
	}
	return a.Generation == b.Generation && len(a.Pods) == len(b.Pods) && slices.EqualFunc(a.all(), b.all(), func(x, y AttachmentPod) bool {
		return x.Name == y.Name && x.UID == y.UID && slices.Equal(x.Volumes, y.Volumes)
	})
}
