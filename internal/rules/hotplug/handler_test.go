package hotplug_test

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
)

// virt-handler, QEMU and the guest. virt-handler's own function decides its actions and reports, for each volume
// separately.

// disk is a volume's state in QEMU.
type disk uint8

const (
	noDisk disk = iota
	plugged
	// QEMU has the file but the guest has no disk, because a plug was cut short or an unplug is unfinished.
	cut
	// closing: the disk was unplugged by force, and QEMU still has the file open.
	closing
	// detached: the guest has the remains of a disk that was unplugged by force.
	detached
)

var stages = [...]diskhotplug.Stage{diskhotplug.Absent, diskhotplug.Plugged, diskhotplug.Partial, diskhotplug.Partial, diskhotplug.Detached}

// open reports whether QEMU has the volume's file open.
func (d disk) open() bool { return d == plugged || d == cut || d == closing }

// place is the index of a pod in a state, or one of these.
type place int8

const (
	nowhere place = -1
	// gone is the place of a deleted pod.
	gone place = maxPods
)

// glance has all inputs of virt-handler's decision about a volume.
type glance struct {
	wanted, forced bool
	phase          phase
	disk           disk
	// serving is the pod that the status names, opened the one whose file is open, and verified the one where the file
	// was checked.
	serving, opened, verified place
	// Sets of the pods that hold the volume: those seen, those seen to run and stay, and those in the record.
	seen, alive, recorded uint8
}

// verdict is a decision; says is absent when there is nothing to report.
type verdict struct {
	action nodehotplug.Action
	where  place
	says   phase
	naming place
}

func (g *glance) sees(i place) bool { return g.seen&(1<<i) != 0 }

// judge calls virt-handler's decision, once for each glance.
func (sc *scenario) judge(g glance) verdict {
	if v, ok := sc.verdicts[g]; ok {
		return v
	}
	if sc.verdicts == nil {
		sc.verdicts = map[glance]verdict{}
	}
	d := sc.handle(g.observed())
	v := verdict{action: d.Action, where: placeOf(d.Source.UID)}
	if d.Phase != "" {
		v.says, v.naming = phaseOf(d.Phase), placeOf(d.PodUID)
	}
	sc.verdicts[g] = v
	return v
}

func placeOf(uid types.UID) place { return place(uidOf(uid)) - 1 }

func (p place) name() string   { return podNames[p+1] }
func (p place) uid() types.UID { return uids[p+1] }

// observed is virt-handler's view of volume A.
func (g *glance) observed() nodehotplug.Observed {
	volume := volumeNames[0]
	o := nodehotplug.Observed{
		VMI: &v1.VirtualMachineInstance{}, Disks: map[string]diskhotplug.Disk{},
		Opened: map[string]types.UID{}, Verified: map[string]types.UID{},
	}
	if g.wanted {
		o.VMI.Spec.Volumes = []v1.Volume{{Name: volume.Name, VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: volume.Claim, Hotpluggable: true},
		}}}
	}
	if g.phase != absent {
		status := v1.VolumeStatus{
			Name: volume.Name, Phase: phaseNames[g.phase], HotplugVolume: &v1.HotplugVolumeStatus{},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: volume.Claim},
		}
		if g.serving != nowhere {
			status.HotplugVolume.AttachPodName, status.HotplugVolume.AttachPodUID = g.serving.name(), g.serving.uid()
		}
		o.VMI.Status.VolumeStatus = []v1.VolumeStatus{status}
	}
	if g.forced {
		o.VMI.Annotations = map[string]string{hotplugspec.ForcedAnnotation: `["` + volume.Name + `"]`}
	}
	for i := range place(maxPods) {
		if g.recorded&(1<<i) != 0 {
			o.Record.Pods = append(o.Record.Pods, hotplug.AttachmentPod{Name: i.name(), UID: i.uid()})
		}
		if g.sees(i) {
			o.AttachmentPods = append(o.AttachmentPods, hotplug.Pod{
				Name: i.name(), UID: i.uid(), Created: creationTimes[i], Running: g.alive&(1<<i) != 0,
				Volumes: volumeLists[1],
			})
		}
	}
	if g.disk != noDisk {
		tag := diskhotplug.Tag{Volume: volume.Name, Claim: volume.Claim, Detached: g.disk == detached}
		o.Disks[volume.Name] = diskhotplug.Disk{Tag: tag, Stage: stages[g.disk]}
	}
	if g.opened != nowhere {
		o.Opened[volume.Name] = g.opened.uid()
	}
	if g.verified != nowhere {
		o.Verified[volume.Name] = g.verified.uid()
	}
	return o
}

// theVolume returns the decision about the only volume.
func theVolume(o nodehotplug.Observed) nodehotplug.Decision {
	for _, d := range nodehotplug.Decide(o) {
		return d
	}
	return nodehotplug.Decision{}
}

// handler emits virt-handler's possible next steps about a volume. It writes on condition of the VMI's version, so it
// decides on the present VMI; its view of the pods may be old.
func (sc *scenario) handler(s *state, v int, emit emitter) {
	if s.vmi.moving {
		return // nothing is plugged, unplugged or reported
	}
	g, maybe, running := sc.glanceAt(s, v)
	h := handling{scenario: sc, s: s, v: v, emit: emit}
	for _, h.disturbs = range []bool{false, true} {
		for alive := maybe; ; alive = (alive - 1) & maybe {
			if g.alive = alive; outdated(g, running) == h.disturbs {
				h.see(g)
			}
			if alive == 0 {
				break
			}
		}
		h.openedBefore(g, maybe)
	}
}

