// Package launch is the protocol between virt-handler and virt-launcher: JSON messages, one per line, on the unix socket
// layout.LauncherSocket in virt-launcher's pod. It must not import Kubernetes or API types: every VM pays for the code
// that virt-launcher links.
//
//	virt-launcher   -> Hello  (on every new connection: the whole state)
//	virt-handler    -> Request{Prepare}    virt-launcher -> Reply{Images}
//	virt-handler    -> Request{Start}      virt-launcher -> Reply{State}
//	virt-handler    -> Request{Quiesce}    virt-launcher -> Reply{Hold}    (likewise Held, Release)
//	virt-handler    -> Request{Recover}    virt-launcher -> Reply      (as soon as QEMU listens)
//	virt-launcher   -> Event{Frozen}       (a user has frozen the guest, or it is thawed)
//	virt-launcher   -> Event{Arrival}      (the connection of an incoming post-copy has broken, or goes on)
//	virt-launcher   -> Event{Exited}       (QEMU ended; virt-launcher exits after it)
//
// virt-launcher serves one connection. A new one replaces the old one: a restarted virt-handler takes over by connecting.
//
// If no virt-handler is connected while QEMU waits with a stopped guest to hand it over to another node (migration status
// pre-switchover), virt-launcher cancels the migration after two seconds, and the guest continues.
package launch

import "time"

// Phase is the state of virt-launcher's QEMU.
type Phase string

// The phases.
const (
	PhaseWaiting Phase = "waiting" // before QEMU's start
	PhaseRunning Phase = "running" // QEMU's monitor has answered
	PhaseExited  Phase = "exited"  // virt-launcher will end, too
)

// State is virt-launcher's whole state.
type State struct {
	Phase    Phase     `json:"phase"`
	QEMUPID  int       `json:"qemuPID,omitempty"` // in the container's PID namespace
	Exit     *Exit     `json:"exit,omitempty"`
	ExitedAt time.Time `json:"exitedAt,omitzero"`  // by the node's clock; an older virt-launcher omits it
	Quiesces bool      `json:"quiesces,omitempty"` // this virt-launcher supports Quiesce, Held and Release
	// LogsConsole means that QEMU inherits layout.ConsoleLogDescriptor, for the output of the serial console.
	LogsConsole bool `json:"logsConsole,omitempty"`
	Frozen      bool `json:"frozen,omitempty"` // a user has frozen the guest by its agent (HolderUser)
	// Recovers means that this virt-launcher supports Recover with this QEMU, and reports Arrival.
	Recovers bool    `json:"recovers,omitempty"`
	Arrival  Arrival `json:"arrival,omitzero"`
}

// Arrival is the state of an incoming post-copy whose connection is broken, by virt-launcher's own monitor. QEMU may
// wait for memory then, and answer nothing on virt-handler's monitor. Otherwise it is empty.
type Arrival struct {
	Broken bool `json:"broken,omitempty"` // until another connection is taken up
	Ran    bool `json:"ran,omitempty"`    // the guest's CPUs were started here
}

// Reason is why a guest stopped running.
type Reason string

// The reasons.
const (
	ReasonGuestShutdown Reason = "GuestShutdown" // the guest powered itself off (QMP SHUTDOWN, reason guest-shutdown)
	ReasonHostShutdown  Reason = "HostShutdown"  // ended from outside: obeyed system_powerdown, quit, SIGTERM
	ReasonKilled        Reason = "Killed"        // QEMU was killed after the grace period
	ReasonGuestPanicked Reason = "GuestPanicked" // the guest's kernel panicked (QMP GUEST_PANICKED)
	ReasonCrashed       Reason = "Crashed"       // a signal or its own error ended QEMU
	ReasonStartFailed   Reason = "StartFailed"   // QEMU ended before its monitor answered
	ReasonWatchdog      Reason = "Watchdog"      // the watchdog's action ended the guest
	ReasonInternalError Reason = "InternalError" // an error inside QEMU or KVM had stopped the guest for good
	ReasonMigrated      Reason = "Migrated"      // QEMU was ended as the source of a completed migration
)

