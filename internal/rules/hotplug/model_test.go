package hotplug_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
)

// The model: one VMI, its attachment pods, a controller with lagging caches, and all other actors. A state is a value
// of fixed size, so that it is its own key.

// Bounds of the model: volumes, existing pods at a time (a creation beyond waits), and recorded attachment pods at a
// time (more would end the run).
const (
	maxVolumes        = 3
	maxPods           = 5
	maxAttachmentPods = 6
)

type phase uint8

const (
	absent phase = iota
	pending
	boundClaim
	attached
	mounted
	ready
	detaching
	unmounted
)

var phaseNames = [...]v1.VolumePhase{"", v1.VolumePending, v1.VolumeBound, v1.HotplugVolumeAttachedToNode,
	v1.HotplugVolumeMounted, v1.VolumeReady, v1.HotplugVolumeDetaching, v1.HotplugVolumeUnMounted}

func phaseOf(name v1.VolumePhase) phase {
	for i, n := range phaseNames {
		if n == name && i > 0 {
			return phase(i)
		}
	}
	panic("unknown phase " + name)
}

type set uint8

func (s set) has(v int) bool { return s&(1<<v) != 0 }

// entry is a volume's status.
type entry struct {
	phase     phase
	name, uid uint8
	// orphan: somebody deleted the pod that it names.
	orphan bool
}

type attachmentPod struct {
	name, uid uint8
	volumes   set
}

// object is the VMI.
type object struct {
	wanted set
	// forced: the user wants the disk unplugged by force.
	forced         set
	generation     uint8
	attachmentPods [maxAttachmentPods]attachmentPod
	entries        [maxVolumes]entry
	journey
}

type podState uint8

const (
	noPod podState = iota
	starting
	running
	// ending: being deleted, and running until the kubelet has ended it.
	ending
	// failed: ended by itself.
	failed
)

type pod struct {
	name, uid, node   uint8
	volumes           set
	state             podState
	ran               bool
	deletedExternally bool
	// deletion: a request to delete this pod is on its way.
	deletion bool
}

func (p *pod) alive() bool { return p.state == running }

type pods [maxPods]pod

// state is the whole model. Pods are in the order of their creation.
type state struct {
	vmi  object
	pods pods
	// disks are QEMU's.
	disks [maxVolumes]disk
	// taken means that the target's QEMU has the disks open, too. lingering disks are open in the QEMU that the guest
	// has left, or has not reached.
	taken     bool
	lingering set
	// The view of the controller's caches, where it differs from the truth.
	vmiCache           object
	podCache           pods
	vmiStale, podStale bool
	// before is the VMI before the user's last change, for a controller that starts with an old cache.
	before object
	// The controller has read the pods from the API server and will read the VMI next.
	asking bool
	// The remaining steps of the user, of others who delete pods, and of dead controllers.
	changes, deletions, late, moves uint8
}

// scenario has the constants of an exploration.
type scenario struct {
	name string
	// large scenarios have more than 25,000 states; -short leaves them out.
	large   bool
	volumes int
	// first is plugged at the beginning, in one attachment pod or each in its own.
	first      set
	firstApart bool
	// The user's steps: at most this many changes, of these volumes only.
	changes       uint8
	adds, removes set
	deletions     uint8
	// moves is the number of allowed migrations.
	moves uint8
	// copies are the volumes with different claims on the two nodes.
	copies set
	// late is the number of creations that may arrive from a controller that has died.
	late              uint8
	maxAttachmentPods int
	// exclusive volumes can be used by one pod only; broken ones never attach; the guest never releases sticky ones.
	exclusive, broken, sticky set
	// forces are the volumes that the user may unplug by force.
	forces set
	// failing lets every plug fail any number of times.
	failing bool
	// The decisions of virt-controller and virt-handler.
	decide func(hotplug.Observed) hotplug.Plan
	handle func(nodehotplug.Observed) nodehotplug.Decision
	// writesLate makes virt-handler write on one version of the VMI its decision on an older one.
	writesLate bool
	// A cache of virt-handler's decisions.
	verdicts map[glance]verdict
}

