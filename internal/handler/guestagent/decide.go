package guestagent

import (
	"time"

	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// firstWaits are the waits before the first queries of a new agent: it often precedes the guest's network, which nothing
// announces. pollInterval follows after the last, or as soon as every interface has an address.
var firstWaits = []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 30 * time.Second}

// Nothing announces a change of addresses: one that is added by hand sends no packet (decision 656). Only a changed
// answer causes a write.
const pollInterval = 30 * time.Second

// Every pollsForAll-th query asks for everything.
const pollsForAll = 4

// pauseBetween is the shortest time from one agent's first query to the next agent's: an agent that keeps appearing and
// vanishing must not cause a stream of writes.
const pauseBetween = 10 * time.Second

// patience is how long the agent may be gone before the status shows it: a guest that reboots or shuts down first loses
// its agent. With its end, or the agent's return, that would be two useless writes.
const patience = 10 * time.Second

type observation struct {
	open     bool // the port is open
	asking   bool // the agent is polled
	answered bool // by this agent or an earlier one
	// asked is the time of the last query, absentSince when the port was found closed.
	asked, absentSince, now time.Time
}

type decision struct {
	ask         bool
	pause       time.Duration
	stop        bool
	forget      bool
	absentSince time.Time
	// after is when to decide again, 0 for when the port changes.
	after time.Duration
}

func decide(o observation) decision {
	if o.open {
		d := decision{ask: !o.asking}
		if d.ask {
			d.pause = max(0, o.asked.Add(pauseBetween).Sub(o.now))
		}
		return d
	}
	d := decision{stop: o.asking}
	if !o.answered {
		return d
	}
	if d.absentSince = o.absentSince; d.absentSince.IsZero() {
		d.absentSince = o.now
	}
	if d.after = d.absentSince.Add(patience).Sub(o.now); d.after <= 0 {
		d.forget, d.absentSince, d.after = true, time.Time{}, 0
	}
	return d
}

func complete(answer *vmihandler.Agent, interfaces int) bool {
	addressed := 0
	for _, i := range answer.Interfaces {
		if len(i.IPs) > 0 {
			addressed++
		}
	}
	return addressed >= interfaces
}
