// Package launch is the protocol between virt-handler and virt-launcher: JSON messages, one per line, on the unix socket
// layout.LauncherSocket in virt-launcher's pod. It owns the messages and their encoding. It must not import Kubernetes or
// API types: every VM pays for the code that virt-launcher links.
//
//	virt-launcher   -> Hello  (on every new connection: the whole state)
//	virt-handler    -> Request{Prepare}    virt-launcher -> Reply{Images}
//	virt-handler    -> Request{Start}      virt-launcher -> Reply{State}
//	virt-handler    -> Request{Quiesce}    virt-launcher -> Reply{Hold}    (likewise Held, Release)
//	virt-launcher   -> Event{Frozen}       (a user has frozen the guest, or it is thawed)
//	virt-launcher   -> Event{Exited}       (QEMU ended; virt-launcher exits after it)
//
// virt-launcher serves one connection; a new one replaces the old one, so that a restarted virt-handler takes over by
// connecting.
//
// While QEMU waits with a stopped guest to hand it over to another node (migration status pre-switchover) and no
// virt-handler is connected, virt-launcher cancels the migration after two seconds, and the guest continues.
package launch

import "time"

// Phase is the state of virt-launcher's QEMU.
type Phase string

const (
	// PhaseWaiting precedes QEMU's start.
	PhaseWaiting Phase = "waiting"
	// PhaseRunning means that QEMU has answered on its monitor.
	PhaseRunning Phase = "running"
	// PhaseExited precedes virt-launcher's end.
	PhaseExited Phase = "exited"
)

// State is virt-launcher's whole state.
type State struct {
	Phase Phase `json:"phase"`
	// QEMUPID is in the container's PID namespace.
	QEMUPID int   `json:"qemuPID,omitempty"`
	Exit    *Exit `json:"exit,omitempty"`
	// ExitedAt is by the node's clock. An older virt-launcher omits it.
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
	// ReasonHostShutdown means that the guest was ended from outside (system_powerdown that the guest obeyed, quit,
	// SIGTERM).
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
	// ReasonInternalError means that an error inside QEMU or KVM had stopped the guest for good.
	ReasonInternalError Reason = "InternalError"
	// ReasonMigrated means that QEMU was ended as the source of a completed migration.
	ReasonMigrated Reason = "Migrated"
)

// Failed reports whether the VMI's phase becomes Failed rather than Succeeded.
func (r Reason) Failed() bool {
	switch r {
	case ReasonGuestPanicked, ReasonWatchdog, ReasonCrashed, ReasonStartFailed, ReasonInternalError:
		return true
	}
	return false
}

// Exit is how QEMU ended. virt-launcher also writes it, as JSON, to its container's termination message, in case no
// virt-handler received the event. virt-launcher's exit code is 0 unless Reason.Failed().
type Exit struct {
	Reason Reason `json:"reason"`
	// Code is QEMU's exit code, -1 if a signal ended it.
	Code int `json:"code"`
	// Message is the end of QEMU's standard error, at most 1 KiB, empty when Reason suffices.
	Message string `json:"message,omitempty"`
	// Incoming is empty when QEMU was started with its guest, when virt-launcher has not read all of QEMU's events, and
	// from a virt-launcher older than live migration: then nobody knows that the guest has not run.
	Incoming Incoming `json:"incoming,omitempty"`
	// Unheard means that virt-launcher has not read all of QEMU's events, because its monitor ended before QEMU. Then
	// Reason does not show whether the guest was sent to another QEMU.
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
	// The Reply repeats the ID.
	ID      uint64   `json:"id"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	// Stop ends QEMU by ACPI, after its grace period by force.
	Stop    *Stop    `json:"stop,omitempty"`
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
	// Source is a file, a block device, or (containerDisk) a directory with exactly one regular file. It is empty for a
	// new image.
	Source string `json:"source,omitempty"`
	// Root is the folder that no symlink on the way to Source may leave: the author of a claim's content or of an image
	// must not be able to choose one of the launcher's files.
	Root string `json:"root,omitempty"`
	// Device is read instead of Source if it exists: only the pod shows whether a claim is a block device.
	Device string `json:"device,omitempty"`
	// Format is "raw" or "qcow2", empty to read it from the header. A disk that a guest may write to must not be probed:
	// the guest controls its header.
	Format string `json:"format,omitempty"`
	// Overlay is a qcow2 file for the guest's writes, backed by Source; without Source, an empty image of Size bytes.
	Overlay string `json:"overlay,omitempty"`
	// Size is virtual, in bytes.
	Size int64 `json:"size,omitempty"`
}

// PreparedImage is the result for one Image.
type PreparedImage struct {
	Name string `json:"name"`
	// A qcow2 file with a backing file or an external data file is refused, since it could make QEMU open any path.
	Source string `json:"source,omitempty"`
	// SourceFormat is "raw" or "qcow2".
	SourceFormat string `json:"sourceFormat,omitempty"`
	Overlay      string `json:"overlay,omitempty"`
	BlockDevice  bool   `json:"blockDevice,omitempty"`
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
	// Incoming means that QEMU waits for a live migration. Until its CPUs are started, virt-launcher ends QEMU without a
	// grace period.
	Incoming bool `json:"incoming,omitempty"`
	// TPM is started before QEMU, which connects to it on the socket layout.TPMSocket.
	TPM *TPM `json:"tpm,omitempty"`
	// DownwardMetrics are of the host and of the guest.
	DownwardMetrics *DownwardMetrics `json:"downwardMetrics,omitempty"`
}

// DownwardMetrics configures the metrics for the guest (decision 603).
type DownwardMetrics struct {
	// HostName is the node's.
	HostName string `json:"hostName"`
	// Disk is the file that virt-launcher creates before QEMU starts, writes the metrics to, and QEMU reads.
	Disk string `json:"disk,omitempty"`
	// Channel means that virt-launcher answers the guest's requests on the socket layout.MetricsSocket.
	Channel bool `json:"channel,omitempty"`
}

// TPM is the emulator swtpm, which ends with QEMU.
type TPM struct {
	// State is the folder of the TPM's state, created if missing.
	State string `json:"state"`
	// Current means that the folder is one of several in the claim of the VM's state, and names that of the TPM that the
	// guest uses. All others but these two are removed.
	Current string `json:"current,omitempty"`
}

// Stop ends QEMU.
type Stop struct {
	// GracePeriodSeconds overrides Start's; 0 ends QEMU at once.
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
	// Failure is set when the guest has failed, or has powered itself off (ReasonGuestShutdown), and QEMU has not ended by
	// itself. It becomes the Exit's reason unless virt-launcher knows of another failure.
	Failure Reason `json:"failure,omitempty"`
}

// Reply answers the Request with the same ID.
type Reply struct {
	ID uint64 `json:"id"`
	// Error is for the VM's owner.
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
