// Package launch is the protocol between virt-handler and virt-launcher: JSON
// messages, one a line, on the unix socket layout.LauncherSocket that
// virt-launcher listens on in its pod.
//
// It owns the messages and their encoding. It must not import Kubernetes or
// API types: virt-launcher links it, and every VM pays for what virt-launcher
// links.
//
// A conversation:
//
//	virt-launcher   -> Hello  (at every new connection: what has happened so far)
//	virt-handler    -> Request{Prepare}    virt-launcher -> Reply{Images}
//	virt-handler    -> Request{Start}      virt-launcher -> Reply{State}
//	virt-handler    -> Request{Quiesce}    virt-launcher -> Reply{Hold}    (likewise Held, Release)
//	virt-launcher   -> Event{Frozen}       (a user has frozen the guest, or it is thawed)
//	virt-launcher   -> Event{Exited}       (QEMU ended; virt-launcher exits after it)
//
// virt-launcher serves one connection; a new one replaces the old one, so that
// a restarted virt-handler takes over by connecting. Hello contains the
// whole state: nothing from an earlier connection need be remembered.
//
// While QEMU waits, its guest stopped, to hand the guest over to another node (migration status
// pre-switchover) and no virt-handler is connected, virt-launcher cancels the migration after
// two seconds, and the guest goes on (decision 296).
package launch

// Phase is what virt-launcher's QEMU is doing.
type Phase string

const (
	// PhaseWaiting means that no QEMU has been started yet.
	PhaseWaiting Phase = "waiting"
	// PhaseRunning means that QEMU runs and has answered on its monitor.
	PhaseRunning Phase = "running"
	// PhaseExited means that QEMU has ended; virt-launcher ends next.
	PhaseExited Phase = "exited"
)

// State is virt-launcher's whole memory.
type State struct {
	Phase Phase `json:"phase"`
	// QEMUPID is QEMU's process id in the container's PID namespace, 0 before
	// it is started.
	QEMUPID int `json:"qemuPID,omitempty"`
	// Exit says how QEMU ended; nil until it has.
	Exit *Exit `json:"exit,omitempty"`
	// Quiesces means that this virt-launcher can hold its guest still (Quiesce, Held, Release).
	Quiesces bool `json:"quiesces,omitempty"`
	// Frozen means that the guest agent holds the guest still for a user (HolderUser).
	Frozen bool `json:"frozen,omitempty"`
}

// Reason is why a guest stopped running.
type Reason string

const (
	// ReasonGuestShutdown means that the guest powered itself off (QMP SHUTDOWN with
	// reason guest-shutdown).
	ReasonGuestShutdown Reason = "GuestShutdown"
	// ReasonHostShutdown means that it was asked to end from outside, gracefully or not
	// (system_powerdown that the guest followed, quit, SIGTERM).
	ReasonHostShutdown Reason = "HostShutdown"
	// ReasonKilled means that the guest did not follow a graceful shutdown within its
	// grace period and QEMU was ended by force.
	ReasonKilled Reason = "Killed"
	// ReasonGuestPanicked means that the guest's kernel panicked (QMP GUEST_PANICKED).
	ReasonGuestPanicked Reason = "GuestPanicked"
	// ReasonCrashed means that QEMU died of a signal or of an error of its own.
	ReasonCrashed Reason = "Crashed"
	// ReasonStartFailed means that QEMU ended before its monitor answered.
	ReasonStartFailed Reason = "StartFailed"
	// ReasonWatchdog means that the guest's watchdog fired and its action was to end it.
	ReasonWatchdog Reason = "Watchdog"
	// ReasonInternalError means that an error inside QEMU or KVM stopped the guest
	// for good, and that it was ended for that reason.
	ReasonInternalError Reason = "InternalError"
	// ReasonMigrated means that the guest goes on elsewhere; QEMU was ended as the
	// source of a migration that is complete.
	ReasonMigrated Reason = "Migrated"
)

// Failed reports whether a guest that stopped for the reason r has failed
// (VMI phase Failed) rather than come to an end (Succeeded).
func (r Reason) Failed() bool {
	switch r {
	case ReasonGuestPanicked, ReasonWatchdog, ReasonCrashed, ReasonStartFailed, ReasonInternalError:
		return true
	}
	return false
}

