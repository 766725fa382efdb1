// Package migrationrequired decides whether a VMI needs a migration to follow its VM's template, and the content of its
// condition MigrationRequired.
//
// Code that needs another launcher pod for a change passes a Need. Package workloadupdate decides whether and when a
// migration is created. This package must not import a client, read the clock or know a field of a VMI's spec.
//
//	            a need                      more than ten seconds          the guest has arrived
//	no condition ────────────> False, pending ────────────────────> True ──────────────────────> no condition
//	     ^  └───────── a need that only a migration meets ──────────^ │
//	     └───────────── nothing is needed any more ─────┴─────────────┘
//
// The ten seconds are for changes of the current pod (an attacher of interfaces, a resize). They begin
// with the condition, so that successive needs do not postpone it. True does not become False while
// there is a need: a migration may be under way.
//
// A need that a migration has not met is futile: it keeps the condition False with the reason.
package migrationrequired

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// patience is more than ten seconds for a change in place, although the condition's time is rounded down to whole seconds.
const patience = 11 * time.Second

const maxMessage = 1024

// manual is appended if the cluster does not create a required migration.
const manual = "the cluster makes no migration for that (LiveMigrate is not among spec.workloadUpdateStrategy.workloadUpdateMethods of the KubeVirt object): migrate the VM"

// Need is a difference between a guest's launcher pod and the desired one.
type Need struct {
	What   string // a clause: "interface blue is to be plugged"
	AtOnce bool   // only a migration can make the change
	Futile string // why a migration would not make it either, "" if it would
}

// Guest is the input of a decision beside the needs.
type Guest struct {
	Immovable error // why the guest can't migrate, nil if it can
	Stays     bool  // a need does not cause a migration by itself
}

// Decide returns the desired condition without its times, nil for none, and the delay until the next decision, 0 for after
// a change. current is nil for none.
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
