package vmicontroller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// ReasonStateClaim is Synchronized's reason if the claim for the VM's state can't be used.
const ReasonStateClaim = "StateClaimUnusable"

func (d *decision) stateClaim() *corev1.PersistentVolumeClaim {
	name := stateclaim.ClaimName(d.o.VMI)
	at := slices.IndexFunc(d.o.Claims, func(c placement.Claim) bool { return name != "" && c.Name == name })
	if at < 0 {
		return nil
	}
	return d.o.Claims[at].Claim
}

func (d *decision) checkState() error {
	claim := d.stateClaim()
	if claim == nil {
		return nil
	}
	return stateclaim.Check(d.o.VMI, claim)
}

// A change or the end of the claim enqueues the VMI.
func (d *decision) awaitState() {
	d.p.Disks.Create = false // the provisioning pod would bind the claim
	d.p.After = rivalPause
	d.facts.Wait.Phase, d.facts.Wait.For = firstPhase(d.o.VMI), d.checkState().Error()
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonStateClaim, Message: d.facts.Wait.For})
}

// An outdated cache does no harm: a second creation fails by the claim's name.
func (d *decision) createState() {
	d.p.CreateState = true
	d.facts.Wait.Phase = firstPhase(d.o.VMI)
	d.facts.Wait.For = fmt.Sprintf("waiting for the PVC %s of the VM's state", stateclaim.ClaimName(d.o.VMI))
	d.facts.Obstacle = none
}
