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
	memory := func(most, current, requested string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			if most != "" {
				vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse(most))
			}
			vmi.Status.Memory = &v1.MemoryStatus{}
			if current != "" {
				vmi.Status.Memory.GuestCurrent = new(resource.MustParse(current))
			}
			if requested != "" {
				vmi.Status.Memory.GuestRequested = new(resource.MustParse(requested))
			}
		}
	}
	for name, test := range map[string]struct {
		vmi                *v1.VirtualMachineInstance
		cpu, memory, limit string
	}{
		"nothing is known of the guest":           {guest(), "200m", "369Mi", "0"},
		"it has fewer":                            {guest(has(1)), "200m", "369Mi", "0"},
		"it has as many":                          {guest(has(2)), "200m", "369Mi", "0"},
		"it has more":                             {guest(has(3)), "300m", "373Mi", "0"},
		"it has more, and names none":             {guest(has(3), func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.CPU = nil }), "300m", "373Mi", "0"},
		"it has less memory":                      {guest(memory("512Mi", "128Mi", "128Mi")), "200m", "370Mi", "0"},
		"it has more memory":                      {guest(memory("512Mi", "512Mi", "256Mi")), "200m", "626Mi", "0"},
		"it may take more memory":                 {guest(memory("512Mi", "256Mi", "512Mi")), "200m", "626Mi", "0"},
		"it has more than it may take":            {guest(memory("1Gi", "512Mi", "384Mi")), "200m", "627Mi", "0"},
		"it may take more than it has":            {guest(memory("1Gi", "384Mi", "512Mi")), "200m", "627Mi", "0"},
		"nothing is known of memory":              {guest(memory("512Mi", "", "")), "200m", "370Mi", "0"},
		"it has no room for memory":               {guest(memory("", "512Mi", "512Mi")), "200m", "369Mi", "0"},
		"room costs its bitmaps":                  {guest(memory("8448Mi", "", "")), "200m", "371Mi", "0"},
		"its memory has a limit, and it has more": {guest(limited, memory("512Mi", "512Mi", "256Mi")), "200m", "626Mi", "626Mi"},
		"its memory has a limit":                  {guest(has(3), limited), "300m", "373Mi", "629Mi"},
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

// TestATargetPodHasRoomForAllThatItsGuestHas: more than in the spec, while the guest has not released it.
func TestATargetPodHasRoomForAllThatItsGuestHas(t *testing.T) {
	vmi := vmiWith("domain: {memory: {guest: 256Mi, maxGuest: 512Mi}, cpu: {sockets: 2, maxSockets: 4}}")
	vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: 3, Cores: 1, Threads: 1}
	vmi.Status.Memory = &v1.MemoryStatus{GuestCurrent: new(resource.MustParse("512Mi"))}
	pod, err := RenderTarget(vmi, Target{Migration: "m", SourceNode: "node1"}, hardware, "launcher:1", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if asks := pod.Spec.Containers[0].Resources.Requests; asks.Cpu().String() != "300m" || asks.Memory().String() != "630Mi" {
		t.Errorf("it is to have %v", asks)
	}
}
