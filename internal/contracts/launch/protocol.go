// Package launch is the protocol between virt-handler and virt-launcher: JSON
// messages, one per line, on the unix socket layout.LauncherSocket on which
// virt-launcher listens in its pod.
//
// It owns the messages and their encoding. It must not import Kubernetes or
// API types: every VM pays for the code that virt-launcher links.
//
// A conversation:
//
//	virt-launcher   -> Hello  (on every new connection: the whole state)
//	virt-handler    -> Request{Prepare}    virt-launcher -> Reply{Images}
//	virt-handler    -> Request{Start}      virt-launcher -> Reply{State}
//	virt-handler    -> Request{Quiesce}    virt-launcher -> Reply{Hold}    (likewise Held, Release)
//	virt-launcher   -> Event{Frozen}       (a user has frozen the guest, or it is thawed)
//	virt-launcher   -> Event{Exited}       (QEMU ended; virt-launcher exits after it)
//
// virt-launcher serves one connection; a new one replaces the old one, so that
// a restarted virt-handler takes over by connecting. Hello contains the whole
// state, so nothing from an earlier connection is needed.
//
// While QEMU waits with a stopped guest to hand it over to another node (migration status
// pre-switchover) and no virt-handler is connected, virt-launcher cancels the migration after
// two seconds, and the guest continues.
package launch

import "time"

// Phase is the state of virt-launcher's QEMU.
type Phase string

const (
	// PhaseWaiting means that QEMU was not started yet.
	PhaseWaiting Phase = "waiting"
	// PhaseRunning means that QEMU has answered on its monitor.
	PhaseRunning Phase = "running"
	// PhaseExited means that QEMU has ended; virt-launcher ends next.
	PhaseExited Phase = "exited"
)

// State is virt-launcher's whole state.
type State struct {
	Phase Phase `json:"phase"`
	// QEMUPID is in the container's PID namespace, 0 before the start.
	QEMUPID int `json:"qemuPID,omitempty"`
	// Exit is how QEMU ended, nil before.
	Exit *Exit `json:"exit,omitempty"`
	// ExitedAt is when QEMU ended, by the node's clock. It is zero before, and from an older virt-launcher.
	ExitedAt time.Time `json:"exitedAt,omitzero"`
	// Quiesces means that this virt-launcher supports Quiesce, Held and Release.
	Quiesces bool `json:"quiesces,omitempty"`
	// Frozen means that a user has frozen the guest by its agent (HolderUser).
	Frozen bool `json:"frozen,omitempty"`
}

// Reason is why a guest stopped running.
type Reason string

const (
	// ReasonGuestShutdown means that the guest powered itself off (QMP SHUTDOWN with reason guest-shutdown).
	ReasonGuestShutdown Reason = "GuestShutdown"
	// ReasonHostShutdown means that the guest was ended from outside, gracefully or not (system_powerdown that the
	// guest obeyed, quit, SIGTERM).
	ReasonHostShutdown Reason = "HostShutdown"
	// ReasonKilled means that the guest did not shut down within its grace period and QEMU was killed.
	ReasonKilled Reason = "Killed"
	// ReasonGuestPanicked means that the guest's kernel panicked (QMP GUEST_PANICKED).
	ReasonGuestPanicked Reason = "GuestPanicked"
	// ReasonCrashed means that a signal or its own error ended QEMU.
	ReasonCrashed Reason = "Crashed"
	// ReasonStartFailed means that QEMU ended before its monitor answered.
	ReasonStartFailed Reason = "StartFailed"
	// ReasonWatchdog means that the watchdog's action ended the guest.
	ReasonWatchdog Reason = "Watchdog"
	// ReasonInternalError means that the guest was ended after an error inside QEMU or KVM had stopped it for good.
	ReasonInternalError Reason = "InternalError"
	// ReasonMigrated means that the guest continues elsewhere; QEMU was ended as the source of a completed migration.
	ReasonMigrated Reason = "Migrated"
)

// Failed reports whether a guest that stopped for the reason r has failed (VMI phase Failed) rather than ended
// (Succeeded).
func (r Reason) Failed() bool {
	switch r {
	case ReasonGuestPanicked, ReasonWatchdog, ReasonCrashed, ReasonStartFailed, ReasonInternalError:
		return true
	}
	return false
}

// Exit is how QEMU ended. virt-launcher also writes it, as JSON, to its container's termination message, for the case
// that no virt-handler received the event. virt-launcher's exit code is 0 unless Reason.Failed().
type Exit struct {
	Reason Reason `json:"reason"`
	// Code is QEMU's exit code, -1 if a signal ended it.
	Code int `json:"code"`
	// Message is the end of QEMU's standard error, at most 1 KiB, empty when Reason suffices.
	Message string `json:"message,omitempty"`
	// Incoming is whether the guest of an incoming live migration has run. It is empty when QEMU was started with its
	// guest, when virt-launcher has not read all of QEMU's events, and from a virt-launcher older than live migration:
	// then nobody knows that the guest has not run.
	Incoming Incoming `json:"incoming,omitempty"`
	// Unheard means that virt-launcher has not read all of QEMU's events, because its monitor ended before QEMU. Then
	// Reason does not show whether the guest was sent to another QEMU.
	Unheard bool `json:"unheard,omitempty"`
}

// Incoming is whether the guest of an incoming live migration has run.
type Incoming string

