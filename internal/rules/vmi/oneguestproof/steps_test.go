package oneguestproof

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podlabels"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	handlervmi "drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Tests replace the rules, to see that the exploration finds errors.
type rules struct {
	life  func(vmicontroller.Observed) vmicontroller.Plan
	next  func(handlervmi.Observed) handlervmi.Step
	sweep func(pod *corev1.Pod, instance types.UID) bool
	// finds reports whether a search for the launcher pods of VMIs of a name finds a pod.
	finds func(pod *corev1.Pod, name string) bool
	// frozen reports whether the policy stops an editor from changing a label of the pods.
	frozen func(label string) bool
}

// byLabel is the API server's search, and byNameToo the additional one in a cache.
func byLabel(pod *corev1.Pod, name string) bool {
	return launcherpod.IsLauncher(pod) && pod.Labels[launcherpod.NameLabel] == launcherpod.NameLabelValue(name)
}

func byNameToo(pod *corev1.Pod, name string) bool {
	return byLabel(pod, name) || launcherpod.IsLauncher(pod) && launcherpod.IsNamedFor(pod, name)
}

var drydocks = rules{
	life: vmicontroller.Decide,
	next: func(o handlervmi.Observed) handlervmi.Step {
		step, _ := handlervmi.Next(o)
		return step
	},
	sweep:  vmicontroller.Abandoned,
	finds:  byNameToo,
	frozen: podlabels.IsLabel,
}

// step is a transition.
type step struct {
	name string
	// disturbs is set for steps that need not happen: those of users, and failures.
	disturbs bool
	to       state
}

// scenario has the possible events, and their number.
type scenario struct {
	name   string
	budget [budgets]int8
	// oldLeader adds a virt-controller with old caches.
	oldLeader bool
	// prompt makes virt-handlers' caches current at once.
	prompt bool
	// started begins with a running guest.
	started bool
	// rights lets somebody remove labels from pods whom the policy does not stop.
	rights bool
	rules  rules
	// A cache of decisions.
	memo         map[seen]planned
	vmMemo       map[instance]vmPlanned
	handlerMemos map[handlerSeen]handlerPlanned
}

// vmPlanned is the result of a round of the VM loop, handlerSeen and handlerPlanned input and result of virt-handler's.
type (
	vmPlanned   struct{ create, remove, adopt bool }
	handlerSeen struct {
		number                            int8
		view                              view
		proc                              process
		deserted, gone, remains, finished bool
	}
	handlerPlanned struct {
		step  handlervmi.Step
		phase int8
	}
)

// seen has all inputs of a round of virt-controller, and planned its results.
type (
	seen struct {
		vmi           instance
		own           pod
		rival         pod
		asked, looked bool
		node          node
		nodeAsked     bool
	}
	planned struct {
		needs  vmicontroller.Question
		create bool
		vmi    instance
		remove podID
	}
)

func (sc *scenario) decide(k seen) planned {
	if p, ok := sc.memo[k]; ok {
		return p
	}
	o := vmicontroller.Observed{VMI: k.vmi.object(), PodAsked: k.asked, RivalsAsked: k.looked, VMAsked: true, NodeAsked: k.nodeAsked, Now: clock}
	if k.own.exists {
		o.Pod = k.own.object()
	}
	if k.looked && k.rival.exists {
		if r, is := vmicontroller.RivalOf(o.VMI, k.rival.object()); is && sc.rules.finds(k.rival.object(), o.VMI.Name) {
			o.Rivals = []vmicontroller.Rival{r}
		}
	}
	if k.nodeAsked {
		o.Node = k.node.object()
	}
	plan := sc.rules.life(o)
	p := planned{
		needs: plan.Needs, create: plan.CreatePod,
		vmi: k.vmi.read(plan.VMI),
	}
	if plan.DeletePod {
		p.remove = k.own.id
	}
	sc.memo[k] = p
	return p
}

