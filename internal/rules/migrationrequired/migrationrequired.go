// Package migrationrequired decides whether a VMI needs a migration to get what its VM's template asks for,
// and what its condition MigrationRequired says of that.
//
// It is the only place where that is decided: whoever can change something of a running guest only with another
// launcher pod passes a Need. Whether and when a migration is made for the condition is package workloadupdate's.
// It is pure: it must not import a client or read the clock, and it knows no field of a VMI's spec.
//
//	            a need                      more than ten seconds          the guest has arrived
//	no condition ────────────> False, pending ────────────────────> True ──────────────────────> no condition
//	     ^  └───────── a need that nothing else can bring ──────────^ │
//	     └───────────── nothing is needed any more ─────┴─────────────┘
//
// The ten seconds are for what brings the change to the pod that there is (an attacher of interfaces, a resize of
// the pod). They begin with the condition, not with each need, so that changes which follow one another do
// not put it off. True does not become False again as long as anything is needed: a migration may be on its way.
//
// A need that a migration has not met is futile: the next one would not meet it either. It keeps the condition
// False and says why, and starts no migration.
package migrationrequired

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// patience is how long a change may take in place: more than ten seconds. The condition's time is kept in whole
// seconds, rounded down, so that only eleven after it are certain to be more than ten.
const patience = 11 * time.Second

// maxMessage bounds what the condition says.
const maxMessage = 1024

// manual is said where a migration is required and nobody makes one.
const manual = "the cluster makes no migration for that (LiveMigrate is not among spec.workloadUpdateStrategy.workloadUpdateMethods of the KubeVirt object): migrate the VM"

// Need is something that a guest's launcher pod lacks, or has too much.
type Need struct {
	// What is the change, as a clause: "interface blue is to be plugged".
	What string
	// AtOnce means that nothing but a migration can bring it.
	AtOnce bool
	// Futile is why a migration would not bring it either, "" if it would.
	Futile string
}

// Guest is what a decision is made on beside the needs.
type Guest struct {
	// Immovable is why the guest can't migrate, nil if it can.
	Immovable error
	// Stays means that no migration is made for a need by itself.
	Stays bool
}

// Decide returns what the condition is to be, with its type, its status, its reason and its message, nil for
// none, and when to look again, 0 for not before something changes. needs is what the guest's pod is found to
// need, and current the condition as it is, nil for none.
func Decide(needs []Need, current *v1.VirtualMachineInstanceCondition, guest Guest, now time.Time) (*v1.VirtualMachineInstanceCondition, time.Duration) {
	if len(needs) == 0 {
		return nil, 0
	}
	helps := slices.ContainsFunc(needs, func(n Need) bool { return n.Futile == "" })
	required := helps && (slices.ContainsFunc(needs, func(n Need) bool { return n.AtOnce && n.Futile == "" }) ||
		current != nil && current.Status == corev1.ConditionTrue)
	var after time.Duration
	if helps && !required {
		after = patience
		if current != nil {
			after = current.LastTransitionTime.Add(patience).Sub(now)
		}
		required = after <= 0
		after = max(after, 0)
	}
	next := &v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionFalse,
		Reason: v1.VirtualMachineInstanceReasonAutoMigrationPending, Message: message(needs, guest, required),
	}
	if required {
		next.Status, next.Reason = corev1.ConditionTrue, v1.VirtualMachineInstanceReasonAutoMigrationDueToLiveUpdate
	}
	return next, after
}

// message says what is needed, and what stands in the way of it.
func message(needs []Need, guest Guest, required bool) string {
	var parts []string
	for _, n := range needs {
		if n.Futile != "" {
			n.What += ", which no migration brings: " + n.Futile
		}
		parts = append(parts, n.What)
	}
	switch {
	case guest.Immovable != nil:
		parts = append(parts, "the guest cannot be migrated: "+guest.Immovable.Error())
	case required && guest.Stays:
		parts = append(parts, manual)
	}
	text := strings.Join(parts, "; ")
	if len(text) > maxMessage {
		const cut = " …"
		text = strings.ToValidUTF8(text[:maxMessage-len(cut)], "") + cut
	}
	return text
}
