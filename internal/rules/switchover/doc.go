// Package switchover decides which of two QEMUs runs a guest that is migrated: when the
// source lets go of it, when the target may run it, and what either may conclude when the
// other, a virt-handler, a pod or a node dies.
//
// It owns the decisions of the three who take part, and no other: DecideSource for
// virt-handler at the source, DecideTarget for virt-handler at the target, DecideController
// for virt-controller. It is pure: facts come in as values, and steps go out. It must not
// import a client or read the clock. Which migrations begin at all, and their target pods, are
// package migration's.
//
// One migration is M, the UID of its VirtualMachineInstanceMigration. The source:
//
//	        Begin           (QEMU)            Continue         (QEMU)
//	runs ───────────> copies ────> pre-switchover ────> device ────> sent
//	  ^                  │               │                 │           │ Ran ───> quits
//	  │<── Cancel ───────┴───────────────┴──── (QEMU) ─────┘           │
//	  └──────────────── Resume, on Never only ─────────────────────────┘
//
// The guest stands still from pre-switchover on. Before sent, QEMU has the guest go on by
// itself when the stream breaks or the migration is canceled. In sent (run state postmigrate,
// status completed) it never does so by itself. In post-copy, the memory follows the guest
// (copies ──> pre-switchover ──> post-copy ──> sent), and from its first page on there is no way
// back. QEMU is marked then, before Released is told: an error at the end of the post-copy has the
// migration fail, as an error before the first page has, and QEMU says the same of both (decision 362).
//
// Disks that the guest writes in its pod move with it. Their copies (Mirrors) are jobs of QEMU's at
// the source, to exports of QEMU's at the target:
//
//	         MirrorDisks        (QEMU)              FinishMirrors
//	missing ───────────> copy ────────> ready ─────────────────> finished
//	                      │               │
//	                      └─── (QEMU) ────┴──> failed, or ended by EndMirrors
//
// Begin waits until they are ready: from then on what is left to copy is what the guest has written
// lately. They are finished in pre-switchover only, where the guest stands still, and
// ContinueSwitchover waits for that. So a guest that was sent has the same disks on both sides. The
// source's disks are complete at any time: nothing of them is given away.
//
// The target:
//
//	          StartIncoming        (QEMU)         MarkAndRun         Run
//	not started ──────────> incoming ────> loaded ──────────> marked ───> runs
//	                            │             │
//	                            └─── Kill ────┴──> ended, never having run
//
// Facts that one side tells the other are about M, and once true they stay true. So they may
// come late, twice, or from a process that has died since:
//
//	Ready     target: QEMU listens for the guest's state
//	Released  source: QEMU was seen in sent, or has ended after it; or in post-copy for good
//	Ran       target: QEMU has answered that it runs the guest, or was seen running it
//	Never     target: QEMU has ended, and never ran the guest
//
// The rule, which the exploration beside this file proves:
//
//   - The target runs the guest only with Released. That it has loaded all of the guest is no
//     substitute: its last answer may be lost, and then the source goes on (decision 280).
//   - The source goes on from sent only with Never. Nothing else will do: no time that passes,
//     no pod that is gone, no abort. It records failed first, so that nobody ends the VMI
//     meanwhile as one whose guest is lost.
//   - Who can't know does not guess. When the source has sent the guest and the target is gone
//     without a word, the VMI is Failed, and its VM starts it again.
//
// Who owns what:
//
//	QEMU at the source  the begun marker of M: set before the migration begins, so that it
//	                    begins once; the status, which outlives virt-handler; and which
//	                    disks are copied and how far, as jobs that stay when they have ended
//	QEMU at the target  the ran marker: set before the guest runs, so that the next
//	                    virt-handler knows that it may run, and must not be killed as unused;
//	                    and, set before it is killed, that it is doomed, and must not be run;
//	                    and the exports that disks are copied to, which end before it runs
//	virt-launcher       whether QEMU has sent the guest, or run it, in its exit (Exit)
//	VMI                 startTimestamp, failed (source's virt-handler), completed (target's):
//	                    written once, conditional on the resourceVersion that was read
//	VMI                 activePods (virt-controller): it names each pod that may run the guest.
//	                    A pod is named by UID before its QEMU starts. While neither failed nor
//	                    completed is recorded, the source leaves activePods only when it is known
//	                    to have ended after sent, and the target only when it is known never to
//	                    have run: that is how Released and Never are told when nobody is left to
//	                    tell them.
//
// When a part dies:
//
//	source's virt-handler  its stream breaks. Before pre-switchover, QEMU goes on with the
//	                       guest by itself. In pre-switchover virt-launcher cancels
//	                       (migrationstatus.CancelUnattended). In sent the next virt-handler
//	                       tells Released again.
//	target's virt-handler  the same for the stream. The next one finds QEMU incoming, loaded
//	                       (and asks by Ready), marked (and runs it) or running.
//	QEMU at the source     before sent: the guest has ended, and so has the VMI. After sent:
//	                       Released, by its virt-handler, or by virt-controller from its pod.
//	QEMU at the target     without having run: Never; the source cancels or goes on. Without
//	                       a word: virt-controller requests the abort, and the source cancels; or
//	                       it answers that it has sent the guest (abortStatus Failed), and
//	                       the VMI ends as lost.
//	the stream of a disk   the job fails at the next write, or when it is to be finished, and
//	                       the guest goes on here. So does the migration of any side's death
//	                       above: what a target has got of a disk is never gone on with.
//	virt-controller        nothing waits for it but what only it concludes from pods.
//	a node                 nothing on it is concluded until it answers, or is declared out of
//	                       service; then its QEMU has ended without a word.
//
// A QEMU that lies about its own state harms the disks of its own guest only. Pausing a guest
// is refused from Begin until completed or failed, since QEMU does not tell the target
// whether the guest was paused.
package switchover
