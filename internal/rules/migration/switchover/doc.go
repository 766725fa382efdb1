// Package switchover decides which of two QEMUs runs a guest during a migration: when the source
// releases it, when the target may run it, and what follows when a virt-handler, a pod or a node
// fails.
//
// It owns three decisions: DecideSource and DecideTarget for the virt-handlers, and
// DecideController for virt-controller. It must not import a client or read the clock. Package
// migration decides which migrations begin, and owns their target pods.
//
// M is the UID of a VirtualMachineInstanceMigration. The source:
//
//	        Begin           (QEMU)            Continue         (QEMU)
//	runs ───────────> copies ────> pre-switchover ────> device ────> sent
//	  ^                  │               │                 │           │ Ran ───> quits
//	  │<── Cancel ───────┴───────────────┴──── (QEMU) ─────┘           │
//	  └──────────────── Resume, on Never only ─────────────────────────┘
//
// The guest is stopped from pre-switchover on. Before sent, QEMU resumes the guest by itself when
// the stream breaks or the migration is canceled. In sent (run state postmigrate, status completed)
// it never does. In post-copy, the memory follows the guest (copies ──> pre-switchover ──>
// post-copy ──> sent). QEMU gets the marker left before Released is sent then, since it reports an
// error at the end of the post-copy like one before the first page (decision 362):
//
//	post-copy, not left   the guest has run nowhere else. Withdraw brings it back while
//	                      virt-handler has QEMU's stream, which it keeps open when the other end
//	                      breaks; after the first page, a stream that QEMU sees broken leads to left
//	post-copy, left       the target may run the guest: there is no way back
//
// left is set when QEMU has sent the first page and the target has Loaded the guest, so that a
// guest can be withdrawn whose target does not read. QEMU 10 resumes a guest whose post-copy fails
// at its very end, unless the guest was stopped before the switch: virt-handler stops it.
//
// The guest's time in each stopped state that it can come back from is bounded:
//
//	copies, stopped for it  as long as it may be copied while it runs, at least 150 s
//	pre-switchover          switchoverPatience
//	device; post-copy,      its downtime and handoverPatience. QEMU does nothing else while it
//	not left                writes: the stream is discarded first, so that it hears a command
//	sent; post-copy, left   none: only the target's facts end it
//
// A virt-handler measures this time itself. The next virt-handler has no stream, and ends the
// migration in all these states without a measurement.
//
// Disks whose content is in the pod move with the guest: jobs of QEMU at the source (Mirrors) copy
// them to exports of QEMU at the target:
//
//	         MirrorDisks        (QEMU)              FinishMirrors
//	missing ───────────> copy ────────> ready ─────────────────> finished
//	                      │               │
//	                      └─── (QEMU) ────┴──> failed, or ended by EndMirrors
//
// Begin waits until they are ready. They are finished in pre-switchover, while the guest is stopped.
// So a sent guest's disks are the same on both sides, and those at the source are always complete.
//
// The target:
//
//	          StartIncoming        (QEMU)         MarkAndRun         Run
//	not started ──────────> incoming ────> loaded ──────────> marked ───> runs
//	                            │             │
//	                            └─── Kill ────┴──> ended, never having run
//
// The sides exchange facts about M. A fact stays true: it may arrive late, twice, or from a process
// that has ended since:
//
//	Ready     target: QEMU listens for the guest's state
//	Loaded    target: QEMU has loaded the guest, whose memory follows (post-copy)
//	Released  source: QEMU was seen in sent, or has ended after it; or is in an irrevocable post-copy
//	Ran       target: QEMU has confirmed that it runs the guest, or was seen running it
//	Never     target: QEMU has ended, and never ran the guest
//
// The exploration proves these rules:
//
//   - A guest is never stopped for good because QEMU at the target does not read.
//   - The target runs the guest only with Released. A complete load is not enough: the source resumes
//     if the last reply is lost (decision 280).
//   - The source resumes from sent only with Never, not after any time, a missing pod or an abort. It
//     records failed first, so that the VMI is not ended as lost.
//   - If the source has sent the guest and the target is gone without an exit, the VMI is Failed, and
//     its VM restarts it.
//
// Where the state is kept:
//
//	QEMU at the source  the begun marker of M, set before the migration begins, so that it
//	                    begins once; the migration's status; and the copies of disks, as jobs
//	                    that stay after their end
//	QEMU at the target  the ran marker, set before the guest runs, so that the next
//	                    virt-handler does not kill it as unused; the doomed marker, set before
//	                    a kill, so that it is never run; and the exports of the disks, which
//	                    end before the guest runs
//	virt-launcher       whether QEMU has sent or run the guest, in its exit (Exit)
//	VMI                 startTimestamp, failed (source's virt-handler), completed (target's):
//	                    written once, conditional on the resourceVersion that was read
//	VMI                 activePods (virt-controller), the pods that may run the guest. A pod's
//	                    UID is listed before its QEMU starts. Until failed or completed is
//	                    recorded, the source is removed only if it has ended after sent, and
//	                    the target only if it has never run: this replaces Released and Never
//	                    when nobody is left to send them
//
// Failures:
//
//	source's virt-handler  its stream breaks. Before pre-switchover, QEMU continues with the
//	                       guest. In pre-switchover virt-launcher cancels
//	                       (migrationstatus.CancelUnattended). In sent the next virt-handler
//	                       sends Released again.
//	target's virt-handler  the same for the stream. The next one finds QEMU incoming, loaded
//	                       (and asks by Ready), marked (and runs it) or running.
//	QEMU at the source     before sent: the guest and the VMI have ended. After sent: Released,
//	                       by its virt-handler, or by virt-controller from its pod.
//	QEMU at the target     without having run: Never; the source cancels, withdraws or
//	                       resumes. Without
//	                       an exit: virt-controller requests the abort, and the source cancels;
//	                       or it has sent the guest (abortStatus Failed), and the VMI is lost.
//	the stream of a disk   the job fails at the next write, or when it is finished, and the
//	                       guest continues at the source. A partial copy is never reused.
//	virt-controller        only conclusions from pods wait for it.
//	a node                 nothing on it is concluded until it responds, or is out of service;
//	                       then its QEMU counts as ended without an exit.
//
// A QEMU that lies about its state harms only its own guest's disks. A guest can't be paused
// between Begin and completed or failed, since QEMU does not tell the target whether it was paused.
package switchover
