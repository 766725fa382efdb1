package vmilifecycle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/vmistatus"
	"drydock.dev/drydock/internal/rules/vmstate"
)

// ReasonStateClaim is the reason of the condition Synchronized of a VMI whose VM's state can't be kept on the claim
// that has the name for it.
const ReasonStateClaim = "StateClaimUnusable"

// stateClaim is the claim of the VM's state, nil if there is none.
func (d *decision) stateClaim() *corev1.PersistentVolumeClaim {
	name := vmstate.ClaimName(d.o.VMI)
	at := slices.IndexFunc(d.o.Claims, func(c placement.Claim) bool { return name != "" && c.Name == name })
	if at < 0 {
		return nil
	}
	return d.o.Claims[at].Claim
}

// lacksState reports whether the VMI needs a claim for its VM's state that does not exist. Absent claims
// were asked of the API server.
func (d *decision) lacksState() bool {
	return vmstate.ClaimName(d.o.VMI) != "" && d.stateClaim() == nil
}

// badState returns why a guest must not be given the claim of that name, nil if it may.
func (d *decision) badState() error {
	claim := d.stateClaim()
	if claim == nil {
		return nil
	}
	return vmstate.Check(d.o.VMI, claim)
}

// awaitState has the VMI wait until its VM's state has a claim of its own. The claim's change or end wakes the loop.
func (d *decision) awaitState() {
	d.p.Disks.Create = false // it would bind the claim
	d.p.After = rivalPause
	d.facts.Wait.Phase, d.facts.Wait.For = firstPhase(d.o.VMI), d.badState().Error()
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonStateClaim, Message: d.facts.Wait.For})
}

// createState makes the claim. A second creation, on whatever stale view, meets the first one's name.
func (d *decision) createState() {
	d.p.CreateState = true
	d.facts.Wait.Phase = firstPhase(d.o.VMI)
	d.facts.Wait.For = fmt.Sprintf("waiting for the PVC %s of the VM's state", vmstate.ClaimName(d.o.VMI))
	d.facts.Obstacle = none
}