// round is one of virt-controller's with a view of the VMI and its pods, in which the API server's answers are true.
func (sc *scenario) round(s *state, vmi instance, own pod) planned {
	k := seen{vmi: vmi, own: own}
	for {
		p := sc.decide(k)
		switch p.needs {
		case vmicontroller.NeedPod:
			k.asked, k.own = true, s.pods[vmi.number]
		case vmicontroller.NeedRivals:
			k.looked, k.rival = true, s.pods[1-vmi.number]
		case vmicontroller.NeedNode:
			k.nodeAsked, k.node = true, s.nodes[vmi.number]
		default:
			return p
		}
	}
}

func (s *state) createPod(of int8) {
	if s.pods[of].exists || s.makes[of] == mostPods {
		return
	}
	s.pods[of] = pod{exists: true, id: idOf(of, s.makes[of]), owned: true}
	s.makes[of]++
}

// deletePod is a graceful deletion: a pod without a node disappears at once.
func (s *state) deletePod(id podID) {
	p := &s.pods[id.vmi()]
	switch {
	case !p.exists || p.id != id || p.deleting:
	case !p.bound || p.finished:
		*p = pod{}
	default:
		p.deleting = true
	}
}

func (s *state) write(to instance) {
	if to.deleting && !to.finalizer {
		to = instance{}
	}
	s.vmi = to
}

func (s *state) deleteVMI() {
	to := s.vmi
	to.deleting = true
	s.write(to)
}

func (sc *scenario) sweepPods(s *state) {
	var live types.UID
	if s.vmi.exists {
		live = vmiUID(s.vmi.number)
	}
	for _, p := range s.pods {
		if pod := p.object(); p.exists && sc.rules.finds(pod, vmObject().Name) && sc.rules.sweep(pod, live) {
			s.deletePod(p.id)
		}
	}
}

// steps returns all possible steps of a state.
func (sc *scenario) steps(s *state) []step {
	var out []step
	add := func(name string, disturbs bool, change func(*state)) {
		to := *s
		change(&to)
		if sc.prompt {
			to.lookAtOnce()
		}
		to.settle()
		if to != *s {
			out = append(out, step{name, disturbs, to})
		}
	}
	sc.controllers(s, add)
	if sc.oldLeader {
		sc.oldLeaders(s, add)
	}
	for i := range int8(mostVMIs) {
		sc.handler(s, i, add)
		kubelet(s, i, add)
		nodes(s, i, add)
	}
	sc.users(s, add)
	return out
}

// settle drops facts about a deleted VMI once nothing of it runs, or can start.
func (s *state) settle() {
	for i := range int8(mostVMIs) {
		if s.vmi.exists && s.vmi.number == i || s.pods[i].exists || i >= s.made {
			continue
		}
		idle := true
		for g := range s.procs[i] {
			idle = idle && s.procs[i][g] != assigned && !s.procs[i][g].alive()
		}
		if idle {
			s.procs[i], s.views[i], s.nodes[i] = [mostPods]process{}, view{}, answers
		}
	}
	if s.made == mostVMIs && !s.vmi.exists {
		// No other VMI follows.
		s.old = leader{}
	}
}

func (s *state) lookAtOnce() {
	for i := range int8(mostVMIs) {
		if s.nodes[i] != silent {
			s.views[i].look(s.vmi, i)
		}
	}
}

type adder func(name string, disturbs bool, change func(*state))

// controllers has the steps of the virt-controller with a true view, of the scheduler and of the garbage collector.
func (sc *scenario) controllers(s *state, add adder) {
	if s.vmi.exists {
		p := sc.round(s, s.vmi, s.pods[s.vmi.number])
		add("virt-controller works on the VMI", false, func(to *state) { carryOut(to, s.vmi, p) })
	}
	add("virt-controller sweeps", false, func(to *state) { sc.sweepPods(to) })
	sc.vmLoop(s, s.vmi, "virt-controller works on the VM", add)
	for i, p := range s.pods {
		if p.exists && !p.bound && !p.deleting {
			add("the scheduler binds", false, func(to *state) {
				to.pods[i].bound = true
				*to.proc(p.id) = assigned
			})
		}
		if p.exists && p.owned && (!s.vmi.exists || s.vmi.number != int8(i)) {
			add("the garbage collector deletes", false, func(to *state) { to.deletePod(p.id) })
		}
	}
}