// glanceAt is virt-handler's view of a volume without the running pods: those in maybe may run, and those in running
// do.
func (sc *scenario) glanceAt(s *state, v int) (g glance, maybe, running uint8) {
	vmi := &s.vmi
	if sc.writesLate && s.vmiStale {
		vmi = &s.vmiCache
	}
	g = glance{
		wanted: vmi.wanted.has(v), forced: vmi.forced.has(v), phase: vmi.entries[v].phase, disk: s.disks[v],
		serving: nowhere, opened: nowhere, verified: nowhere,
	}
	if vmi.entries[v].uid != 0 {
		g.serving = gone
	}
	for i := range s.pods {
		p := &s.pods[i]
		if p.state == noPod || !p.volumes.has(sc.at(v, vmi.node)) || p.node != vmi.node {
			continue
		}
		bit := uint8(1) << i
		g.seen |= bit
		if p.uid == vmi.entries[v].uid {
			g.serving = place(i)
		}
		if vmi.records(p.name, p.uid) || vmi.uses(p.name, p.uid) {
			g.recorded |= bit
		}
		if p.ran {
			maybe |= bit
		}
		if p.alive() {
			running |= bit
		}
	}
	return g, maybe, running
}

// outdated reports whether virt-handler's view lags more than necessary: it may learn late that pods run, but it has
// seen the serving pod run, and it sees the ends of pods eventually.
func outdated(g glance, running uint8) bool {
	missed := running &^ g.alive
	return g.alive&^running != 0 || g.serving >= 0 && g.serving != gone && missed&(1<<g.serving) != 0
}

// handling collects virt-handler's possible next steps about a volume.
type handling struct {
	*scenario
	s    *state
	v    int
	emit emitter
	// disturbs is set for steps from a view that lags more than necessary.
	disturbs bool
	// done are the decisions from other views.
	done []verdict
}

// see takes virt-handler's steps with one view. It opens files at once.
func (h *handling) see(g glance) {
	d := h.judge(g)
	switch d.action {
	case nodehotplug.Open:
		g.opened = d.where
		d = h.judge(g)
	case nodehotplug.Verify:
		h.do(d)
		g.verified = d.where
		d = h.judge(g)
	}
	h.do(d)
}

// openedBefore takes virt-handler's steps when it has opened the disk at any earlier time, whichever pods it sees now.
func (h *handling) openedBefore(g glance, maybe uint8) {
	if !h.disturbs || g.disk != noDisk {
		return
	}
	for alive := maybe; ; alive = (alive - 1) & maybe {
		g.alive = alive
		for i := range gone + 1 {
			if i == gone || g.sees(i) {
				g.opened = i
				h.do(h.judge(g))
			}
		}
		if alive == 0 {
			return
		}
	}
}

// do executes virt-handler's decision, and writes its report.
func (h *handling) do(d verdict) {
	if slices.Contains(h.done, d) {
		return
	}
	h.done = append(h.done, d)
	if d.says != absent {
		h.write(d, h.disturbs)
	}
	sticky := h.sticky.has(h.v)
	switch have := h.s.disks[h.v]; d.action {
	case nodehotplug.Plug:
		h.become(handlerPlugs, plugged, h.disturbs)
		if h.failing {
			h.become(handlerFails, cut, true)
			h.write(verdict{says: mounted, naming: gone}, true)
		}
	case nodehotplug.Ask, nodehotplug.Eject:
		switch {
		case have == plugged && !sticky:
			h.become(guestReleases, cut, h.disturbs)
		case have == detached:
			h.become(guestReleases, noDisk, h.disturbs || sticky)
		}
	case nodehotplug.Force:
		h.become(handlerForces, closing, h.disturbs)
	case nodehotplug.Clear:
		if have == closing {
			h.become(handlerClears, detached, h.disturbs)
		} else {
			h.become(handlerClears, noDisk, h.disturbs)
		}
	}
}

// become changes QEMU's state.
func (h *handling) become(k kind, to disk, disturbs bool) {
	next := *h.s
	next.disks[h.v] = to
	h.emit(step{kind: k, arg: h.v, disturbs: disturbs}, next)
}

// write writes virt-handler's report about a volume, if it is new.
func (h *handling) write(d verdict, disturbs bool) {
	have := h.s.vmi.entries[h.v]
	if have.phase == absent {
		return // there is no VMI to write to
	}
	to := have
	to.phase = d.says
	switch {
	case d.naming == nowhere:
		to.name, to.uid, to.orphan = 0, 0, false
	case d.naming != gone: // the status goes on naming the pod
		p := &h.s.pods[d.naming]
		to.name, to.uid, to.orphan = p.name, p.uid, p.deletedExternally || have.orphan && have.uid == p.uid
	}
	if to == have {
		return
	}
	next := *h.s
	next.touchVMI()
	next.vmi.entries[h.v] = to
	st := step{kind: handlerSays[d.says], arg: h.v, disturbs: disturbs}
	if d.says == ready && have.phase == ready {
		st.kind = handlerHandsOver
	}
	if d.says == detaching {
		st.broken = unasked(h.s.vmi.forced.has(h.v))
	}
	h.emit(st, next)
}

var handlerSays = map[phase]kind{
	attached: handlerSaysAttached, mounted: handlerSaysMounted, ready: handlerSaysReady,
	detaching: handlerSaysDetaching, unmounted: handlerSaysUnmounted,
}

// An older request to force must not apply to a removal that begins now.
func unasked(forced bool) error {
	if forced {
		return errors.New("the removal is forced before the guest was asked")
	}
	return nil
}