const (
	// IncomingNeverRan means that the guest has not run a single instruction here, and never will: no QEMU was started,
	// or its CPUs were not started (QMP RESUME) before it ended.
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
	// ID is chosen by the caller and repeated in the Reply.
	ID      uint64   `json:"id"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	// Stop ends QEMU by ACPI, after its grace period by force.
	Stop *Stop `json:"stop,omitempty"`
	// Quiesce holds the guest still, Held queries the hold, and Release ends it.
	Quiesce *Quiesce `json:"quiesce,omitempty"`
	Held    *Held    `json:"held,omitempty"`
	Release *Release `json:"release,omitempty"`
}

// Prepare creates and inspects the disk images that QEMU will open. It is idempotent: existing files are inspected,
// never overwritten.
type Prepare struct {
	Images []Image `json:"images"`
}

// Image is one disk image, with paths of virt-launcher's unprivileged process.
type Image struct {
	// Name is the VMI volume's name.
	Name string `json:"name"`
	// Source is the image to read: a file, a block device, or (containerDisk) a directory with exactly one regular
	// file. It is empty for a new image.
	Source string `json:"source,omitempty"`
	// Root, if not empty, is the folder that no symlink on the way to Source may leave: the author of a claim's content
	// or of an image must not be able to choose one of the launcher's files.
	Root string `json:"root,omitempty"`
	// Device is the block device to read instead of Source if it exists: only the pod shows whether a claim is a block
	// device.
	Device string `json:"device,omitempty"`
	// Format is "raw" or "qcow2", empty to read it from the header. A disk that a guest may write to must not be
	// probed: the guest controls its header.
	Format string `json:"format,omitempty"`
	// Overlay, if not empty, is a qcow2 file for the guest's writes, backed by Source; without Source, an empty
	// image of Size bytes.
	Overlay string `json:"overlay,omitempty"`
	// Size is the virtual size of a new image, in bytes.
	Size int64 `json:"size,omitempty"`
}

// PreparedImage is the result for one Image.
type PreparedImage struct {
	Name string `json:"name"`
	// Source and SourceFormat ("raw" or "qcow2") are the file that was found. The format is read from the header. A
	// qcow2 file with a backing file or an external data file is refused, since it could make QEMU open any path.
	Source       string `json:"source,omitempty"`
	SourceFormat string `json:"sourceFormat,omitempty"`
	// Overlay is the created qcow2 file, empty without one.
	Overlay     string `json:"overlay,omitempty"`
	BlockDevice bool   `json:"blockDevice,omitempty"`
	// DirectIO means that the target of the guest's writes (the source, or the overlay) can be opened with O_DIRECT.
	DirectIO bool `json:"directIO,omitempty"`
	// LogicalBlock and PhysicalBlock are the source's block sizes in bytes.
	LogicalBlock  int `json:"logicalBlock,omitempty"`
	PhysicalBlock int `json:"physicalBlock,omitempty"`
	// VirtualSize is the guest's disk size in bytes.
	VirtualSize int64 `json:"virtualSize"`
}

// Start starts QEMU. If QEMU runs already, it changes nothing and returns the State.
type Start struct {
	// Args are QEMU's arguments, without the program's name.
	Args []string `json:"args"`
	// GracePeriodSeconds is how long a guest may take to shut down after ACPI's power button when virt-launcher is
	// asked to end (SIGTERM, Stop).
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
	// Incoming means that QEMU waits for an incoming live migration. Until its CPUs are started, virt-launcher ends
	// QEMU without a grace period.
	Incoming bool `json:"incoming,omitempty"`
	// TPM, if not nil, makes virt-launcher start the TPM emulator before QEMU, which connects to it on the socket
	// layout.TPMSocket.
	TPM *TPM `json:"tpm,omitempty"`
	// DownwardMetrics, if not nil, makes virt-launcher send metrics of the host and of the guest to the guest.
	DownwardMetrics *DownwardMetrics `json:"downwardMetrics,omitempty"`
}

// DownwardMetrics configures the metrics for the guest (decision 603).
type DownwardMetrics struct {
	// HostName is the name of the node.
	HostName string `json:"hostName"`
	// Disk, if not empty, is the file that virt-launcher creates before QEMU starts and writes the metrics to. QEMU
	// reads it.
	Disk string `json:"disk,omitempty"`
	// Channel means that virt-launcher answers the guest's requests on the socket layout.MetricsSocket.
	Channel bool `json:"channel,omitempty"`
}

// TPM is the emulator swtpm, which ends with QEMU.
type TPM struct {
	// State is the folder of the TPM's state. It is created if it is missing.
	State string `json:"state"`
	// Current, if not empty, means that the folder is one of several in the claim of the VM's state, and names the one
	// of the TPM that the guest uses. All others but these two are removed.
	Current string `json:"current,omitempty"`
}

// Stop ends QEMU.
type Stop struct {
	// GracePeriodSeconds overrides Start's; 0 ends QEMU at once.
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
	// Failure is set when QEMU is ended because its guest has failed, or has powered itself off (ReasonGuestShutdown),
	// and QEMU has not ended by itself. It becomes the Exit's reason unless virt-launcher knows of another failure.
	Failure Reason `json:"failure,omitempty"`
}

// Reply answers the Request with the same ID.
type Reply struct {
	ID uint64 `json:"id"`
	// Error is for the VM's owner, empty on success.
	Error string `json:"error,omitempty"`
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
	Exited *Exit `json:"exited,omitempty"`
	// ExitedAt is the new State.ExitedAt, with Exited.
	ExitedAt time.Time `json:"exitedAt,omitzero"`
	// Frozen is the new State.Frozen.
	Frozen *bool `json:"frozen,omitempty"`
}

// Message is one message from virt-launcher; exactly one pointer is set.
type Message struct {
	Hello *Hello `json:"hello,omitempty"`
	Reply *Reply `json:"reply,omitempty"`
	Event *Event `json:"event,omitempty"`
}