func carryOut(to *state, from instance, p planned) {
	if p.create {
		to.createPod(from.number)
	}
	to.write(p.vmi)
	if p.remove != 0 {
		to.deletePod(p.remove)
	}
}

func (sc *scenario) vmLoop(s *state, view instance, name string, add adder) {
	plan := sc.decideVM(view)
	add(name, false, func(to *state) {
		if plan.create && !s.vmi.exists && s.made < mostVMIs {
			to.vmi = instance{exists: true, number: s.made, finalizer: true}
			to.made++
		}
		if plan.remove && s.vmi.exists && s.vmi.number == view.number {
			to.deleteVMI()
		}
		if plan.adopt && s.vmi == view {
			to.vmi.disowned = false
		}
	})
}

func (sc *scenario) decideVM(view instance) vmPlanned {
	if p, ok := sc.vmMemo[view]; ok {
		return p
	}
	// Only the VM's status ever changes, and its view is always current.
	o := vmcontroller.Observed{VM: vmObject(), VMConfirmed: true, Now: clock}
	if view.exists {
		o.VMI = view.object()
		// Its backoff after failures is over.
		o.VM.Status.StartFailure = &v1.VirtualMachineStartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: o.VMI.UID, RetryAfterTimestamp: &past}
	}
	plan := vmcontroller.Decide(o)
	if plan.Needs != "" {
		panic("the VM's loop asks for " + plan.Needs)
	}
	p := vmPlanned{create: plan.Create != nil, remove: plan.Delete, adopt: plan.Adopt}
	sc.vmMemo[view] = p
	return p
}

// oldLeaders has the steps of the virt-controller with old caches: it decides, and its requests arrive one by one, or
// not at all.
func (sc *scenario) oldLeaders(s *state, add adder) {
	old := &s.old
	add("the old leader's cache of VMIs catches up", true, func(to *state) { to.old.vmi = s.vmi })
	add("the old leader's cache of pods catches up", true, func(to *state) { to.old.pods = s.pods })
	busy := old.create || old.patch || old.remove != 0
	if old.vmi.exists && !busy {
		p := sc.round(s, old.vmi, old.pods[old.vmi.number])
		add("the old leader decides", true, func(to *state) {
			to.old.create, to.old.remove = p.create, p.remove
			to.old.patch, to.old.from, to.old.to = p.vmi != old.vmi, old.vmi, p.vmi
			if !to.old.patch && p.remove != 0 {
				to.old.from, to.old.to = instance{}, instance{}
			}
		})
	}
	switch {
	case old.create:
		add("the old leader makes a pod", true, func(to *state) { to.createPod(old.vmi.number); to.old.create = false })
	case old.patch && old.from == s.vmi:
		add("the old leader patches", true, func(to *state) { to.write(old.to); to.old.settle() })
	case old.remove != 0 && !old.patch:
		add("the old leader deletes a pod", true, func(to *state) { to.deletePod(old.remove); to.old.forget() })
	}
	if busy {
		add("the old leader is cut off", true, func(to *state) { to.old.forget() })
	}
	sc.vmLoop(s, old.vmi, "the old leader works on the VM", add)
}

func (l *leader) settle() { l.patch, l.from, l.to = false, instance{}, instance{} }
func (l *leader) forget() { l.create, l.remove = false, 0; l.settle() }

// handler has the steps of the virt-handler of VMI i's node.
func (sc *scenario) handler(s *state, i int8, add adder) {
	if s.nodes[i] == fenced {
		return
	}
	reachable := s.nodes[i] != silent
	if reachable {
		add("virt-handler's cache catches up", false, func(to *state) { to.views[i].look(s.vmi, i) })
	}
	v := s.views[i]
	if !v.seen || v.pod == 0 {
		return
	}
	proc := *s.proc(v.pod)
	decided := sc.decideHandler(s, i, v)
	switch final := decided.phase; decided.step {
	case handlervmi.Start:
		add("virt-handler starts the guest", false, func(to *state) { *to.proc(v.pod) = guest })
	case handlervmi.Stop, handlervmi.Kill:
		if proc == guest {
			add("virt-handler ends the guest", false, func(to *state) { *to.proc(v.pod) = ended })
		}
	case handlervmi.Report:
		if current := s.vmi; reachable && current.exists && current.number == i && v == viewOf(current) {
			add("virt-handler reports", false, func(to *state) {
				to.vmi.phase = final
				to.vmi.ran = to.vmi.ran || final == phaseRunning
				if to.vmi.final() {
					to.vmi.missed = notMissed
				}
				to.views[i] = viewOf(to.vmi)
			})
		}
	}
}