func (sc *scenario) initial() state {
	s := state{changes: sc.changes, deletions: sc.deletions, late: sc.late, moves: sc.moves}
	s.vmi.wanted = sc.first
	n := uint8(0)
	hold := func(volumes set) {
		s.pods[n] = pod{name: n + 1, uid: n + 1, volumes: volumes, state: running, ran: true}
		s.vmi.attachmentPods[n] = attachmentPod{name: n + 1, uid: n + 1, volumes: volumes}
		n++
		for v := range sc.volumes {
			if volumes.has(v) {
				s.vmi.entries[v] = entry{phase: ready, name: n, uid: n}
				s.disks[v] = plugged
			}
		}
	}
	if sc.firstApart {
		for v := range sc.volumes {
			if sc.first.has(v) {
				hold(1 << v)
			}
		}
	} else if sc.first != 0 {
		hold(sc.first)
	}
	s.vmi.generation = n
	return s
}

// Names in the planner's view; made once.
var (
	volumeNames = [2 * maxVolumes]hotplug.Volume{
		{Name: "A", Claim: "a"}, {Name: "B", Claim: "b"}, {Name: "C", Claim: "c"},
		{Name: "A", Claim: "a-there"}, {Name: "B", Claim: "b-there"}, {Name: "C", Claim: "c-there"},
	}
	volumeLists = func() (out [1 << (2 * maxVolumes)][]hotplug.Volume) {
		for mask := range out {
			for v := range volumeNames {
				if set(mask)&(1<<v) != 0 {
					out[mask] = append(out[mask], volumeNames[v])
				}
			}
		}
		return out
	}()
	podNames = func() (out [256]string) {
		for i := range out {
			out[i] = "hp-" + strconv.Itoa(i)
		}
		return out
	}()
	uids = func() (out [256]types.UID) {
		for i := range out {
			out[i] = types.UID(fmt.Sprintf("%03d", i))
		}
		return out
	}()
	creationTimes = func() (out [maxPods]time.Time) {
		for i := range out {
			out[i] = time.Unix(int64(i), 0)
		}
		return out
	}()
)

func setOf(volumes []hotplug.Volume) set {
	var s set
	for _, v := range volumes {
		s |= 1 << slices.Index(volumeNames[:], v)
	}
	return s
}

// at returns the index of a volume on its claim on a node: indexes below maxVolumes are on the claims of the first
// node.
func (sc *scenario) at(v int, node uint8) int {
	if sc.copies.has(v) && node == 1 {
		return v + maxVolumes
	}
	return v
}

// allAt returns volumes on their claims on a node.
func (sc *scenario) allAt(volumes set, node uint8) (out set) {
	for v := range maxVolumes {
		if volumes.has(v) {
			out |= 1 << sc.at(v, node)
		}
	}
	return out
}

// destinations returns the volumes whose disks are copied when the guest goes to the other node.
func (sc *scenario) destinations(vmi *object) (list []hotplug.Destination) {
	for v := range sc.volumes {
		if vmi.moving && sc.copies.has(v) && vmi.wanted.has(v) {
			list = append(list, hotplug.Destination{From: volumeNames[sc.at(v, vmi.node)], To: volumeNames[sc.at(v, 1-vmi.node)]})
		}
	}
	return list
}

func nameOf(name string) uint8 {
	n, err := strconv.Atoi(name[len("hp-"):])
	if err != nil || n > 255 {
		panic("bad name " + name)
	}
	return uint8(n)
}

// uidOf returns the number of a UID, or 0 for none.
func uidOf(uid types.UID) uint8 {
	if uid == "" {
		return 0
	}
	n, err := strconv.Atoi(string(uid))
	if err != nil || n > 255 {
		panic("bad UID " + uid)
	}
	return uint8(n)
}

// pace has facts about the starting and the other pods that only time shows. The zero value is noPace.
type pace struct{ scheduling, stuck, settled bool }

var noPace pace

