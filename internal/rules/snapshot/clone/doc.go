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
//   - virt-controller ends between two actions: names follow from the clone's UID, so a repeated creation has no effect.
//     Failed and Succeeded are written before any deletion, and deletions are repeated until the status names neither
//     object.
//   - The clone is deleted: snapshot and restore are deleted by ownership. The end of the restore deletes claims that no
//     VM uses.
//   - A user deletes the snapshot or the restore: it is created again, unless the VM has the restore's annotation.
//   - The source VM is deleted: the snapshot fails, unless it already has its cuts.
//
// Invariants:
//   - A VM that existed before the restore is never changed.
//   - Only objects that the clone controls are deleted.
//   - The snapshot stays until the target's claims are filled, or the restore has failed and deleted its claims.
package clone
