package launch

import "time"

// Quiesce has virt-launcher hold the guest still, so that a snapshot of its disks is of one point in time. It is
// answered when the guest stands still. What holds it is named by a token; the same holder that asks again gets the
// same one. The hold ends with Release, with its deadline, or when something breaks it, and its token is never
// valid again.
//
// A virt-launcher that can do it says so in its State.
type Quiesce struct {
	// Holder says for whom, HolderUser for a user; at most MaxHolder bytes.
	Holder string `json:"holder"`
	// Milliseconds is how long the guest is held at most. virt-launcher has bounds of its own.
	Milliseconds int64 `json:"milliseconds"`
	// Agent means that the guest agent is to freeze the guest's file systems. Otherwise, or if the agent has frozen
	// none or can't, the guest's CPUs are stopped, unless AgentOnly.
	Agent     bool `json:"agent,omitempty"`
	AgentOnly bool `json:"agentOnly,omitempty"`
}

// Held asks what holds the guest, or has held it last.
type Held struct {
	// Verify has the guest agent say whether the file systems are still frozen; a hold that they are not breaks.
	Verify bool `json:"verify,omitempty"`
}

// Release ends a hold. One that is not there is no error.
type Release struct {
	Holder string `json:"holder"`
	// Token names the hold; empty for whichever is the holder's.
	Token string `json:"token,omitempty"`
}

const (
	// HolderUser is the holder of a hold that a user has asked for.
	HolderUser = "user"
	// MaxHolder bounds a holder in bytes.
	MaxHolder = 64
	// MaxRefusal bounds the words of an agent in bytes.
	MaxRefusal = 256
)

// How long a guest is held at most. Frozen file systems are the guest's own wish to wait; a guest
// whose CPUs are stopped loses time and connections (decision 425).
const (
	MaxFrozen  = time.Hour
	MaxStopped = 30 * time.Second
)

// Method is how a guest is held still.
type Method string

const (
	// MethodAgent means that the guest agent has frozen the guest's file systems.
	MethodAgent Method = "agent"
	// MethodStop means that the guest's CPUs were stopped.
	MethodStop Method = "stop"
	// MethodPaused means that the guest was paused already, and stays so.
	MethodPaused Method = "paused"
)

// Hold is a hold on the guest. One without a token is none.
type Hold struct {
	Token  string `json:"token,omitempty"`
	Holder string `json:"holder,omitempty"`
	Method Method `json:"method,omitempty"`
	// Refusal is why the agent, which was asked to, could not freeze file systems, in its own words, of which the guest is the
	// author; at most MaxRefusal bytes.
	Refusal string `json:"refusal,omitempty"`
	// Milliseconds is how long the guest is held, or was.
	Milliseconds int64 `json:"milliseconds,omitempty"`
	// Ended says why the hold has ended; empty while it lasts.
	Ended string `json:"ended,omitempty"`
	// TimedOut means that it has ended with its deadline.
	TimedOut bool `json:"timedOut,omitempty"`
}

// Lasts reports whether the guest is held.
func (h Hold) Lasts() bool { return h.Token != "" && h.Ended == "" }

// Objects without effect in QEMU, by which virt-handler knows that virt-launcher holds the guest.
const (
	// HeldMarker is there from before the guest is held until after it.
	HeldMarker = "held-still"
	// StoppedMarker is there likewise while virt-launcher has stopped the guest's CPUs and will have them run again.
	StoppedMarker = "held-stopped"
	// MarkerType is the type of these objects.
	MarkerType = "rng-builtin"
)