// observed is the planner's view of a VMI and pods.
func (sc *scenario) observed(vmi *object, seen *pods, at pace, live bool) hotplug.Observed {
	o := hotplug.Observed{Prefix: "hp", Settled: at.settled, Live: live, MaxAttachmentPods: sc.maxAttachmentPods, MaintainersAsked: true, Budget: hotplug.Budget{State: hotplug.BudgetRight}}
	for v := range sc.volumes {
		if vmi.wanted.has(v) {
			o.Wanted = append(o.Wanted, hotplug.Wanted{Volume: volumeNames[sc.at(v, vmi.node)], Attach: true, Alone: sc.exclusive.has(v)})
		}
		if e := vmi.entries[v]; e.phase != absent {
			entry := hotplug.Entry{Volume: volumeNames[sc.at(v, vmi.node)], Phase: phaseNames[e.phase]}
			if e.uid != 0 {
				entry.PodName, entry.PodUID = podNames[e.name], uids[e.uid]
			}
			o.Entries = append(o.Entries, entry)
		}
	}
	o.Record.Generation = int(vmi.generation)
	for _, h := range vmi.attachmentPods {
		if h.name != 0 {
			recorded := hotplug.AttachmentPod{Name: podNames[h.name], Volumes: volumeLists[h.volumes]}
			if h.uid != 0 {
				recorded.UID = uids[h.uid]
			}
			o.Record.Pods = append(o.Record.Pods, recorded)
		}
	}
	vmi.observe(&o)
	o.Destinations = sc.destinations(vmi)
	for i := range seen {
		p := &seen[i]
		if p.state == noPod {
			continue
		}
		o.Pods = append(o.Pods, hotplug.Pod{
			Name: podNames[p.name], UID: uids[p.uid], Created: creationTimes[i], Volumes: volumeLists[p.volumes],
			Running: p.state == running || p.state == ending && p.ran, Terminating: p.state == ending, Finished: p.state == failed,
			Stuck: at.stuck && p.state == starting, Scheduling: at.scheduling && p.state == starting, Elsewhere: p.node != vmi.node, Left: p.node != vmi.node && !vmi.other,
		})
	}
	return o
}

// written is the VMI after a plan's write.
func written(vmi object, plan *hotplug.Plan) object {
	next := object{wanted: vmi.wanted, forced: vmi.forced, generation: uint8(plan.Record.Generation), journey: vmi.journey}
	next.record(plan.Record.Incoming)
	if len(plan.Record.Pods) > maxAttachmentPods {
		panic("more attachment pods than the model has room for")
	}
	for i, h := range plan.Record.Pods {
		next.attachmentPods[i] = attachmentPod{name: nameOf(h.Name), uid: uidOf(h.UID), volumes: setOf(h.Volumes)}
	}
	for _, e := range plan.Entries {
		v := e.Name[0] - 'A'
		to := entry{phase: phaseOf(e.Phase)}
		if e.PodUID != "" {
			to.name, to.uid = nameOf(e.PodName), uidOf(e.PodUID)
			to.orphan = vmi.entries[v].orphan && vmi.entries[v].uid == to.uid
		}
		next.entries[v] = to
	}
	for v := range maxVolumes {
		if next.entries[v].phase != detaching {
			next.forced &^= 1 << v // as package hotplugspec does
		}
	}
	return next
}

// canonical makes states equal that differ only in names, and drops a cache's view when it is the truth. It keeps the
// order of names, which is the order of generations.
func (s *state) canonical() {
	if !s.vmiStale {
		s.vmiCache = object{}
	}
	if !s.podStale {
		s.podCache = pods{}
	}
	if s.late == 0 {
		s.before = object{}
	}
	var usedNames, usedUIDs [256]bool
	s.eachName(func(name *uint8) { usedNames[*name] = true }, func(uid *uint8) { usedUIDs[*uid] = true })
	names, uids := ranks(&usedNames), ranks(&usedUIDs)
	s.eachName(func(name *uint8) { *name = names[*name] }, func(uid *uint8) { *uid = uids[*uid] })
}

func ranks(used *[256]bool) (rank [256]uint8) {
	n := uint8(0)
	for i := 1; i < len(used); i++ {
		if used[i] {
			n++
			rank[i] = n
		}
	}
	return rank
}

func (s *state) eachName(name, uid func(*uint8)) {
	for _, vmi := range []*object{&s.vmi, &s.vmiCache, &s.before} {
		name(&vmi.generation)
		for i := range vmi.attachmentPods {
			name(&vmi.attachmentPods[i].name)
			uid(&vmi.attachmentPods[i].uid)
		}
		for i := range vmi.entries {
			name(&vmi.entries[i].name)
			uid(&vmi.entries[i].uid)
		}
		for i := range vmi.incoming {
			name(&vmi.incoming[i].name)
			uid(&vmi.incoming[i].uid)
		}
	}
	for _, seen := range []*pods{&s.pods, &s.podCache} {
		for i := range seen {
			name(&seen[i].name)
			uid(&seen[i].uid)
		}
	}
}
