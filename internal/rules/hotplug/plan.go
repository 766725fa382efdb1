package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// maxStarting is how many attachment pods of newly wanted volumes are started at a
// time. Two let a volume that is added while another one starts go ahead at
// once; what is added beyond shares the next attachment pod, so that a user who adds a
// disk every second gets few pods and waits for none that is slow (decision 112).
const maxStarting = 2

// planning is a plan in the making.
type planning struct {
	Observed
	entries []Entry
	record  Record
	// unasked means that the plan depends on who has claims for maintenance, which was not asked for.
	unasked bool
}

// Decide gives the plan for what was observed.
func Decide(o Observed) Plan {
	switch o.Stage {
	case Over:
		// One that goes already may linger for a successor that there won't be.
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
	p.heedMaintainers()
	p.syncSpec()
	p.replaceDead()
	p.coverNew()
	p.splitStuck()
	p.releaseUnneeded()
	p.merge()
	p.assign()
	p.dropIdle()
	p.noteUIDs()
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

// missesPods reports whether a pod that existed is not seen and the plan depends on
// whether it is gone. Of a cache, that is no answer: one that lags lacks pods, too.
func (p *planning) missesPods() bool {
	return slices.ContainsFunc(p.record.Pods, func(h AttachmentPod) bool { return p.missing(&h) }) ||
		slices.ContainsFunc(p.entries, func(e Entry) bool {
			return e.Phase == v1.HotplugVolumeAttachedToNode && p.wanted(e.Volume) != nil &&
				p.unsettled(&e) && p.serving(e.Volume) != nil
		})
}

// syncSpec brings the entries to what the spec asks for, as far as they are
// virt-controller's.
func (p *planning) syncSpec() {
	p.entries = slices.DeleteFunc(p.entries, func(e Entry) bool {
		if p.wanted(e.Volume) != nil {
			return false
		}
		// An unmounted volume's entry stays while a pod holds its claim, unless its
		// name is asked for with another claim.
		return unattached(e.Phase) || e.Phase == v1.HotplugVolumeUnMounted && p.nameWanted(e.Name)
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

// entryOf is the entry of a wanted volume that no attachment pod serves yet.
func entryOf(w *Wanted) Entry {
	e := Entry{Volume: w.Volume, Phase: v1.VolumeBound}
	if w.Reason != "" {
		e.Phase, e.Reason, e.Message = v1.VolumePending, w.Reason, w.Message
	}
	return e
}

// unattached are the phases before an attachment pod serves the volume.
func unattached(phase v1.VolumePhase) bool {
	return phase == "" || phase == v1.VolumePending || phase == v1.VolumeBound
}

// assign gives each volume that waits the youngest attachment pod that runs, and another one
// when that has died before virt-handler said that it took the volume up. It may have
// done so without having said it yet, so that the volume stays AttachedToNode: only
// virt-handler says that a volume is out.
func (p *planning) assign() {
	for i := range p.entries {
		e := &p.entries[i]
		w := p.wanted(e.Volume)
		if w == nil || !p.needed(e) || InUse(e.Phase) || attached(e) && p.serves(e) {
			continue
		}
		if next := p.serving(e.Volume); next != nil {
			if attached(e) && p.unsettled(e) {
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

// serve gives a volume an attachment pod that runs, unless somebody has its claim in maintenance who has to end first.
func (p *planning) serve(e *Entry, next *Pod) {
	if why := p.maintained(e.Claim); why != "" && !attached(e) {
		*e = Entry{Volume: e.Volume, Phase: v1.VolumePending, Reason: ReasonClaimInUse, Message: why}
		return
	}
	*e = Entry{Volume: e.Volume, Phase: v1.HotplugVolumeAttachedToNode, PodName: next.Name, PodUID: next.UID}
}

// explain says what keeps the volume's attachment pod from running, as far as is known.
func (p *planning) explain(e *Entry) {
	if why := p.why(e.Volume); why != "" {
		e.Reason, e.Message = ReasonAttachFailed, why
	}
}

// serving is the youngest recorded attachment pod that runs and has the volume.
func (p *planning) serving(v Volume) *Pod {
	for i := len(p.record.Pods) - 1; i >= 0; i-- {
		if pod := p.pod(p.record.Pods[i].Name); pod != nil && pod.Alive() && !pod.Elsewhere && pod.Holds(v) {
			return pod
		}
	}
	return nil
}

// why returns what keeps the volume's attachment pod from running, as far as is known.
func (p *planning) why(v Volume) string {
	name := p.designated(v)
	if pod := p.pod(name); pod != nil {
		return pod.Why
	}
	if why := p.withheld(name); why != "" {
		return why
	}
	return p.Failures[name]
}

// ReasonAttachFailed is the reason of a volume whose attachment pod does not start.
const ReasonAttachFailed = "FailedAttach"

// serves reports whether the pod that an entry names is there and goes on.
func (p *planning) serves(e *Entry) bool {
	pod := p.pod(e.PodName)
	return pod != nil && pod.UID == e.PodUID && !pod.Terminating && !pod.Finished
}

// unsettled reports whether it is open if the pod that an entry names is gone.
func (p *planning) unsettled(e *Entry) bool { return !p.Live && p.pod(e.PodName) == nil }

// dropEntries lets a volume's entry go when nothing holds its claim any more.
func (p *planning) dropEntries() {
	p.entries = slices.DeleteFunc(p.entries, func(e Entry) bool {
		return e.Phase == v1.HotplugVolumeUnMounted && p.wanted(e.Volume) == nil && p.designated(e.Volume) == "" &&
			!slices.ContainsFunc(p.Pods, func(pod Pod) bool { return pod.Holds(e.Volume) })
	})
}

// needed reports whether a volume must have an attachment pod.
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

func (p *planning) nameWanted(name string) bool {
	return slices.ContainsFunc(p.Wanted, func(w Wanted) bool { return w.Name == name })
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

// pod is the pod of that name, unless another one is recorded.
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
