package launcherpod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhatAPodIsToHaveWhenItsGuestChanges(t *testing.T) {
	guest := func(edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("256Mi"))}
		vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, MaxSockets: 4}
		for _, edit := range edits {
			edit(vmi)
		}
		return vmi
	}
	has := func(sockets uint32) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: sockets, Cores: 1, Threads: 1}
		}
	}
	limited := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi"), "example.com/device": resource.MustParse("1")}
	}
	for name, test := range map[string]struct {
		vmi                *v1.VirtualMachineInstance
		cpu, memory, limit string
	}{
		"nothing is known of the guest": {guest(), "200m", "363Mi", "0"},
		"it has fewer":                  {guest(has(1)), "200m", "363Mi", "0"},
		"it has as many":                {guest(has(2)), "200m", "363Mi", "0"},
		"it has more":                   {guest(has(3)), "300m", "367Mi", "0"},
		"it has more, and names none":   {guest(has(3), func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.CPU = nil }), "300m", "367Mi", "0"},
		"its memory has a limit":        {guest(has(3), limited), "300m", "367Mi", "623Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.vmi.DeepCopy()
			got, err := Resized(test.vmi, hardware)
			if err != nil {
				t.Fatal(err)
			}
			if got.Requests.Cpu().String() != test.cpu || got.Requests.Memory().String() != test.memory || got.Limits.Memory().String() != test.limit {
				t.Errorf("it is to have %v of %v", got.Requests, got.Limits)
			}
			if len(got.Requests) != 2 || len(got.Limits) > 1 {
				t.Errorf("what can't be resized is in it: %v of %v", got.Requests, got.Limits)
			}
			if before.Spec.Domain.CPU != nil && before.Spec.Domain.CPU.Sockets != test.vmi.Spec.Domain.CPU.Sockets {
				t.Error("the VMI has been changed")
			}
		})
	}
	if _, err := Resized(&v1.VirtualMachineInstance{}, hardware); err == nil {
		t.Error("a guest without memory has a pod")
	}
}
