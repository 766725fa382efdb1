// Package vmistatus owns what the status of a VMI says: its phase, how it ends, its
// conditions, and which component writes which field.
//
// virt-controller and virt-handler contribute what they know as Facts. Project makes
// the status of them: one function for the phase and one for each condition, of which
// each says what the condition is to be, that it is to go, or that the writer does not
// know. Whether the result is worth a write is not decided here.
//
// The package is pure: it must not import a client, read the clock, or decide what is
// done about a VMI (packages vmilifecycle and guestlifecycle).
//
//	              HandOver            Guest              End
//	(empty) Pending Scheduling ──> Scheduled ──> Running ──> Succeeded, Failed
//	└────── Waiting ─────────┘     └── HandedOver ─────┘     └──── Ended ────┘
//	      │          ^                        Maintain (the VMI is to have no guest) │
//	      v          └──────────────────────────────────────────────────────────────┘
//	 Maintenance (the VMI is locked)
//
// Invariants:
//   - The phase never goes back, and nothing of a status changes once it has ended, but for a VMI that is to have no guest
//     (spec.startStrategy Maintenance, maintain.go): its status begins anew once its guest has ended.
//   - A writer changes only the fields that it may write at that stage (Owners).
//   - The same end gives the same phase, reason and conditions, whoever reports it.
package vmistatus
