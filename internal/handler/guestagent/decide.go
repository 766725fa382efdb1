package guestagent

import (
	"time"

	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// looks are the waits before each time that a new agent is asked: it is
// often up before the guest's network is, and nothing announces that. Once
// every interface has its address, or after the last of these, it is asked seldom.
var looks = []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 30 * time.Second}

// rest is the wait before each further look at the guest's addresses: they change while a guest runs, and nothing announces
// that. An address that is added by hand sends no packet (decision 656). Only an answer
// that is another one makes a write.
const rest = 30 * time.Second

// looksForAll is how many of those looks there are for each that asks for the rest of what the status reports, too.
const looksForAll = 4

// pauseBetween is the shortest time between the first questions to one agent and
// to the next: a guest whose agent appears and vanishes all the time, each time with
// other answers, must not become a stream of writes.
const pauseBetween = 10 * time.Second

// patience is how long an agent may be gone before the status says so. A
// guest that shuts down or reboots loses its agent first, and its end, or the
// agent's return, makes two writes of it that report nothing new.
const patience = 10 * time.Second

// observation is what is decided on.
type observation struct {
	// open means that the port is open, asking that its agent was or is being asked.
	open, asking bool
	// answered means that there is an answer, of this agent or of one before it.
	answered bool
	// asked is when an agent was asked last, absentSince when the port was found closed.
	asked, absentSince, now time.Time
}

// decision is what is to be done.
type decision struct {
	// ask starts to ask the agent, after pause; stop ends that.
	ask   bool
	pause time.Duration
	stop  bool
	// forget drops the answer of an agent that is gone.
	forget      bool
	absentSince time.Time
	// after is when to decide again; 0 for when the port changes.
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

// complete reports whether the agent has named an address for each of the guest's
// interfaces.
func complete(answer *guestlifecycle.Agent, interfaces int) bool {
	addressed := 0
	for _, i := range answer.Interfaces {
		if len(i.IPs) > 0 {
			addressed++
		}
	}
	return addressed >= interfaces
}
