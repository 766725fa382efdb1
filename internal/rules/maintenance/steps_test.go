package maintenance

import (
	v1 "kubevirt.io/api/core/v1"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// step is a transition. disturbs means that it need not happen.
type step struct {
	name     string
	disturbs bool
	unfair   bool
	to       state
}

// rules are the explored decisions.
type rules struct {
	lock func(Observed) Plan
	// startSees returns the VM in the view of the loop that hands a VMI over.
	startSees func(*state) machineState
	// handsOver decides whether a VMI without a VM is handed over. blindly means that the write ignores other writes in
	// between.
	handsOver func(machineState) bool
	blindly   bool
	// asksOnce means that the hotplug loop does not ask again who has the claim after it has recorded an attachment
	// pod.
	asksOnce bool
}

var drydocks = rules{lock: Decide, startSees: func(s *state) machineState { return s.vm }, handsOver: handsOverInstance}

type scenario struct {
	name   string
	budget [budgets]int8
	always bool
	// instance means that the machine is a VMI without a VM.
	instance bool
	rules    rules
	plans    map[leader]Plan
	news     map[machineState]bool
	hands    map[machineState]bool
}

// observed is a leader's input for its decision.
func (l leader) observed() Observed {
	o := Observed{Machine: l.vm.machine(), HolderAsked: l.asked, LaterAsked: l.laterAsked, Now: now}
	for i, p := range l.pods {
		if pod := p.object(i); pod != nil {
			o.Pods = append(o.Pods, pod)
		}
	}
	if l.asked && l.vm.holder > 0 {
		o.Holder = l.holder.object(int(l.vm.holder) - 1)
	}
	if l.looked {
		o.Look = &Look{PluggedAsked: l.pluggedAsked, Plugged: plug{recorded: l.plugged}.seenPlugged(o.Machine)}
		switch {
		case l.guest && l.vm.instance:
			o.Look.Rivals = []vmicontroller.Rival{{Pod: "launcher"}}
		case l.guest:
			o.Look.VMI = &v1.VirtualMachineInstance{}
		}
	}
	if l.laterAsked {
		o.Later = l.later.machine()
	}
	return o
}

func (sc *scenario) plan(l leader) Plan {
	l.changed = false
	p, known := sc.plans[l]
	if !known {
		p = sc.rules.lock(l.observed())
		sc.plans[l] = p
	}
	return p
}

// advance executes a leader's next request: a read, or the planned write.
func (sc *scenario) advance(s *state, l *leader) (name string, unfair bool) {
	switch l.reads {
	case 0:
		*l = leader{reads: 1, vm: s.vm}
		return "reads the VM", false
	case 1:
		l.reads, l.pods = 2, s.pods
		return "reads the pods", false
	}
	p := sc.plan(*l)
	switch p.Needs {
	case NeedHolder:
		l.asked, l.holder = true, s.pods[l.vm.holder-1]
		return "asks for the holder", false
	case NeedLook:
		l.looked, l.guest = true, s.hasLauncher()
		return "looks", false
	case NeedPlugged:
		l.pluggedAsked, l.plugged = true, s.plug.recorded
		return "looks for plugged disks", false
	case NeedLater:
		l.laterAsked, l.later = true, s.vm
		return "asks for the VM again", false
	}
	changed := l.changed
	*l = leader{}
	return "is to " + string(p.Step), s.take(p, changed)
}

// take is the API server's reaction to a step.
func (s *state) take(p Plan, changed bool) (unfair bool) {
	i := 0
	if p.Pod != nil && p.Pod.Name == podName(1) {
		i = 1
	}
	pod := &s.pods[i]
	switch p.Step {
	case Lock, Open, Unlock, Forget:
		if !changed {
			unfair = p.Step == Lock && i == 1 && Waits(s.pods[0].orNone(0))
			s.writeVM(machineOf(p.Machine, s.vm))
		}
	case Lift:
		pod.gated = pod.gated && !pod.exists
	case LetGo:
		pod.kept = false
		pod.exists = pod.exists && !pod.deleting
	case Evict:
		*pod = podState{made: true}
	case Delete:
		pod.deleting = pod.exists
	case Rest:
	}
	return unfair
}

func (p podState) orNone(i int) *corev1.Pod {
	if pod := p.object(i); pod != nil {
		return pod
	}
	return &corev1.Pod{}
}

type adder func(name string, disturbs bool, change func(*state))

func (sc *scenario) steps(s *state) []step {
	var out []step
	add := func(name string, disturbs bool, change func(*state)) {
		to := *s
		change(&to)
		if to != *s {
			out = append(out, step{name: name, disturbs: disturbs, to: to})
		}
	}
	sc.leaders(s, &out)
	for i := range mostPods {
		kubelet(s, i, add)
	}
	if s.vm.instance {
		sc.instanceLoop(s, add)
	} else {
		sc.virtController(s, add)
	}
	sc.users(s, add)
	sc.plugs(s, add)
	if s.silent {
		add("the node answers again", false, func(to *state) { to.silent = false })
	}
	if s.cached != s.vm {
		add("the cache catches up", false, func(to *state) { to.cached = to.vm })
	}
	return out
}

// One leader is cut off anywhere, the other acts at once.
func (sc *scenario) leaders(s *state, out *[]step) {
	to := *s
	name, unfair := sc.advance(&to, &to.slow)
	*out = append(*out, step{name: "an old leader " + name, disturbs: true, unfair: unfair, to: to})
	if s.slow != (leader{}) {
		to = *s
		to.slow = leader{}
		*out = append(*out, step{name: "an old leader ends", disturbs: true, to: to})
	}
	to = *s
	var prompt leader
	for range 2 {
		sc.advance(&to, &prompt)
	}
	for prompt.reads > 0 {
		name, unfair = sc.advance(&to, &prompt)
	}
	if to != *s {
		*out = append(*out, step{name: "the leader " + name, unfair: unfair, to: to})
	}
}

// The first pod's node may fall silent; its processes then run on.
func kubelet(s *state, i int, add adder) {
	p, reachable := s.pods[i], !s.silent || i > 0
	if p.exists && !p.gated && !p.deleting && !p.bound {
		add("the scheduler binds "+podName(i), false, func(to *state) { to.pods[i].bound = true })
	}
	processes(s, i, reachable, add)
}

// processes has the start and the end of a pod's processes on a node.
func processes(s *state, i int, reachable bool, add adder) {
	p, proc := s.pods[i], s.procs[i]
	if p.exists && p.bound && !p.deleting && proc == none && reachable {
		add(podName(i)+" runs", false, func(to *state) { to.procs[i] = runs })
	}
	if proc == runs {
		add(podName(i)+" ends", s.silent && i == 0, func(to *state) { to.procs[i] = ended })
	}
	if p.exists && p.bound && !p.terminal && reachable && (proc == ended || p.deleting && proc == none) {
		add("the kubelet says that "+podName(i)+" has ended", false, func(to *state) { to.pods[i].terminal, to.procs[i] = true, ended })
	}
}

// virtController starts and ends the VM's guest.
func (sc *scenario) virtController(s *state, add adder) {
	v := s.vmi
	if !v.exists && !v.creating && sc.creates(s.vm) {
		add("the VM's loop is about to make the VMI", false, func(to *state) { to.vmi.creating = true })
	}
	if v.creating {
		add("it makes the VMI", false, func(to *state) { to.vmi = instance{exists: true} })
	}
	if v.exists && !v.deleting && !s.vm.always {
		add("the VM's loop deletes the VMI", false, func(to *state) { to.vmi.deleting, to.vmi.handing = true, false })
	}
	if v.exists && !v.deleting && !v.handed && !v.handing && sc.handsOver(sc.rules.startSees(s)) {
		add("the VMI's loop is about to hand it over", false, func(to *state) { to.vmi.handing = true })
	}
	guest(s, add)
}

// guest has the steps of a VMI from its handover to its end.
func guest(s *state, add adder) {
	v := s.vmi
	if v.handing {
		add("it hands the VMI over", false, func(to *state) { to.vmi.handing, to.vmi.handed = false, true })
	}
	if v.handed && !v.guest && !v.deleting {
		add("the guest starts", false, func(to *state) { to.vmi.guest = true })
	}
	if v.deleting {
		add("the guest ends, and the VMI goes", false, func(to *state) { to.vmi = instance{} })
	}
}

// creates reports whether the VM's loop makes a VMI for a VM that the API server confirms.
func (sc *scenario) creates(vm machineState) bool {
	answer, known := sc.news[vm]
	if !known {
		answer = vmcontroller.Decide(vmcontroller.Observed{VM: vm.object(), VMConfirmed: true, VMIAsked: true, Now: now}).Create != nil
		sc.news[vm] = answer
	}
	return answer
}

// handsOver reports whether the VMI's loop hands a VMI over to its node.
func (sc *scenario) handsOver(vm machineState) bool {
	answer, known := sc.hands[vm]
	if !known {
		object := vm.object()
		vmi, pod := instance{}.object(object)
		plan := vmicontroller.Decide(vmicontroller.Observed{VMI: vmi, Pod: pod, RivalsAsked: true, VM: object, VMAsked: true, Now: now})
		answer = plan.VMI.Status.Phase == v1.Scheduled
		sc.hands[vm] = answer
	}
	return answer
}

// users has the steps of users and administrators.
func (sc *scenario) users(s *state, add adder) {
	spend := func(what int, name string, possible bool, change func(*state)) {
		if possible && s.budget[what] > 0 {
			add(name, true, func(to *state) { to.budget[what]--; change(to) })
		}
	}
	for i, p := range s.pods {
		spend(creates, "somebody makes "+podName(i), !p.made && (i == 0 || s.pods[0].made), func(to *state) {
			to.pods[i] = podState{made: true, exists: true, gated: true, kept: true}
		})
		spend(deletes, "somebody deletes "+podName(i)+", by force", p.exists && !p.deleting, func(to *state) {
			to.pods[i].deleting = true
		})
	}
	spend(silences, "the node of the first pod falls silent", !s.silent && s.procs[0] == runs, func(to *state) { to.silent = true })
	spend(forces, "somebody turns the silent node off, and vouches for the holder", s.silent && s.vm.holder == 1 && !s.vm.release, func(to *state) {
		vm := to.vm
		vm.release = true
		to.procs[0] = ended
		to.writeVM(vm)
	})
	if s.vm.instance {
		spend(starts, "somebody changes the start strategy", true, func(to *state) { to.writeVM(always(to.vm, !to.vm.always)) })
		return
	}
	spend(starts, "somebody starts the VM", !s.vm.always && startAdmitted(s.vm), func(to *state) { to.writeVM(always(to.vm, true)) })
	spend(startsPast, "the VM is started past admission", !s.vm.always, func(to *state) { to.writeVM(always(to.vm, true)) })
	spend(starts, "somebody stops the VM", s.vm.always, func(to *state) { to.writeVM(always(to.vm, false)) })
}

func always(vm machineState, yes bool) machineState {
	vm.always = yes
	return vm
}

// startAdmitted reports whether admission accepts a change of the run strategy.
func startAdmitted(vm machineState) bool {
	return len(validate.MaintenanceLock(always(vm, true).object(), vm.object())) == 0
}
