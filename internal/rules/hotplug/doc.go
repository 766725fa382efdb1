// Package hotplug decides which attachment pods hold a VMI's hotplugged volumes on its node, and
// which status virt-controller gives each volume.
//
// It owns the decision only. It is pure: it must not import a client or read the clock. Package
// hotplugpod renders the pods; virt-handler owns the steps on the node and in the guest.
//
// # States of a volume
//
// A volume is a pair of name and claim: the same name on another claim is another volume.
//
//	           claim is there      its attachment pod runs        virt-handler
//	(none) ──> Pending ──> Bound ──> AttachedToNode ──> MountedToPod ──> Ready
//	  ^           └─ controller ────────────┘                │             │
//	  │                                                      v             v
//	  └── no pod holds it any more ── UnMountedFromPod <── Detaching <─────┘
//	          controller                               virt-handler
//
// A volume that is MountedToPod, Ready or Detaching is in use: the guest may access it. QEMU may
// have an AttachedToNode volume open before virt-handler reports it. Such a volume can be given
// another pod, but only virt-handler ends the phase.
//
// # States of an attachment pod
//
//	recorded ──> pod created ──> starting ──> running ──> dropped ──> pod deleted
//
// Recorded and dropped are states of the record, an annotation of the VMI; the others are the
// pod's. The record is written on condition of the version that was read, and pods follow only
// after that. Names contain the record's generation, which only grows, so a dropped name is never
// recorded again. All safety rests on this:
//
//   - No component brings a volume into use from a pod that is not recorded in the version of the VMI
//     on which its write is conditional.
//   - So a pod that is neither recorded nor named by a volume in use, in any version of the VMI that is
//     younger than the pod, can't come into use again. A pod is recorded before it is created, so
//     every version that is read after the pod was seen is young enough.
//
// Acting on a stale cache is therefore harmless: a write fails, a creation returns AlreadyExists or creates
// an unused pod, and deletions are decided only on the API server's own answer (Observed.Live, decision 110).
//
// # Invariants
//
//   - H1: a volume that is in use, or open in QEMU whatever its status, is held by a pod that runs and
//     is not terminating.
//
//   - H2: a pod is deleted only when each of its volumes is in use through another pod that runs, is not
//     terminating and is named by the volume's status, or is neither in use nor AttachedToNode through
//     this pod. A volume that never was in use counts as not in use: a pod that can't start must not
//     hold back the volumes that it shares. A pod that the scheduler is about to place
//     is deleted after that.
//
//   - H3: if nothing changed, nothing is created, deleted or written.
//
//   - H4: with healthy storage every wanted volume becomes Ready and every unwanted one goes; at rest at
//     most MaxAttachmentPods pods hold the volumes that can share one.
//
//   - H5: a volume that never becomes ready delays no other: an attachment pod that does not start is
//     split into one for each of its volumes.
//
//   - H6: a volume that the guest does not have gets a pod only within the VMI's disruption budget; one
//     that it has gets a pod in any case (budget.go, decision 113).
//
// H1 and H2 don't cover pods that others remove (an eviction, a user, the kubelet); these are
// replaced at once. Package invariant states H1 and H2 as code, and the exploration tests all
// invariants in every state that the decisions of virt-controller and virt-handler reach.
//
// # Failures
//
//   - virt-controller stops after recording a pod, creating it or dropping it: the next reconciliation
//     creates the recorded pod, or deletes the one that is not recorded.
//   - virt-handler stops: phases stay, and no attachment pod of a volume in use is deleted.
//   - An attachment pod ends: its successor is recorded at once, and the volume stays plugged.
//   - The VMI ends: its attachment pods are deleted when it is final, since a guest that shuts down
//     still writes.
package hotplug
