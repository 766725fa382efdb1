package launch

import "time"

// Quiesce holds the guest still, so that a snapshot of its disks is of one point in time. The reply follows when the guest
// stands still. A token names the hold; the same holder gets the same token again. The hold ends with Release, at its
// deadline, or when something breaks it, and its token is never valid again.
type Quiesce struct {
	Holder       string `json:"holder"`       // HolderUser for a user; at most MaxHolder bytes
	Milliseconds int64  `json:"milliseconds"` // bound the hold, as do virt-launcher's own limits
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
	Token  string `json:"token,omitempty"` // empty for any hold of the holder
}

// HolderUser is the holder of a user's hold.
const HolderUser = "user"

// Limits in bytes.
const (
	MaxHolder  = 64
	MaxRefusal = 256 // of an agent's message
)

// The longest holds. With frozen file systems, the guest itself agreed to wait; a guest with stopped CPUs loses time
// and connections.
const (
	MaxFrozen  = time.Hour
	MaxStopped = 30 * time.Second
)

// Method is how a guest is held still.
type Method string

// The methods.
const (
	MethodAgent  Method = "agent"  // the agent has frozen the guest's file systems
	MethodStop   Method = "stop"   // the guest's CPUs were stopped
	MethodPaused Method = "paused" // the guest was already paused, and stays so
)

// Hold is a hold on the guest. Without a token there is none.
type Hold struct {
	Token  string `json:"token,omitempty"`
	Holder string `json:"holder,omitempty"`
	Method Method `json:"method,omitempty"`
	// Refusal is the agent's reason for a failed freeze, at most MaxRefusal bytes. The guest is its author.
	Refusal         string `json:"refusal,omitempty"`
	NothingToFreeze bool   `json:"nothingToFreeze,omitempty"` // the agent found no file system to freeze: the guest was stopped
	Milliseconds    int64  `json:"milliseconds,omitempty"`    // so far, or in total
	Ended           string `json:"ended,omitempty"`           // why; empty while the hold lasts
	TimedOut        bool   `json:"timedOut,omitempty"`        // it ended at its deadline
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
