package launch

import "time"

// Quiesce holds the guest still, so that a snapshot of its disks is of one point in time. The reply follows when the guest
// stands still. A token names the hold; a repeated request of the same holder gets the same token. The hold ends with
// Release, at its deadline, or when something breaks it, and its token is never valid again.
type Quiesce struct {
	// Holder is the owner of the hold, HolderUser for a user; at most MaxHolder bytes.
	Holder string `json:"holder"`
	// Milliseconds limits the hold, besides virt-launcher's own limits.
	Milliseconds int64 `json:"milliseconds"`
	// Agent means that the guest agent freezes the file systems. Without it, or if it freezes none or can't, the guest's
	// CPUs are stopped, unless AgentOnly.
	Agent     bool `json:"agent,omitempty"`
	AgentOnly bool `json:"agentOnly,omitempty"`
}

// Held queries the current or the last hold.
type Held struct {
	// Verify asks the guest agent whether the file systems are still frozen; if not, the hold breaks.
	Verify bool `json:"verify,omitempty"`
}

// Release ends a hold. A missing hold is no error.
type Release struct {
	Holder string `json:"holder"`
	// Token names the hold, empty for any of the holder.
	Token string `json:"token,omitempty"`
}

const (
	// HolderUser is the holder of a user's hold.
	HolderUser = "user"
	// MaxHolder limits a holder, in bytes.
	MaxHolder = 64
	// MaxRefusal limits an agent's message, in bytes.
	MaxRefusal = 256
)

// The longest holds. With frozen file systems, the guest itself agreed to wait; a guest with stopped CPUs loses time
// and connections.
const (
	MaxFrozen  = time.Hour
	MaxStopped = 30 * time.Second
)

// Method is how a guest is held still.
type Method string

const (
	// MethodAgent means that the agent has frozen the guest's file systems.
	MethodAgent Method = "agent"
	// MethodStop means that the guest's CPUs were stopped.
	MethodStop Method = "stop"
	// MethodPaused means that the guest was already paused, and stays so.
	MethodPaused Method = "paused"
)

// Hold is a hold on the guest. Without a token there is none.
type Hold struct {
	Token  string `json:"token,omitempty"`
	Holder string `json:"holder,omitempty"`
	Method Method `json:"method,omitempty"`
	// Refusal is the agent's reason for a failed freeze, at most MaxRefusal bytes. The guest is its author.
	Refusal string `json:"refusal,omitempty"`
	// NothingToFreeze means that the agent found no file system to freeze, so the guest was stopped.
	NothingToFreeze bool `json:"nothingToFreeze,omitempty"`
	// Milliseconds is the duration so far, or in total.
	Milliseconds int64 `json:"milliseconds,omitempty"`
	// Ended is why, empty while the hold lasts.
	Ended string `json:"ended,omitempty"`
	// TimedOut means that it ended at its deadline.
	TimedOut bool `json:"timedOut,omitempty"`
}

// Lasts reports whether the guest is held.
func (h Hold) Lasts() bool { return h.Token != "" && h.Ended == "" }

// Objects without effect in QEMU show virt-handler that virt-launcher holds the guest.
const (
	// HeldMarker exists from before the hold until after it.
	HeldMarker = "held-still"
	// StoppedMarker exists from before virt-launcher stops the guest's CPUs until after it has started them again.
	StoppedMarker = "held-stopped"
	// MarkerType is their QOM type.
	MarkerType = "rng-builtin"
)
