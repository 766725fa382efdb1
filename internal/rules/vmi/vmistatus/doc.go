// Package vmistatus owns the content of a VMI's status: its phase, its end, its conditions, and which component writes
// which field. Project derives the status from the Facts of virt-controller and virt-handler: one function for the phase,
// and one for each condition, which sets it, removes it, or does not know.
//
// The package must not import a client, read the clock, decide whether a status is worth a write, or decide actions
// for a VMI (packages vmicontroller and vmihandler).
//
//	              HandOver            Guest              End
//	(empty) Pending Scheduling ──> Scheduled ──> Running ──> Succeeded, Failed
//	└────── Waiting ─────────┘     └── HandedOver ─────┘     └──── Ended ────┘
//	      │          ^                   Maintain (the VMI must have no guest) │
//	      v          └─────────────────────────────────────────────────────────┘
//	 Maintenance (the VMI is locked)
//
// Invariants:
//   - The phase never goes back, and a final status never changes, unless the VMI must have no guest
//     (maintenance.go): its status starts over when its guest has ended.
//   - A writer changes only the fields that it may write at that stage (Fields).
//   - The same end gives the same phase, reason and conditions, whichever component reports it.
package vmistatus