func viewOf(v instance) view {
	return view{seen: true, phase: v.phase, deleting: v.deleting, pod: v.pod}
}

// look updates a node's cache of the VMI, which is selected by the label that it gets together with its pod.
func (v *view) look(vmi instance, i int8) {
	switch {
	case vmi.exists && vmi.number == i && vmi.pod != 0:
		*v = viewOf(vmi)
	case v.seen:
		v.gone = true
	}
}

func (sc *scenario) decideHandler(s *state, i int8, v view) handlerPlanned {
	reachable, p := s.nodes[i] != silent, s.pods[i]
	k := handlerSeen{number: i, view: v, proc: *s.proc(v.pod), deserted: v.gone && reachable}
	if reachable && (!p.exists || p.id != v.pod) {
		k.gone, k.remains = true, k.proc == assigned || k.proc.alive()
	} else {
		k.finished = p.finished
	}
	if decided, ok := sc.handlerMemos[k]; ok {
		return decided
	}
	o, phase := k.observed()
	decided := handlerPlanned{sc.rules.next(o), phase}
	sc.handlerMemos[k] = decided
	return decided
}

// observed returns virt-handler's input, and the phase that the VMI should then have.
func (k handlerSeen) observed() (handlervmi.Observed, int8) {
	v, proc := k.view, k.proc
	vmi := instance{exists: true, number: k.number, phase: v.phase, deleting: v.deleting, pod: v.pod, finalizer: true}.object()
	o := handlervmi.Observed{VMI: vmi, Node: nodeName(k.number), Deserted: k.deserted, Now: clock, Attached: proc == guest}
	o.Pod = &handlervmi.Pod{UID: v.pod.uid(), Gone: k.gone, Remains: k.remains, Finished: k.finished}
	f := handlervmi.Facts{Now: clock}
	switch proc {
	case waiting:
		o.Link, o.Launcher.Phase = handlervmi.LinkUp, launch.PhaseWaiting
	case guest:
		o.Link, o.Launcher.Phase = handlervmi.LinkUp, launch.PhaseRunning
		f.Guest = &handlervmi.Guest{RunState: "running"}
	case ended:
		o.Launcher = launch.State{Phase: launch.PhaseExited, Exit: &launch.Exit{Reason: launch.ReasonCrashed}}
		f.Exit = o.Launcher.Exit
	}
	f.Lost = handlervmi.Lost(o)
	f.Vanished = o.Pod.Gone && !o.Pod.Remains && o.Link != handlervmi.LinkUp
	phase := phaseOf(handlervmi.Status(vmi, f).Phase)
	o.Changed = phase != v.phase && !v.gone
	return o, phase
}

// The kubelet runs pods whose objects are gone until it has noticed.
func kubelet(s *state, i int8, add adder) {
	for g := range int8(mostPods) {
		id := idOf(i, g)
		proc, p := *s.proc(id), s.pods[i]
		known := p.exists && p.id == id
		reachable := s.nodes[i] == answers || s.nodes[i] == back
		if proc == assigned && s.nodes[i] != fenced {
			add("the kubelet starts the launcher", false, func(to *state) { *to.proc(id) = waiting })
		}
		endings(s, id, reachable && (!known || p.deleting), add)
		if known && reachable {
			reports(s, id, add)
		}
	}
}

// reports has the kubelet's reports about a pod whose processes have ended.
func reports(s *state, id podID, add adder) {
	i, proc := id.vmi(), *s.proc(id)
	switch p := s.pods[i]; {
	case !p.finished && (proc == ended || proc == endedUnheard):
		add("the kubelet says that the pod has ended", false, func(to *state) { to.pods[i].finished = true })
	case p.finished && p.deleting:
		add("the kubelet lets the pod go", false, func(to *state) { to.pods[i] = pod{} })
	}
}

