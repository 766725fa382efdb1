// Package maintenance decides when a machine, a VM or a VMI without one, is locked for a
// maintenance pod, when that pod may run, and when the lock is released.
//
// It must not import a client or read the clock. Package lock defines the lock; package vmicontroller keeps guests from
// starting beside a holder (maintenance.go there).
//
//	          Lock                Open                Lift               Unlock
//	unlocked ──────> locked, shut ─────> locked, open ────> the pod runs ──────> unlocked
//	                      │                   after the pod has ended: always Unlock
//	                      └── an obstacle: Unlock
//
// Before the lock, disks that were never filled are placed as for a start (provisioning.go).
//
// All input is the API server's, read in this order: the machine, the pods, the obstacles. Lock, Open and Unlock
// write the machine on condition of its version: only one of two concurrent decisions is applied.
//
// Invariants:
//   - At most one pod is the holder, and it may have no gate only while the machine is open. An open machine
//     is unlocked only when that pod has ended (lock.Ended), or when an administrator forces it.
//   - The order is Lock, look, Open; for a guest it is VMI, look at the lock, handover to a node. So at least
//     one of a concurrent start and lock sees the other, and gives way. A VMI without a VM is locked only while
//     it is to have no guest: its lock and its handover are conditional writes of one object, and whichever
//     comes first rules out the other.
//   - Of a VM and a VMI of one name only one is opened: each is looked for after the other was locked.
//   - A pod's finalizer is removed only when it has ended and a machine that was read after that is not
//     locked for it: the holder's object exists as long as its lock.
//   - Pods get the lock in the order of their creation, then of their UIDs.
package maintenance
