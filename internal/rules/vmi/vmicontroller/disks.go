package vmicontroller

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// awaitDisks reports the state of the VMI's disks in its conditions:
//
//	Synchronized False      claims are missing
//	DataVolumesReady False  DataVolumes are not filled
//	Provisioning True       the claims are being bound where the VMI fits
//	PodScheduled False      no node is suitable
func (d *decision) awaitDisks() {
	disks, wait := d.p.Disks, &d.facts.Wait
	wait.Phase, wait.For = firstPhase(d.o.VMI), disks.Message
	d.facts.Obstacle = none
	if disks.State == placement.Missing {
		wait.For = claimsMissing(d.o.VMI.Namespace, placement.MissingClaims(d.o.Claims))
		d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: vmistatus.ReasonPVCNotFound, Message: wait.For})
	}
	wait.DataVolumes = vmistatus.Known(vmistatus.DataVolumes{
		Exist: placement.FilledByDataVolumes(d.o.Claims) && disks.State != placement.Divided, Message: wait.For,
	})
	provisioning := ""
	if disks.State == placement.Provisioning {
		provisioning = wait.For
	}
	wait.Provisioning = vmistatus.Known(provisioning)
	unplaced := Unplaced(disks, d.o.Provisioning)
	if unplaced != nil && disks.State == placement.Provisioning && podstatus.Terminal(d.o.Provisioning) {
		wait.For = unplaced.Message
	}
	wait.Unscheduled = vmistatus.Known(unplaced)
}

// Unplaced returns why no node suits the disks. pod is their provisioning pod, if it is known.
func Unplaced(disks placement.Plan, pod *corev1.Pod) *vmistatus.Obstacle {
	switch {
	case disks.State == placement.Divided:
		return &vmistatus.Obstacle{Reason: corev1.PodReasonUnschedulable, Message: disks.Message}
	case disks.State != placement.Provisioning || pod == nil:
		return nil
	case podstatus.Terminal(pod):
		return &vmistatus.Obstacle{Reason: corev1.PodReasonUnschedulable,
			Message: "the provisioning pod has ended and is made again: " + cmp.Or(pod.Status.Message, pod.Status.Reason, "its container has ended")}
	}
	return verdictOn(pod)
}

func (d *decision) reportDisksReady() {
	wait := &d.facts.Wait
	wait.Provisioning = vmistatus.Known("")
	wait.Unscheduled = none
	wait.DataVolumes = vmistatus.Known(vmistatus.DataVolumes{Exist: placement.FilledByDataVolumes(d.o.Claims), Filled: true})
}

func claimsMissing(namespace string, claims []string) string {
	names := make([]string, len(claims))
	for i, claim := range claims {
		names[i] = namespace + "/" + claim
	}
	verb, they := "does", "it"
	if len(names) > 1 {
		verb, they = "do", "them"
	}
	return fmt.Sprintf("PVC %s %s not exist, waiting for %s to appear", strings.Join(names, ", "), verb, they)
}