// Failed reports whether the VMI's phase becomes Failed rather than Succeeded.
func (r Reason) Failed() bool {
	switch r {
	case ReasonGuestPanicked, ReasonWatchdog, ReasonCrashed, ReasonStartFailed, ReasonInternalError:
		return true
	}
	return false
}

// Exit is how QEMU ended. virt-launcher also writes it, as JSON, to its container's termination message: no virt-handler
// may have received the event. virt-launcher's exit code is 0 unless Reason.Failed().
type Exit struct {
	Reason  Reason `json:"reason"`
	Code    int    `json:"code"`              // QEMU's, -1 if a signal ended it
	Message string `json:"message,omitempty"` // the end of QEMU's standard error, at most 1 KiB, empty when Reason suffices
	// Incoming is empty when QEMU was started with its guest, when virt-launcher has not read all of QEMU's events, and
	// from a virt-launcher older than live migration: then nobody knows that the guest has not run.
	Incoming Incoming `json:"incoming,omitempty"`
	// Unheard means that virt-launcher has not read all of QEMU's events, because its monitor ended before QEMU: Reason
	// does not show whether the guest was sent to another QEMU.
	Unheard bool `json:"unheard,omitempty"`
}

// Incoming is whether the guest of an incoming live migration has run.
type Incoming string

const (
	// IncomingNeverRan means that the guest has not run here, and never will: no QEMU was started, or its CPUs were not
	// started (QMP RESUME) before it ended.
	IncomingNeverRan Incoming = "NeverRan"
	// IncomingRan means that the guest's CPUs were started.
	IncomingRan Incoming = "Ran"
)

// Hello is the first message on every connection.
type Hello struct {
	State State `json:"state"`
}

