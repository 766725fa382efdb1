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
// A locked VM gets no VMI, and its owner may not exchange its disks or start it.
//
// Failures:
//   - virt-controller ends between two actions: every name follows from the snapshot's UID, so a repeated creation has
//     no effect. Failed is written before the cleanup, which is repeated while the status is Failed.
//   - The storage driver fails: the snapshot is Failed at its deadline. The VM is unlocked when the cuts are taken, or
//     with Failed.
//   - virt-controller ends while the guest is held: the guest continues at the hold's deadline. The next virt-controller
//     continues if the hold still has the token of all VolumeSnapshots, and else fails the snapshot.
//   - virt-handler, virt-api or the guest's node fails: the same. The end of the hold waits for none of them.
//   - The guest or its QEMU ends, or the guest leaves its node: the token becomes invalid, and the snapshot fails.
//   - The VM is deleted: the snapshot fails if a cut is missing. Later the deletion has no effect.
//   - The snapshot is deleted: its finalizer stays until the VM is unlocked. Its content is deleted by ownership unless
//     it is to be retained, and so are the content's VolumeSnapshots.
//
// Invariants:
//   - A content names every disk of the VM that can be snapshotted, and is not ready to use before all are. A failed
//     snapshot has no content.
//   - A content with a creation time has cuts of one point in time: no guest wrote between the first and the last,
//     because there was none or one hold covered all of them; or the storage took exactly its volumes at once.
//   - A cut is taken only while the VM is locked. No guest is held past its deadline (virt-launcher).
package snapshot