// endings has the ways in which a pod's processes end: by themselves, or, if unwanted, because the kubelet ends them.
func endings(s *state, id podID, unwanted bool, add adder) {
	ends := func(name string, disturbs bool) {
		add(name, disturbs, func(to *state) { *to.proc(id) = ended })
		if s.budget[unhears] > 0 {
			add(name+", unheard", true, func(to *state) { *to.proc(id) = endedUnheard; to.budget[unhears]-- })
		}
	}
	proc := *s.proc(id)
	if proc == guest {
		ends("the guest ends by itself", true)
	}
	if unwanted && (proc == assigned || proc.alive()) {
		ends("the kubelet ends a pod that is to go", false)
	}
}

// idle reports whether VMI i's node runs no processes of pods whose objects are gone.
func (s *state) idle(i int8) bool {
	for g := range int8(mostPods) {
		id := idOf(i, g)
		known := s.pods[i].exists && s.pods[i].id == id
		if proc := *s.proc(id); !known && (proc == assigned || proc.alive()) {
			return false
		}
	}
	return true
}

// fence turns VMI i's node off, and declares it out of service.
func (s *state) fence(i int8) {
	s.nodes[i] = fenced
	for g := range int8(mostPods) {
		if proc := s.proc(idOf(i, g)); *proc != none {
			*proc = endedUnheard
		}
	}
	s.pods[i] = pod{}
}

// nodes has the failures and returns of VMI i's node, and the time that passes there.
func nodes(s *state, i int8, add adder) {
	idle := s.idle(i)
	switch s.nodes[i] {
	case answers:
		// The node of the first guest suffices.
		if s.budget[silences] > 0 && i == 0 {
			add("the node falls silent", true, func(to *state) { to.nodes[i] = silent; to.budget[silences]-- })
		}
	case silent:
		add("the node answers again", false, func(to *state) { to.nodes[i] = back })
		add("the node is off, and declared out of service", true, func(to *state) { to.fence(i) })
	case back:
		if idle {
			add("the kubelet has caught up", false, func(to *state) { to.nodes[i] = answers })
		}
	}
	if s.vmi.exists && s.vmi.number == i && s.vmi.missed == missedLately && (idle || s.nodes[i] != answers) {
		add("the time of a guest without a pod is over", false, func(to *state) { to.vmi.missed = missedLong })
	}
}

// users has the steps of users and other controllers.
func (sc *scenario) users(s *state, add adder) {
	spend := func(what int, name string, possible bool, change func(*state)) {
		if possible && s.budget[what] > 0 {
			add(name, true, func(to *state) { to.budget[what]--; change(to) })
		}
	}
	spend(deletesVMI, "somebody deletes the VMI", s.vmi.exists && !s.vmi.deleting, (*state).deleteVMI)
	spend(orphansVMI, "somebody deletes the VMI and orphans its pod", s.vmi.exists && !s.vmi.deleting, func(to *state) {
		to.pods[to.vmi.number].owned = false
		to.deleteVMI()
	})
	spend(stripsVMI, "somebody takes the VMI's finalizers away and deletes it", s.vmi.exists, func(to *state) { to.vmi = instance{} })
	spend(disownsVMI, "somebody takes the VMI's owner away", s.vmi.exists && !s.vmi.disowned, func(to *state) { to.vmi.disowned = true })
	for i, p := range s.pods {
		for bit, label := range editable[:len(editable)-1] {
			may := !sc.rules.frozen(label) || sc.rights && label == launcherpod.NameLabel
			spend(relabels, "somebody takes a pod's label "+label+" away", may && p.exists && !p.lost.has(bit), func(to *state) { to.pods[i].lost |= 1 << bit })
		}
		spend(deletesPod, "somebody deletes a pod", p.exists && !p.deleting, func(to *state) { to.deletePod(p.id) })
		spend(forcesPod, "somebody deletes a pod by force", p.exists, func(to *state) { to.pods[i] = pod{} })
		spend(disownsPod, "somebody takes a pod's owner away", p.exists && p.owned, func(to *state) { to.pods[i].owned = false })
	}
}