// Exit says how QEMU ended. virt-launcher also writes it, as JSON, to its
// container's termination message, so that it is known when no virt-handler
// was there to hear the event; virt-launcher's own exit code is 0 unless
// Reason.Failed().
type Exit struct {
	Reason Reason `json:"reason"`
	// Code is QEMU's exit code, -1 when a signal ended it.
	Code int `json:"code"`
	// Message is the last of what QEMU wrote to its standard error, at most
	// 1 KiB, empty when Reason says everything.
	Message string `json:"message,omitempty"`
	// Incoming is what is known of a guest that was to arrive by a live migration. It is
	// empty when QEMU was started with its guest, when virt-launcher has not heard all that
	// QEMU reported, and from a virt-launcher that is older than live migration: then nobody
	// knows that the guest has not run.
	Incoming Incoming `json:"incoming,omitempty"`
	// Unheard means that virt-launcher has not heard all that QEMU reported: its monitor ended
	// before QEMU did. Then nobody knows by Reason whether the guest was sent to another QEMU.
	Unheard bool `json:"unheard,omitempty"`
}

// Incoming is what is known of a guest that was to arrive by a live migration.
type Incoming string

const (
	// IncomingNeverRan means that the guest has not run here for a single instruction, and never
	// will: no QEMU was started, or its CPUs were not started (QMP RESUME) before it ended.
	IncomingNeverRan Incoming = "NeverRan"
	// IncomingRan means that the guest's CPUs were started.
	IncomingRan Incoming = "Ran"
)

// Hello is the first message on every connection.
type Hello struct {
	State State `json:"state"`
}

