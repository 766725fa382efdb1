package vmihandler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

const mebibyte = 1 << 20

// The guest was started with 256Mi, has room for 1Gi, wants 512Mi, and was given that.
func memoryVMI(edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("512Mi")), MaxGuest: new(resource.MustParse("1Gi"))}
	vmi.Status.Memory = &v1.MemoryStatus{
		GuestAtBoot: new(resource.MustParse("256Mi")), GuestCurrent: new(resource.MustParse("256Mi")), GuestRequested: new(resource.MustParse("512Mi")),
	}
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceMemoryChange, Status: corev1.ConditionTrue}}
	for _, edit := range edits {
		edit(vmi)
	}
	return vmi
}

func TestWhenMemoryIsGiven(t *testing.T) {
	memory := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}}
	}
	podHas := func(text string) *Pod { return &Pod{Resources: new(memory(text))} }
	unannounced := func(vmi *v1.VirtualMachineInstance) { vmi.Status.Conditions = nil }
	migrating := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	}
	told := func(text string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) { vmi.Status.Memory.GuestRequested = new(resource.MustParse(text)) }
	}
	untold := func(vmi *v1.VirtualMachineInstance) { vmi.Status.Memory.GuestRequested = nil }
	unsaid := func(vmi *v1.VirtualMachineInstance) { vmi.Status.Memory = nil }
	bootUnsaid := func(vmi *v1.VirtualMachineInstance) { vmi.Status.Memory.GuestAtBoot = nil }
	given := func(mi int64) Memory { return Memory{Known: true, Requested: mi * mebibyte} }
	set := func(mi, to int64) MemoryStep { return MemoryStep{Given: mi * mebibyte, Set: true, To: to * mebibyte} }
	only := func(mi int64) MemoryStep { return MemoryStep{Given: mi * mebibyte} }
	for name, test := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		has   Memory
		state string
		pod   *Pod
		want  MemoryStep
	}{
		"more, and the pod has it":             {memoryVMI(), given(0), "running", podHas("600Mi"), set(256, 256)},
		"more, which is said first":            {memoryVMI(told("256Mi")), given(0), "running", podHas("600Mi"), only(256)},
		"more than was said":                   {memoryVMI(told("511Mi")), given(0), "running", podHas("600Mi"), only(256)},
		"less than was said, and more":         {memoryVMI(told("600Mi")), given(0), "running", podHas("600Mi"), set(256, 256)},
		"more, and nothing is said":            {memoryVMI(untold), given(0), "running", podHas("600Mi"), only(256)},
		"more, and the pod does not have it":   {memoryVMI(), given(0), "running", podHas("599Mi"), only(0)},
		"more, and there is no pod":            {memoryVMI(), given(0), "running", nil, only(0)},
		"a block more":                         {memoryVMI(), given(254), "running", podHas("600Mi"), set(256, 256)},
		"less":                                 {memoryVMI(), given(512), "running", podHas("1Mi"), set(512, 256)},
		"less, without a pod":                  {memoryVMI(), given(258), "running", nil, set(258, 256)},
		"as much":                              {memoryVMI(), given(256), "running", podHas("600Mi"), only(256)},
		"QEMU has not said":                    {memoryVMI(), Memory{Requested: 512 * mebibyte}, "running", podHas("600Mi"), only(512)},
		"before it is announced":               {memoryVMI(unannounced), given(0), "running", podHas("600Mi"), only(0)},
		"less, before it is announced":         {memoryVMI(unannounced), given(512), "running", podHas("600Mi"), only(512)},
		"the VMI says nothing of memory":       {memoryVMI(unsaid), given(0), "running", podHas("600Mi"), only(0)},
		"the VMI does not say what it was":     {memoryVMI(bootUnsaid), given(2), "running", podHas("600Mi"), set(2, 0)},
		"a guest that is paused":               {memoryVMI(), given(0), "paused", podHas("600Mi"), only(0)},
		"a guest that is paused, and has more": {memoryVMI(), given(512), "paused", podHas("600Mi"), only(512)},
		"a guest that is migrated":             {memoryVMI(migrating), given(0), "running", podHas("600Mi"), only(0)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DecideMemory(test.vmi, test.has, test.state, test.pod, memory("600Mi")); got != test.want {
				t.Errorf("it decides %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestWhichGuestsHaveRoomForMemory(t *testing.T) {
	full := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Memory.MaxGuest = vmi.Status.Memory.GuestAtBoot }
	grown := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Memory.Guest, vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse("512Mi")), new(resource.MustParse("512Mi"))
	}
	starting := func(vmi *v1.VirtualMachineInstance) { grown(vmi); vmi.Status.Memory = nil }
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		room bool
	}{
		"room":                          {memoryVMI(), true},
		"none":                          {memoryVMI(full), false},
		"room that is full":             {memoryVMI(grown), true},
		"none, and it has not started":  {memoryVMI(starting), false},
		"a VMI that says nothing of it": {&v1.VirtualMachineInstance{}, false},
	} {
		if got := CanChangeMemory(test.vmi); got != test.room {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheStatusSaysWhatMemoryTheGuestHas(t *testing.T) {
	overhead := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Memory.MemoryOverhead = new(resource.MustParse("7Mi"))
	}
	vmi := memoryVMI(overhead)
	if got := memoryStatus(vmi, &Guest{Memory: Memory{Requested: 1}}); got != nil {
		t.Errorf("QEMU has not said, and the status says %+v", got)
	}
	if got := memoryStatus(memoryVMI(func(vmi *v1.VirtualMachineInstance) { vmi.Status.Memory = nil }), &Guest{Memory: Memory{Known: true, Size: mebibyte}}); got.GuestCurrent.String() != "512Mi" {
		t.Errorf("nothing was said, and the status says %+v", got)
	}
	got := memoryStatus(vmi, &Guest{Memory: Memory{Known: true, Requested: 300 * mebibyte, Size: 128 * mebibyte}, MemoryGiven: 256 * mebibyte})
	if got.GuestAtBoot.String() != "256Mi" || got.GuestCurrent.String() != "384Mi" || got.GuestRequested.String() != "512Mi" || got.MemoryOverhead.String() != "7Mi" {
		t.Errorf("the status says %+v", got)
	}
	if vmi.Status.Memory.GuestCurrent.String() != "256Mi" {
		t.Error("the VMI has been changed")
	}
}

func TestWhichGuestsLoseWrites(t *testing.T) {
	for name, test := range map[string]struct {
		kvm  bool
		has  Memory
		want bool
	}{
		"nothing plugged":         {false, Memory{}, false},
		"given":                   {false, Memory{Requested: 1}, true},
		"taken":                   {false, Memory{Size: 1}, true},
		"given and taken, by KVM": {true, Memory{Requested: 1, Size: 1}, false},
	} {
		if got := LosesWrites(test.kvm, test.has); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
