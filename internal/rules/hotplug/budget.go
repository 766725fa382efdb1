package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Budget is the PodDisruptionBudget of the VMI's attachment pods.
type Budget struct {
	State  BudgetState
	Why    string // the error of the last attempt to write it
	Lately bool   // just written, right or not; limits the rate of writes
}

// BudgetState is the state of the budget.
type BudgetState int

// The states:
//
//	Absent ──> Right <──> Altered        Foreign: another owner's object has the name
const (
	BudgetAbsent BudgetState = iota
	BudgetForeign
	BudgetAltered // may permit evictions
	BudgetRight
)

// BudgetStep is an action on the budget.
type BudgetStep int

// The actions.
const (
	BudgetStay BudgetStep = iota
	BudgetMake
	BudgetRestore
	BudgetRefuse // reports another owner's object and leaves it
)

// PlanBudget returns the action on the budget.
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

// guarded reports whether the attachment pod waits for the budget: the guest has none of its volumes.
func (p *planning) guarded(h *AttachmentPod) bool {
	return p.Budget.State != BudgetRight && !slices.ContainsFunc(h.Volumes, func(v Volume) bool {
		e := p.entry(v)
		return e != nil && (InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode)
	})
}
