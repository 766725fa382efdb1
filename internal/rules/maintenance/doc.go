// Package maintenance decides when a machine, a VM or a VMI without one, is locked for a maintenance pod, when that pod may
// run, and when the lock goes.
//
// It owns the decision only. It is pure: it must not import a client or read the clock. What the lock looks like is
// package lock's; that no guest starts beside a holder, package vmilifecycle's (maintained.go there).
//
//	          Lock                Open                Lift               Unlock
//	unlocked ──────> locked, shut ─────> locked, open ────> the pod runs ──────> unlocked
//	                      │                   after the pod has ended: always Unlock
//	                      └── something is in the way: Unlock
//
// Before the lock, disks that were never filled are placed as for a start (place.go). That needs no lock.
//
// Everything is decided on what the API server says, read in this order: the machine, the pods, what is in the way. Each of
// Lock, Open and Unlock is a write of the machine on condition that nobody has written it in between, so that of two
// processes that decide at once one is refused.
//
// Invariants:
//   - At most one pod is the holder, and only while the machine is open may it have no gate. Once open, it is unlocked
//     only when that pod has ended (lock.Ended), or when an administrator vouches for it.
//   - Lock, then look, then Open; a guest's VMI exists first, then virt-controller looks at the lock, and only then
//     hands it to a node. So of a start and a lock that race at least one sees the other. The one that sees the other
//     gives way. A VMI without a VM is locked itself, and only while it is to have no guest: of its handover and its
//     lock, both writes of it on that condition, one comes first, and rules out the other.
//   - Of a VM and a VMI of one name only one is opened: each is looked for when the other has been locked.
//   - A pod is let go (its finalizer taken off) only when it has ended and a machine that was read after that is not locked
//     for it: so the object of a holder exists as long as its lock.
//   - Pods get the lock in the order of their creation, then of their UIDs.
package maintenance
