package vmilifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/podresize"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// resize has the launcher pod follow a guest whose CPUs change (package podresize).
func (d *decision) resize() {
	switch {
	case !podresize.UnderWay(d.o.VMI):
		return
	case d.o.Resources == nil:
		d.p.Needs = NeedResources
		return
	}
	plan := podresize.Decide(d.o.VMI, d.o.Pod, *d.o.Resources)
	d.p.Resize, d.facts.VCPUs, d.noRoom = plan.Resize, vmistatus.Known(plan.Change), plan.Needs
}

// ResizeRefused notes on the VMI that its launcher pod can't have what its guest's change needs, in the API
// server's words.
func ResizeRefused(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements, cause error, now time.Time) *v1.VirtualMachineInstance {
	out := withoutItsSpec(vmi)
	out.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{Now: now, VCPUs: vmistatus.Known(podresize.Refused(want, cause))})
	return out
}
