// Package clone decides what virt-controller does for one VirtualMachineClone: which snapshot and which
// restore it makes, what the restore is to make of the source's manifest, and what the status says. How
// disks are kept and filled is the rules' of snapshots and restores.
//
// It owns the decision only. It is pure: it must not import a client or read the clock.
//
//	(new) ──> SnapshotInProgress ──> RestoreInProgress ──> CreatingTargetVM ──> Succeeded
//	            waits for its          the restore           the VM is there,     everything that was
//	            source; makes a        makes claims          the restore ends     made on the way goes
//	            snapshot of a VM           │                      │
//	              └────────────────────────┴──── Failed ──────────┘
//
// Who writes what:
//
//	VirtualMachineClone      spec: its owner; status: virt-controller
//	VirtualMachineSnapshot   of a VM: made by virt-controller, owned by the clone; a snapshot that is the
//	                         source is its owner's and is only read
//	VirtualMachineRestore    made by virt-controller, owned by the clone
//	target                   made by the restore; the clone never writes a VM
//
// When a part dies:
//   - virt-controller between two actions: snapshot and restore have names that follow from the clone's
//     UID, so that making one twice makes it once. Failed and Succeeded are written before anything is
//     deleted, and deleting is repeated until the status names neither of them.
//   - The clone: both go by ownership. The restore's own end takes back claims that no VM has.
//   - The snapshot or the restore, by somebody's hand: made again, unless the VM says that the
//     restore has made it.
//   - The source VM: the snapshot fails, unless it has its cuts; then its end changes nothing.
//
// Invariants:
//   - A VM that was there before the restore is never touched.
//   - Nothing is deleted that the clone does not control.
//   - The snapshot stays until the target's claims are filled from it, or the restore has failed and has
//     taken back its claims.
package clone