// Request is one request to virt-launcher; exactly one of the pointers is set.
type Request struct {
	ID      uint64   `json:"id"` // repeated by the Reply
	Prepare *Prepare `json:"prepare,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Quiesce *Quiesce `json:"quiesce,omitempty"`
	Held    *Held    `json:"held,omitempty"`
	Release *Release `json:"release,omitempty"`
	Recover *Recover `json:"recover,omitempty"`
}

// Recover makes QEMU listen on layout.MigrationSocket for the rest of an incoming post-copy, also while QEMU answers nothing
// else. It may be repeated. The reply is Refused while the connection is not broken.
type Recover struct{}

// Prepare creates and inspects the disk images that QEMU will open. It is idempotent: existing files are inspected,
// never overwritten.
type Prepare struct {
	Images []Image `json:"images"`
}

// Image is one disk image, with paths of virt-launcher's unprivileged process.
type Image struct {
	Name string `json:"name"` // the VMI's volume
	// Source is a file, a block device, or (containerDisk) a directory with exactly one regular file. It is empty for a
	// new image.
	Source string `json:"source,omitempty"`
	// Root is the folder that no symlink on the way to Source may leave: the author of a claim's content or of an image
	// must not be able to choose one of the launcher's files.
	Root string `json:"root,omitempty"`
	// Device is read instead of Source if it exists: only the pod shows whether a claim is a block device.
	Device string `json:"device,omitempty"`
	// Format is "raw" or "qcow2", empty to read it from the header. Never probe a disk that a guest may write to: the
	// guest controls its header.
	Format string `json:"format,omitempty"`
	// Overlay is a qcow2 file for the guest's writes, backed by Source; without Source, an empty image of Size bytes.
	Overlay string `json:"overlay,omitempty"`
	Size    int64  `json:"size,omitempty"` // virtual, in bytes
}

// PreparedImage is the result for one Image.
type PreparedImage struct {
	Name string `json:"name"`
	// A qcow2 file with a backing file or an external data file is refused, since it could make QEMU open any path.
	Source       string `json:"source,omitempty"`
	SourceFormat string `json:"sourceFormat,omitempty"` // "raw" or "qcow2"
	Overlay      string `json:"overlay,omitempty"`
	BlockDevice  bool   `json:"blockDevice,omitempty"`
	// DirectIO means that the target of the guest's writes (the source, or the overlay) can be opened with O_DIRECT.
	DirectIO bool `json:"directIO,omitempty"`
	// The source's block sizes in bytes.
	LogicalBlock  int   `json:"logicalBlock,omitempty"`
	PhysicalBlock int   `json:"physicalBlock,omitempty"`
	VirtualSize   int64 `json:"virtualSize"` // of the guest's disk, in bytes
}

// Start starts QEMU. If QEMU runs already, it changes nothing and returns the State.
type Start struct {
	Args []string `json:"args"` // QEMU's, without the program's name
	// GracePeriodSeconds bounds the guest's shutdown after ACPI's power button when virt-launcher is asked to end
	// (SIGTERM, Stop).
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
	// Incoming means that QEMU waits for a live migration. Until its CPUs are started, virt-launcher ends QEMU without a
	// grace period.
	Incoming        bool             `json:"incoming,omitempty"`
	TPM             *TPM             `json:"tpm,omitempty"` // started before QEMU, which connects to layout.TPMSocket
	DownwardMetrics *DownwardMetrics `json:"downwardMetrics,omitempty"`
	Shares          []Share          `json:"shares,omitempty"` // served before QEMU starts, which connects to layout.ShareSocket
}

// Share is a folder of the container that the guest mounts by its name. The program virtiofsd serves it, and ends with QEMU.
type Share struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
}

// DownwardMetrics configures the metrics of host and guest for the guest (decision 603).
type DownwardMetrics struct {
	HostName string `json:"hostName"` // the node's
	// Disk is the file that virt-launcher creates before QEMU starts, writes the metrics to, and QEMU reads.
	Disk string `json:"disk,omitempty"`
	// Channel means that virt-launcher answers the guest's requests on the socket layout.MetricsSocket.
	Channel bool `json:"channel,omitempty"`
}

// TPM is the emulator swtpm, which ends with QEMU.
type TPM struct {
	State string `json:"state"` // the folder of the TPM's state, created if missing
	// Current means that the folder is one of several in the claim of the VM's state, and names that of the guest's TPM.
	// All others but these two are removed.
	Current string `json:"current,omitempty"`
}

// Stop ends QEMU by ACPI's power button, and by force after the grace period.
type Stop struct {
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"` // overrides Start's; 0 ends QEMU at once
	// Failure is set when the guest has failed, or has powered itself off (ReasonGuestShutdown), and QEMU has not ended by
	// itself. It becomes the Exit's reason unless virt-launcher knows of another failure.
	Failure Reason `json:"failure,omitempty"`
}

// Reply answers the Request with the same ID.
type Reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"` // for the VM's owner
	// Refused means that Error is due to the guest's present state: the request may succeed later.
	Refused bool `json:"refused,omitempty"`
	// Hold is the current hold for Quiesce, the current or the last one for Held, and the ended one for Release.
	// Without a hold it has no token.
	Hold   *Hold           `json:"hold,omitempty"`
	Images []PreparedImage `json:"images,omitempty"`
	State  *State          `json:"state,omitempty"`
}

// Event reports a change without a request.
type Event struct {
	Exited   *Exit     `json:"exited,omitempty"`
	ExitedAt time.Time `json:"exitedAt,omitzero"` // with Exited
	Frozen   *bool     `json:"frozen,omitempty"`
	Arrival  *Arrival  `json:"arrival,omitempty"`
}

// Message is one message from virt-launcher; exactly one pointer is set.
type Message struct {
	Hello *Hello `json:"hello,omitempty"`
	Reply *Reply `json:"reply,omitempty"`
	Event *Event `json:"event,omitempty"`
}
