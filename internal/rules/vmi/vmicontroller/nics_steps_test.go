package vmicontroller

import (
	"fmt"
	"maps"
	"time"

	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// steps returns all possible steps of a state.
func (sc *nicScenario) steps(s nicState) []nicStep {
	list := sc.ofUsers(s)
	list = append(list, sc.ofController(s)...)
	list = append(list, sc.ofAttacher(s)...)
	list = append(list, sc.ofMigration(s)...)
	list = append(list, sc.ofHandler(s)...)
	list = append(list, sc.ofTime(s)...)
	if !sc.late {
		for i := range list {
			list[i].to.seen, list[i].to.known = list[i].to.vmi, list[i].to.vmi
		}
	}
	return list
}

// ofUsers: the template is changed.
func (sc *nicScenario) ofUsers(s nicState) []nicStep {
	if s.changes == 0 {
		return nil
	}
	var list []nicStep
	for _, w := range []wish{{}, {on: red}, {on: blue}, {on: red, absent: true}} {
		if w == s.template {
			continue
		}
		to := s
		to.template = w
		to.changes--
		list = append(list, nicStep{fmt.Sprintf("the template has it on %q, absent: %v", w.on, w.absent), to, true})
	}
	return list
}

// ofController: the template is carried into the VMI, the pod's request and the condition are written, a migration is
// made. A write of the VMI needs its present version.
func (sc *nicScenario) ofController(s nicState) []nicStep {
	var list []nicStep
	if w := carried(s.seen, s.template); s.seen == s.vmi && w != s.vmi.spec {
		to := s
		to.vmi.spec, to.migrations = w, 0
		list = append(list, nicStep{name: "the template is carried into the VMI", to: to})
	}
	if s.seen != s.vmi {
		to := s
		to.seen = s.vmi
		list = append(list, nicStep{name: "virt-controller sees the VMI", to: to})
	}
	if s.migration != atRest || s.seen.moved != s.vmi.moved {
		return list // its view of the VMI is about a deleted pod
	}
	d := sc.decide(nicView{s.seen, s.pod})
	if d.changes && d.asks != s.pod.asked {
		to := s
		to.pod.asked = d.asks
		list = append(list, nicStep{name: fmt.Sprintf("the pod is asked for %q", d.asks), to: to})
	}
	if d.condition != s.vmi.condition && s.seen == s.vmi {
		to := s
		to.vmi.condition = d.condition
		list = append(list, nicStep{name: fmt.Sprintf("the condition becomes %d", d.condition), to: to})
	}
	if d.migrates && !s.rests {
		to := s
		to.migration, to.migrations, to.vmi.migrates = attaching, s.migrations+1, true
		if attachments := launcherpod.Attachments(s.vmi.object()); len(attachments) > 0 {
			made := networkNamed(attachments[0].Name)
			to.target = podState{made: made, asked: made}
			if !sc.blind {
				to.target.said, to.target.in = made, made
			}
		}
		list = append(list, nicStep{name: "a migration is made", to: to})
	}
	return list
}

// ofAttacher: the pod gets and loses its interface as requested, and then reports it. A NIC that was connected to it is
// no longer connected.
func (sc *nicScenario) ofAttacher(s nicState) []nicStep {
	if !sc.attacher {
		return nil
	}
	var list []nicStep
	if s.pod.in != s.pod.asked {
		to := s
		to.pod.in, to.on = s.pod.asked, nowhere
		list = append(list, nicStep{name: fmt.Sprintf("the attacher has the pod be on %q", to.pod.in), to: to})
	}
	if s.pod.said != s.pod.in {
		to := s
		to.pod.said = s.pod.in
		list = append(list, nicStep{name: "the attacher says so", to: to})
	}
	return list
}

// ofMigration: the source lets the target's QEMU start when its status shows the guest's NICs, and refuses while the
// guest keeps one that it must release; the guest arrives, or the migration fails.
func (sc *nicScenario) ofMigration(s nicState) []nicStep {
	fails := func(why string, disturbs bool) nicStep {
		to := s
		to.migration, to.target, to.targetNIC, to.vmi.migrates, to.rests = atRest, podState{}, false, false, true
		to.migrations = max(s.migrations-1, 0)
		if disturbs {
			to.breaks--
		}
		return nicStep{"the migration fails: " + why, to, disturbs}
	}
	var list []nicStep
	if s.migration != atRest && s.breaks > 0 {
		list = append(list, fails("of something else", true))
	}
	switch s.migration {
	case attaching:
		if to, why := s.sent(); why != "" {
			list = append(list, fails(why, false))
		} else if to != s {
			list = append(list, nicStep{name: "the target's QEMU waits", to: to})
		}
	case arriving:
		if s.targetNIC != s.nic {
			return append(list, fails("the target's QEMU has other devices", false))
		}
		list = append(list, nicStep{name: "the guest arrives", to: s.arrived()})
	case atRest:
	}
	return list
}

// sent is the state after the source has let the target's QEMU start, which it delays until its status shows the
// guest's NICs; or the reason why it, or the target, refuses.
func (s nicState) sent() (to nicState, why string) {
	vmi, nics := s.known.object(), map[string]bool{nicName: s.nic}
	maps.DeleteFunc(nics, func(_ string, is bool) bool { return !is })
	wired := s.vmi.reported && s.vmi.spec.wanted()
	switch {
	case len(nichotplug.Leaving(vmi, nics)) > 0:
		return s, "the guest keeps an interface"
	case !nichotplug.Reported(vmi, nics):
		return s, ""
	case wired && s.target.in == nowhere:
		return s, "the target's pod lacks an interface of the guest's"
	}
	to = s
	to.migration, to.targetNIC = arriving, wired
	return to, ""
}

// arrived is the state when the guest runs at the target.
func (s nicState) arrived() nicState {
	to := s
	to.migration, to.pod, to.target, to.targetNIC = atRest, s.target, podState{}, false
	to.on, to.releases = nowhere, false
	to.vmi.migrates, to.vmi.moved, to.vmi.condition, to.rests = false, !s.vmi.moved, notRequired, true // in one write
	if s.nic {
		to.on = s.target.in
	}
	to.handler = handlerState{unsure: true, loose: s.nic && to.on == nowhere}
	return to
}

// ofHandler: virt-handler changes the NICs, the guest releases one, and the status shows QEMU's.
func (sc *nicScenario) ofHandler(s nicState) []nicStep {
	var list []nicStep
	if s.known != s.vmi {
		to := s
		to.known = s.vmi
		list = append(list, nicStep{name: "virt-handler sees the VMI", to: to})
	}
	if s.releases && !sc.keeps {
		to := s
		to.nic, to.on, to.releases = false, nowhere, false
		to.handler.asked, to.handler.gone, to.handler.loose = false, true, false
		list = append(list, nicStep{name: "the guest releases the NIC", to: to})
	}
	if s.known == s.vmi && s.vmi.reported != s.nic {
		to := s
		to.vmi.reported = s.nic
		list = append(list, nicStep{name: fmt.Sprintf("the status shows it: %v", s.nic), to: to})
	}
	if s.deaths > 0 {
		to := s
		to.handler = handlerState{unsure: true, loose: s.nic}
		to.deaths--
		list = append(list, nicStep{"virt-handler dies, and the next one begins", to, true})
	}
	if s.migration == atRest {
		if to := s.handled(); to != s {
			list = append(list, nicStep{name: "virt-handler does its part", to: to})
		}
	}
	return list
}

// handled is the state after virt-handler has changed the guest's NICs.
func (s nicState) handled() nicState {
	at := func(was bool, ago time.Duration) map[string]time.Time {
		if !was {
			return nil
		}
		return map[string]time.Time{nicName: now.Add(-ago)}
	}
	set := func(is bool) map[string]bool {
		if !is {
			return nil
		}
		return map[string]bool{nicName: true}
	}
	h := s.handler
	node := nichotplug.Node{
		VMI: s.known.object(), NICs: set(s.nic), Gone: set(h.gone), Unconnected: set(s.nic && (h.loose || s.on == nowhere)), Unsure: h.unsure,
		Asked: at(h.asked, 0), Since: at(h.asked, time.Hour), Plugged: at(h.plugged, 0), Now: now,
	}
	if node.Settled() {
		return s
	}
	node.InPod = nichotplug.InPod(s.pod.object())
	step := node.Next()
	to := s
	if len(step.Unplug) > 0 {
		to.releases, to.handler.asked, to.handler.loose = true, true, true
	}
	if len(step.Clear) > 0 {
		to.handler.gone = false
	}
	if step.RemoveLeftovers {
		to.handler.unsure = false
	}
	if len(step.Plug)+len(step.Reconnect) > 0 && s.pod.in != nowhere {
		to.nic, to.on = true, s.pod.in
		to.handler.loose, to.handler.gone, to.handler.plugged = false, false, true
	}
	return to
}

// When a pause ends, Drydock has done all that it can; all others, and virt-controller's loop of VMs, may need
// longer.
func (sc *nicScenario) ofTime(s nicState) []nicStep {
	busy := s.migration != atRest || s.known != s.vmi || s.vmi.reported != s.nic || s.handled() != s
	if d := sc.decide(nicView{s.vmi, s.pod}); busy || d.condition != s.vmi.condition || d.changes && d.asks != s.pod.asked {
		return nil
	}
	to := s
	to.handler.plugged, to.rests = false, false
	if s.vmi.condition == pendingNow {
		to.vmi.condition = pendingLong
	}
	if to == s {
		return nil
	}
	to.seen, to.known = to.vmi, to.vmi
	return []nicStep{{name: "time passes", to: to}}
}

func (s *nicState) String() string {
	return fmt.Sprintf("template %v, VMI %v (seen %v, known %v), pod %v, target %v, NIC %v on %q, releases %v, %+v, migration %d (%d made)",
		s.template, s.vmi, s.seen, s.known, s.pod, s.target, s.nic, s.on, s.releases, s.handler, s.migration, s.migrations)
}
