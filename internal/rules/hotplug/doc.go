// Package hotplug decides which attachment pods hold a VMI's hotplugged volumes on its node, and
// virt-controller's status of each volume.
//
// It must not import a client or read the clock. Package hotplugpod renders the pods; virt-handler
// owns the steps on the node and in the guest.
//
// # States of a volume
//
// A volume is a pair of name and claim.
//
//	           claim is there      its attachment pod runs        virt-handler
//	(none) ──> Pending ──> Bound ──> AttachedToNode ──> MountedToPod ──> Ready
//	  ^           └─ controller ────────────┘                │             │
//	  │                                                      v             v
//	  └── no pod holds it any more ── UnMountedFromPod <── Detaching <─────┘
//	          controller                               virt-handler
//
// A volume that is MountedToPod, Ready or Detaching is in use: the guest may access it. QEMU may
// already have an AttachedToNode volume open, so only virt-handler ends that phase.
//
// # States of an attachment pod
//
//	recorded ──> pod created ──> starting ──> running ──> dropped ──> pod deleted
//
// The record is an annotation of the VMI, written on condition of the version that was read; pods are
// created only afterwards. A dropped name is never recorded again, since names contain a generation.
// All safety rests on this:
//
//   - No component brings a volume into use from a pod that is not recorded in the version of the VMI
//     on which its write is conditional.
//   - So a pod can't come into use again if a younger version of the VMI neither records it nor names
//     it for a volume in use. Every version read after the pod was seen is younger, since a pod is
//     recorded before it is created.
//
// Acting on an outdated cache is harmless: a write fails, a creation returns AlreadyExists or creates
// an unused pod, and deletions need the API server's own answer (Observed.Live, decision 110).
//
// # Invariants
//
//   - H1: a volume that is in use, or open in QEMU whatever its status, is held by a pod that runs and
//     is not terminating.
//
//   - H2: a pod is deleted only when each of its volumes is in use through another pod that runs, is not
//     terminating and is named by the volume's status, or is neither in use nor AttachedToNode through
//     this pod: a pod that can't start does not hold back the volumes that it shares. A pod that the
//     scheduler is about to place is deleted after that.
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
//     that it has always gets a pod (decision 113).
//
// H1 and H2 (package invariant) don't cover pods that others remove, which are replaced at once. The
// exploration tests all invariants in every state that virt-controller and virt-handler reach.
//
// # Failures
//
//   - virt-controller stops: its next reconciliation creates the recorded pods and deletes the others.
//   - virt-handler stops: phases stay, and no attachment pod of a volume in use is deleted.
//   - An attachment pod ends: the volume stays plugged, and another pod is recorded.
//   - The VMI ends: its attachment pods stay until it is final, since a guest that shuts down still writes.
package hotplug
