// Package snapshot decides virt-controller's actions for one VirtualMachineSnapshot: when the VM is locked, which disks
// are snapshotted, the VirtualMachineSnapshotContent, and the status. It must not import a client or read the clock.
//
//	(new) ──finalizer──> InProgress ──> InProgress ──> InProgress ──> Succeeded
//	                     waits for      VM locked,     every cut      every VolumeSnapshot
//	                     its VM         content made   is taken:      is ready to use
//	                        │              │           VM unlocked       │
//	                        └──────────────┴─────── Failed ──────────────┘
//
// For a VM with a guest (decision 424; every round checks whether it has one):
//
//	Lock ─> MakeContent ─> Quiesce ─> Cut ──────────────> Report ─────────────────> Unlock
//	                       the guest  VolumeSnapshots     all are taken, and then   VM and guest
//	                       is held    with the token      their token is still      continue
//	                                  of the hold         valid: guest continues
//
// If one driver can snapshot all disks at once, they have one VolumeGroupSnapshot (decision 432), whose members others
// name. Quiesce only if the guest's agent can freeze it:
//
//	MakeContent ─> Quiesce ─> Cut ───────> Report ──────> Unlock ─> Name ─────────> Report
//	without        if need    the group,   it is taken,             with names      all are ready
//	names                     by labels    of the right             and UIDs of
//	                                       volumes                  its members
//
// Name comes before the first Report if no guest is held.
//
// Writers:
//
//	VirtualMachineSnapshot         spec: its owner; finalizer and status: virt-controller
//	VirtualMachineSnapshotContent  virt-controller alone (config/rbac/snapshot-policy.yaml)
//	VolumeSnapshot                 created by virt-controller, owned by the content; status: the storage driver
//	VolumeGroupSnapshot            likewise; its VolumeSnapshots are created by the cluster's snapshot-controller
//	owners of ControllerRevisions  virt-controller adds the content; but anybody may delete a revision
//	label disk-of-… of claims      virt-controller; but anybody may, so that it proves nothing
//	VM status.snapshotInProgress   virt-controller: the lock
//
// While a VM is locked it gets no VMI, and its owner may not exchange its disks or start it.
//
// Failures:
//   - virt-controller between two actions: every name follows from the snapshot's UID, so a repeated creation has no
//     effect. Failed is written before the cleanup, which is repeated while the status is Failed.
//   - The storage driver: the snapshot waits until its deadline, then it is Failed. The VM is unlocked once the cuts are
//     taken, or with Failed.
//   - virt-controller while the guest is held: the guest continues at the hold's deadline. The next virt-controller
//     continues if the hold lasts with the token of all VolumeSnapshots, and else fails the snapshot.
//   - virt-handler, virt-api, the guest's node: likewise. The end of the hold waits for none of them.
//   - The guest, its QEMU, its place: the token is no longer valid. Failed.
//   - The VM: Failed, if a cut is missing. Afterwards its end changes nothing.
//   - The snapshot: its finalizer stays until the VM is unlocked. Its content goes by ownership, unless it is to be
//     retained; VolumeSnapshots go with their content likewise.
//
// Invariants:
//   - A content names every disk of the VM that can be snapshotted, and is not ready to use before all are. A failed
//     snapshot has no content.
//   - A content with a creation time has cuts of one point in time: no guest wrote between the first and the last,
//     because there was none or one hold lasted over all of them; or the storage took exactly its volumes at once.
//   - A cut is only taken while the VM is locked. No guest is held past its deadline (virt-launcher).
package snapshot