// Request asks virt-launcher for one thing; exactly one of the pointers is set.
type Request struct {
	// ID comes back in the Reply; the caller chooses it.
	ID      uint64   `json:"id"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	// Stop ends QEMU: by ACPI first, by force after its grace period.
	Stop *Stop `json:"stop,omitempty"`
	// Quiesce, Held and Release hold the guest still, ask for that, and end it.
	Quiesce *Quiesce `json:"quiesce,omitempty"`
	Held    *Held    `json:"held,omitempty"`
	Release *Release `json:"release,omitempty"`
}

// Prepare makes and inspects the disk images that QEMU will open. It is
// idempotent: what exists is inspected, never overwritten.
type Prepare struct {
	Images []Image `json:"images"`
}

// Image is one disk image as virt-launcher's unprivileged process sees it.
type Image struct {
	// Name is the VMI volume's name.
	Name string `json:"name"`
	// Source is the image to read: a file, a block device, or (containerDisk)
	// a directory with exactly one regular file in it. Empty for an image that
	// is made from nothing.
	Source string `json:"source,omitempty"`
	// Root, when not empty, is the folder that no symlink on the way to Source may
	// lead out of: who fills a claim or makes an image does not choose among the
	// launcher's own files.
	Root string `json:"root,omitempty"`
	// Device is the block device to read instead of Source where it exists: a
	// claim is one or the other, and the pod is what knows.
	Device string `json:"device,omitempty"`
	// Format is what the source is, "raw" or "qcow2"; empty lets virt-launcher
	// read it from the first bytes. A disk that a guest may write to must not be
	// probed: the guest decides what its first bytes say.
	Format string `json:"format,omitempty"`
	// Overlay, when not empty, is the path of a qcow2 file that takes the
	// guest's writes, with Source as its backing file; or, without Source, of
	// an empty qcow2 image of Size bytes.
	Overlay string `json:"overlay,omitempty"`
	// Size is the virtual size in bytes of an image made from nothing.
	Size int64 `json:"size,omitempty"`
}

// PreparedImage answers for one Image.
type PreparedImage struct {
	Name string `json:"name"`
	// Source and SourceFormat ("raw" or "qcow2") name the file that was found.
	// The format is read from the file's first bytes; a qcow2 file that names
	// a backing file or an external data file of its own is refused, since it
	// could make QEMU open any path.
	Source       string `json:"source,omitempty"`
	SourceFormat string `json:"sourceFormat,omitempty"`
	// Overlay is the qcow2 file made on top, empty when there is none.
	Overlay string `json:"overlay,omitempty"`
	// BlockDevice says that Source is a block device rather than a file.
	BlockDevice bool `json:"blockDevice,omitempty"`
	// DirectIO says that what takes the guest's writes (the source, or the
	// overlay) can be opened with O_DIRECT.
	DirectIO bool `json:"directIO,omitempty"`
	// LogicalBlock and PhysicalBlock are the source's block sizes in bytes.
	LogicalBlock  int `json:"logicalBlock,omitempty"`
	PhysicalBlock int `json:"physicalBlock,omitempty"`
	// VirtualSize is the guest's disk size in bytes.
	VirtualSize int64 `json:"virtualSize"`
}

// Start starts QEMU. When QEMU runs already it changes nothing and answers
// with the State.
type Start struct {
	// Args are QEMU's arguments, without the program's own name.
	Args []string `json:"args"`
	// GracePeriodSeconds is how long a guest has to follow ACPI's power button
	// when virt-launcher is told to end (SIGTERM, Stop).
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
	// Incoming means that QEMU waits for its guest, which a live migration brings. Until its
	// CPUs are started, virt-launcher ends QEMU at once when it is told to end.
	Incoming bool `json:"incoming,omitempty"`
	// TPM, when not nil, has virt-launcher start the process that emulates the guest's TPM before
	// QEMU, which connects to it on the socket layout.TPMSocket.
	TPM *TPM `json:"tpm,omitempty"`
	// DownwardMetrics, when not nil, has virt-launcher tell the guest figures of its host and of itself.
	DownwardMetrics *DownwardMetrics `json:"downwardMetrics,omitempty"`
}

// DownwardMetrics is how a guest is told figures of its host and of itself (decision 603).
type DownwardMetrics struct {
	// HostName is the name of the node.
	HostName string `json:"hostName"`
	// Disk, when not empty, is the file that virt-launcher makes before QEMU starts and writes the figures to.
	// QEMU reads it.
	Disk string `json:"disk,omitempty"`
	// Channel means that virt-launcher answers the guest's requests on the socket layout.MetricsSocket.
	Channel bool `json:"channel,omitempty"`
}

// TPM is the process that emulates a guest's TPM, swtpm. It ends with QEMU.
type TPM struct {
	// State is the folder of what the TPM knows. It is made if it is missing.
	State string `json:"state"`
	// Current, when not empty, says that the folder is one of several on the claim of the VM's state, and names
	// the one of the TPM that the guest uses. Those that are neither are removed.
	Current string `json:"current,omitempty"`
}

// Stop ends QEMU.
type Stop struct {
	// GracePeriodSeconds overrides Start's; 0 ends QEMU at once.
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
	// Failure is why QEMU is ended when its guest has failed, or has powered itself off
	// (ReasonGuestShutdown), and QEMU has not ended by itself; empty otherwise. It becomes
	// the Exit's reason unless virt-launcher heard of another failure.
	Failure Reason `json:"failure,omitempty"`
}

// Reply answers the Request with the same ID.
type Reply struct {
	ID uint64 `json:"id"`
	// Error is a sentence for the VM's owner; empty when the request was done.
	Error string `json:"error,omitempty"`
	// Refused means that Error is about what the guest is doing just now: it may be asked for again.
	Refused bool `json:"refused,omitempty"`
	// Hold answers Quiesce with what holds the guest, Held likewise or with what has held it last, Release with what
	// was ended; it has no token if there is none.
	Hold   *Hold           `json:"hold,omitempty"`
	Images []PreparedImage `json:"images,omitempty"`
	State  *State          `json:"state,omitempty"`
}

// Event reports a change that no request caused.
type Event struct {
	Exited *Exit `json:"exited,omitempty"`
	// Frozen is what State.Frozen has become.
	Frozen *bool `json:"frozen,omitempty"`
}

// Message is what virt-launcher writes: exactly one pointer is set.
type Message struct {
	Hello *Hello `json:"hello,omitempty"`
	Reply *Reply `json:"reply,omitempty"`
	Event *Event `json:"event,omitempty"`
}
