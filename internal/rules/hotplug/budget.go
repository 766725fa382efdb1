package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Budget is the disruption budget that keeps evictions from the VMI's attachment
// pods.
type Budget struct {
	State BudgetState
	// Why says what has kept virt-controller from making or restoring it; empty when
	// nothing has.
	Why string
	// Lately means that virt-controller has just made or restored it: what is seen of it
	// may be older. It bounds how often it is written, and makes nothing right.
	Lately bool
}

// BudgetState is how a VMI's disruption budget is found.
type BudgetState int

// The states of a budget.
//
//	Absent ──> Right <──> Altered        Foreign: somebody else's object has the name
const (
	BudgetAbsent BudgetState = iota
	BudgetForeign
	// BudgetAltered is the VMI's own and was changed, so that it may let evictions
	// through.
	BudgetAltered
	BudgetRight
)

// BudgetStep is what is to be done about a budget.
type BudgetStep int

// The steps.
const (
	BudgetStay BudgetStep = iota
	BudgetMake
	BudgetRestore
	// BudgetRefuse leaves somebody else's object as it is, and says so.
	BudgetRefuse
)

// PlanBudget gives the step for what was observed. Nothing is done where there is
// nothing to protect: before the first attachment pod is recorded, and when the guest is gone.
func PlanBudget(o Observed) BudgetStep {
	if o.Stage == Over || len(o.Record.Pods) == 0 && len(o.Pods) == 0 || o.Budget.Lately {
		return BudgetStay
	}
	switch o.Budget.State {
	case BudgetAbsent:
		return BudgetMake
	case BudgetAltered:
		return BudgetRestore
	case BudgetForeign:
		return BudgetRefuse
	}
	return BudgetStay
}

// guarded reports whether an attachment pod is made only within a budget: none
// of its volumes is the guest's yet. What the guest has is held in any case.
func (p *planning) guarded(h *AttachmentPod) bool {
	return p.Budget.State != BudgetRight && !slices.ContainsFunc(h.Volumes, func(v Volume) bool {
		e := p.entry(v)
		return e != nil && (InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode)
	})
}

// withheld says why the pod of a recorded attachment pod is not made; empty when it is, or
// nothing is known to be in the way.
func (p *planning) withheld(attachmentPod string) string {
	for i := range p.record.Pods {
		if h := &p.record.Pods[i]; h.Name == attachmentPod && p.guarded(h) {
			return p.Budget.Why
		}
	}
	return ""
}
