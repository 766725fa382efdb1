// Package snapshot decides what virt-controller does for one VirtualMachineSnapshot: when the VM is
// locked, which of its disks are snapshotted, what the VirtualMachineSnapshotContent holds, and what
// the status says.
//
// It owns the decision only. It is pure: it must not import a client or read the clock.
//
//	(new) ──finalizer──> InProgress ──> InProgress ──> InProgress ──> Succeeded
//	                     waits for      VM locked,     every cut      every VolumeSnapshot
//	                     its VM         content made   is taken:      is ready to use
//	                        │              │           VM unlocked       │
//	                        └──────────────┴─────── Failed ──────────────┘
//
// Of a VM with a guest (decision 424; which, if any, is looked at in every round):
//
//	Lock ─> MakeContent ─> Quiesce ─> Cut ──────────────> Report ───────────────────────> Unlock
//	                       the guest  VolumeSnapshots     all are taken, and then their    VM and guest
//	                       is held    with the token      token is still valid: the guest  go on
//	                                  of the hold         goes on
//
// Disks of one driver that snapshots several volumes at once have one VolumeGroupSnapshot (decisions 432 and 433), whose members
// others name; Quiesce only if the guest's agent can freeze it:
//
//	MakeContent ─> Quiesce ─> Cut ───────> Report ──────> Unlock ─> Name ─────────> Report
//	without        if need    the group,   it is taken,             with names      all are ready
//	names                     by labels    of the right             and UIDs of
//	                                       volumes                  its members
//
// Name comes before the first Report if no guest is held.
//
// Who writes what:
//
//	VirtualMachineSnapshot         spec: its owner; finalizer and status: virt-controller
//	VirtualMachineSnapshotContent  virt-controller alone (config/rbac/snapshot-policy.yaml)
//	VolumeSnapshot                 made by virt-controller, owned by the content; status: the storage driver
//	VolumeGroupSnapshot            likewise; its VolumeSnapshots are made by the cluster's snapshot-controller
//	owners of ControllerRevisions  virt-controller, of which the content is one; but anybody may delete a revision
//	label disk-of-… of claims      virt-controller; but anybody may, so that nothing is concluded from it
//	VM status.snapshotInProgress   virt-controller: the lock
//
// While a VM is locked it gets no VMI, and its owner may not exchange its disks or start it.
//
// When a part dies:
//   - virt-controller between two actions: every object has a name that follows from the snapshot's
//     UID, so that making it twice makes it once, and the next round sees what was done. Failed is
//     written before anything is taken back, and taking back is repeated as long as Failed is
//     what the status says.
//   - The storage driver: the snapshot waits until its deadline, then it is Failed. The lock is
//     given back as soon as the cuts are taken, or with Failed.
//   - virt-controller while the guest is held: the guest goes on at the hold's deadline. Whoever comes
//     next goes on if the hold lasts with the token of all VolumeSnapshots, and fails the snapshot otherwise.
//     A hold is asked for only while there is no VolumeSnapshot.
//   - virt-handler, virt-api, the guest's node: likewise. Nobody is waited for to let the guest go.
//   - The guest, its QEMU, its place: the token is not valid any more. Failed.
//   - The VM: Failed, if a cut is missing. Afterwards its end changes nothing.
//   - The snapshot: its finalizer stays until the VM is unlocked. Its content goes with it by
//     ownership, unless it is to be retained; VolumeSnapshots go with their content likewise.
//
// Invariants:
//   - A content is complete: it names every disk of the VM that can be snapshotted, and none is
//     ready to use before all are. A snapshot that has failed has no content.
//   - A content that says when it was taken has cuts of one point in time: no guest has written from the
//     first to the last, because there was none, or because one hold lasted over all of them; or the storage took
//     exactly the content's volumes at once.
//   - No cut is taken while the VM is not locked. No guest is held past its deadline (virt-launcher).
package snapshot
