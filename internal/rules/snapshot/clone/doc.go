// Package clone decides virt-controller's actions for one VirtualMachineClone: its snapshot, its restore, the restore's
// patches of the source's manifest, and the status. Packages snapshot and restore own the rules for disks. It must not
// import a client or read the clock.
//
//	(new) ──> SnapshotInProgress ──> RestoreInProgress ──> CreatingTargetVM ──> Succeeded
//	            waits for its          the restore           the VM exists,       the temporary objects
//	            source; creates a      creates claims        the restore ends     are deleted
//	            snapshot of a VM           │                      │
//	              └────────────────────────┴──── Failed ──────────┘
//
// Writers:
//
//	VirtualMachineClone      spec: its owner; status: virt-controller
//	VirtualMachineSnapshot   of a VM: created by virt-controller, owned by the clone; a snapshot that is the
//	                         source is its owner's and is only read
//	VirtualMachineRestore    created by virt-controller, owned by the clone
//	target                   created by the restore; the clone never writes a VM
//
// Failures:
//   - virt-controller between two actions: names follow from the clone's UID, so a repeated creation has no effect.
//     Failed and Succeeded are written before any deletion, and deletions are repeated until the status names neither
//     object.
//   - The clone: both are deleted by ownership. The end of the restore deletes claims that no VM uses.
//   - The snapshot or the restore, deleted by a user: created again, unless the VM has the restore's annotation.
//   - The source VM: the snapshot fails, unless it has its cuts; then its end changes nothing.
//
// Invariants:
//   - A VM that existed before the restore is never changed.
//   - Only objects that the clone controls are deleted.
//   - The snapshot stays until the target's claims are filled, or the restore has failed and deleted its claims.
package clone
