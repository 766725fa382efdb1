// Package hotplug decides which attachment pods hold a VMI's hotplugged
// volumes on its node, and what virt-controller says about each volume.
//
// It owns the decision only. It is pure: it must not import a client or read
// the clock. How a pod looks is package hotplugpod's; what happens inside
// the node and the guest is virt-handler's.
//
// # States of a volume
//
// A volume is the pair of its name and its claim: the same name on another
// claim is another volume.
//
//	           claim is there      its attachment pod runs        virt-handler
//	(none) ──> Pending ──> Bound ──> AttachedToNode ──> MountedToPod ──> Ready
//	  ^           └─ controller ────────────┘                │             │
//	  │                                                      v             v
//	  └── no pod holds it any more ── UnMountedFromPod <── Detaching <─────┘
//	          controller                               virt-handler
//
// The guest may use a volume that is MountedToPod, Ready or Detaching. Such a
// volume is "in use" below. One that is AttachedToNode may be in QEMU already without
// virt-handler having said so: it can be given another pod, and leaves that phase by
// virt-handler alone (decision 256).
//
// # States of an attachment pod
//
//	recorded ──> pod created ──> starting ──> running ──> dropped ──> pod deleted
//
// Recorded and dropped are states of the record, an annotation of the VMI; the
// rest is the pod's. Both changes are one write of the VMI on condition of the
// version that was read; only then does a pod follow. A name that was dropped
// is never recorded again: names contain the record's generation, which only
// grows. The safety of all the rest depends on this:
//
//   - No component brings a volume into use from a pod that is not recorded in the
//     version of the VMI on which its write is conditional.
//   - So a pod that is neither recorded nor named by a volume in use, in any
//     version of the VMI that is younger than the pod, can't come into use again.
//     A pod is recorded before it is made, so every version that is read after the
//     pod was seen is young enough.
//
// Acting on a stale cache is therefore harmless: a write is refused, a creation
// answers AlreadyExists or makes a pod that nobody uses, and a deletion is only
// ever decided on what the API server itself answers (Observed.Live): decision 114.
//
// # Invariants
//
//   - H1: a volume that is in use, or that QEMU has open whatever the status says, is
//     held by a pod that runs and is not terminating.
//
//   - H2: a pod is deleted only when each of its volumes is in use through
//     another pod that runs, is not terminating and is named by the volume's status,
//     or is not in use at all and not about to be (AttachedToNode) through this
//     pod. "Not in use" includes a volume that never was: an attachment pod that can't start
//     must not hold back the volumes that it shares (decision 111). One that the scheduler is about to
//     give its node to goes after that.
//
//   - H3: where nothing changed, nothing is created, deleted or written.
//
//   - H4: with healthy storage every wanted volume becomes Ready and every
//     unwanted one goes; at rest at most MaxAttachmentPods pods hold the volumes that can
//     share one.
//
//   - H5: a volume that never becomes ready delays no other: an attachment pod that does
//     not start is split into one attachment pod for each of its volumes.
//
//   - H6: a volume that the guest does not have gets a pod only within the VMI's
//     disruption budget; one that it has gets it in any case (budget.go, decision 232).
//
// A pod that something else removes (an eviction, a user, a node's kubelet) is
// outside of H1 and H2; it is replaced at once. Package invariant
// states all of this as code, and the exploration tests it in every state that
// virt-controller's and virt-handler's own decisions reach. The order of a handover is in
// handover.go.
//
// # When a part dies
//
//   - virt-controller after the record, before the pod: the next round makes it.
//   - virt-controller after the pod: the next round finds it recorded.
//   - virt-controller after dropping an attachment pod: the next round finds a pod that is
//     not recorded and deletes it.
//   - virt-handler: phases stay where they are; no attachment pod of a volume in use goes.
//   - An attachment pod: its successor is recorded as soon as it is seen to end, and the
//     volume stays plugged meanwhile.
//   - The VMI: its attachment pods go when it is final; until then they stay, since a
//     guest that shuts down writes.
package hotplug
