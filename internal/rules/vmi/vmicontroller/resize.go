package vmicontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func (d *decision) resize() {
	switch {
	case !podresize.UnderWay(d.o.VMI):
		return
	case d.o.Resources == nil:
		d.p.Needs = NeedResources
		return
	}
	plan := podresize.Decide(d.o.VMI, d.o.Pod, *d.o.Resources)
	d.p.Resize, d.noRoom = plan.Resize, plan.Needs
	d.facts.VCPUs, d.facts.Memory = vmistatus.Known(plan.CPUs), vmistatus.Known(plan.Memory)
}

// ResizeRefused returns the VMI with the API server's reason against the resize of its pod.
func ResizeRefused(vmi *v1.VirtualMachineInstance, want corev1.ResourceRequirements, cause error, now time.Time) *v1.VirtualMachineInstance {
	out, says := withoutItsSpec(vmi), podresize.Refused(vmi, want, cause)
	out.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{
		Now: now, VCPUs: vmistatus.Known(says.CPUs), Memory: vmistatus.Known(says.Memory),
	})
	return out
}
