// Package quiesce decides how virt-launcher holds its guest still during a snapshot of its disks: who may hold it, for how
// long, and which events break a hold. It is pure: it must not talk to QEMU or the agent, and reads no clock.
//
//	          Ask: take             Taken                Release, deadline, broken: let go
//	(none) ────────────> taking ────────────> held ──────────────────────────────────────> letting go
//	   ^                   │ failed, or ended before: let go                                    │ Free
//	   '───────────────────┴────────────────────────────────────────────────────────────────────┘
//
// A token is valid from Taken until its hold ends: if it is still valid when all disks were snapshotted, the guest has not
// run since the token was made.
package quiesce

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// Action is the caller's next step.
type Action string

// Nothing means that there is no step.
const (
	Nothing Action = ""
	// Take holds the guest still. Taken must be called with the result.
	Take Action = "take"
	// LetGo undoes Take. Free must be called afterwards.
	LetGo Action = "let go"
)

type phase string

const (
	none    phase = ""
	taking  phase = "taking"
	held    phase = "held"
	letting phase = "letting go"
)

// Machine is the hold on one guest. The zero value is a guest without a hold.
type Machine struct {
	phase        phase
	hold         launch.Hold
	last         launch.Hold // the previous one that was held
	agent        bool
	since, until time.Time
	// still is when the guest was stopped or frozen.
	still time.Time
	// resumed means that QEMU has run the CPUs since they were last stopped.
	resumed bool
}

// Verdict is the answer to an Ask.
type Verdict struct {
	Action Action
	// Wait means that the answer follows Taken.
	Wait    bool
	Refused string
}

// Ask requests a hold. A new one gets the token.
func (m *Machine) Ask(q launch.Quiesce, token string, now time.Time) Verdict {
	switch {
	case m.phase == letting:
		return Verdict{Refused: "the guest that was held still for " + Whom(m.hold.Holder) + " has not gone on yet"}
	case m.phase != none && m.hold.Holder != q.Holder:
		return Verdict{Refused: "the guest is held still for " + Whom(m.hold.Holder)}
	case m.phase != none && m.hold.Ended != "":
		return Verdict{Refused: "the guest is about to go on: " + m.hold.Ended}
	case m.phase != none:
		return Verdict{Wait: m.phase == taking}
	}
	asked := max(least, time.Duration(min(q.Milliseconds, launch.MaxFrozen.Milliseconds()))*time.Millisecond)
	*m = Machine{
		phase: taking, hold: launch.Hold{Token: token, Holder: q.Holder}, last: m.last, agent: q.Agent,
		since: now, still: now, until: now.Add(asked),
	}
	return Verdict{Action: Take, Wait: true}
}

const least = time.Second

// Whom names a holder for a sentence.
func Whom(holder string) string {
	if holder == launch.HolderUser {
		return "a user, who has frozen it"
	}
	return fmt.Sprintf("the snapshot %q", holder)
}

// Taken handles the result of Take: the hold's method and time, or the error.
func (m *Machine) Taken(method launch.Method, since time.Time, err error, now time.Time) Action {
	if m.phase != taking {
		return Nothing
	}
	m.hold.Method = method
	if !since.IsZero() {
		m.still = since
	}
	switch {
	case err != nil && m.hold.Ended == "":
		m.hold.Ended = err.Error()
	case m.resumed && method != launch.MethodAgent:
		m.end(guestWentOn)
	}
	if m.hold.Ended != "" {
		return m.beginRelease(now)
	}
	m.phase = held
	if method != launch.MethodAgent {
		if most := m.since.Add(launch.MaxStopped); most.Before(m.until) {
			m.until = most
		}
	}
	return m.Tick(now)
}

// NotFrozen stores the agent's reason for a failed freeze, or that it had nothing to freeze. It must be called before
// Taken.
func (m *Machine) NotFrozen(refusal string, nothing bool) {
	if m.phase == taking {
		m.hold.Refusal = strings.ToValidUTF8(refusal[:min(len(refusal), launch.MaxRefusal)], "")
		m.hold.NothingToFreeze = nothing
	}
}

const guestWentOn = "the guest was told to go on"

// Event handles a QEMU event. agentPort is the ID of the agent's port.
func (m *Machine) Event(name string, data []byte, agentPort string, now time.Time) Action {
	var d struct {
		ID     string `json:"id"`
		Open   bool   `json:"open"`
		Status string `json:"status"`
	}
	// An event may have no data.
	_ = json.Unmarshal(data, &d)
	switch name {
	case "STOP":
		m.resumed = false
	case "RESUME":
		m.resumed = true
		if m.phase == held && m.hold.Method != launch.MethodAgent {
			return m.Break(guestWentOn, now)
		}
	case "RESET":
		return m.Break("the guest was reset", now)
	case "SHUTDOWN":
		return m.Break("the guest has shut down", now)
	case "MIGRATION":
		if migrationstatus.Status(d.Status).UnderWay() {
			return m.Break("the guest is being migrated", now)
		}
	case "VSERPORT_CHANGE":
		usesAgent := m.phase == taking && m.agent || m.hold.Method == launch.MethodAgent
		if d.ID == agentPort && !d.Open && usesAgent {
			return m.Break("the guest agent has gone", now)
		}
	}
	return Nothing
}

// Break ends a hold, or one in progress, because the guest no longer stands still or must not.
func (m *Machine) Break(why string, now time.Time) Action {
	switch m.phase {
	case taking:
		// Taken lets go, after the step in progress.
		m.end(why)
	case held:
		m.end(why)
		return m.beginRelease(now)
	}
	return Nothing
}

func (m *Machine) end(why string) {
	if m.hold.Ended == "" {
		m.hold.Ended = why
	}
}

func (m *Machine) beginRelease(now time.Time) Action {
	m.phase = letting
	m.hold.Milliseconds = now.Sub(m.still).Milliseconds()
	m.last = m.hold
	return LetGo
}

// Tick ends a hold after its deadline.
func (m *Machine) Tick(now time.Time) Action {
	if m.phase != taking && m.phase != held || now.Before(m.until) {
		return Nothing
	}
	if m.hold.Ended == "" {
		m.hold.TimedOut = true
	}
	return m.Break("it was not released before its deadline", now)
}

// Until returns when to call Tick, zero for never.
func (m *Machine) Until() time.Time {
	if m.phase == taking && m.hold.Ended == "" || m.phase == held {
		return m.until
	}
	return time.Time{}
}

// Release ends a hold on its holder's request. It reports whether there was one.
func (m *Machine) Release(r launch.Release, now time.Time) (Action, bool) {
	mine := m.phase == taking || m.phase == held
	if !mine || m.hold.Ended != "" || m.hold.Holder != r.Holder || r.Token != "" && r.Token != m.hold.Token {
		return Nothing, false
	}
	return m.Break("it was released", now), true
}

// Free must be called when Take has been undone.
func (m *Machine) Free() {
	if m.phase == letting {
		*m = Machine{last: m.last}
	}
}

// Hold returns the current or the last hold, without a token if there was none.
func (m *Machine) Hold(now time.Time) launch.Hold {
	if m.phase != held {
		return m.last
	}
	h := m.hold
	h.Milliseconds = now.Sub(m.still).Milliseconds()
	return h
}

// Busy reports whether a hold lasts, or is being taken or undone.
func (m *Machine) Busy() bool { return m.phase != none }

// Agent reports whether the agent has frozen the guest.
func (m *Machine) Agent() bool { return m.phase == held && m.hold.Method == launch.MethodAgent }
