package vmihandler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func cpuVMI(edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 3, Cores: 2, MaxSockets: 4}
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue}}
	for _, edit := range edits {
		edit(vmi)
	}
	return vmi
}

func TestWhenCPUsArePlugged(t *testing.T) {
	cpu := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
	}
	has := func(text string) *Pod { return &Pod{Resources: new(cpu(text))} }
	unannounced := func(vmi *v1.VirtualMachineInstance) { vmi.Status.Conditions = nil }
	noRoom := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.CPU.MaxSockets = 0 }
	migrating := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	}
	for name, test := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		has   int
		state string
		pod   *Pod
		want  int
		// emulated means that QEMU runs without KVM.
		emulated bool
	}{
		"more, emulated":                  {vmi: cpuVMI(), has: 2, state: "running", pod: has("3"), want: 6, emulated: true},
		"fewer, emulated":                 {vmi: cpuVMI(), has: 8, state: "running", pod: has("3"), emulated: true},
		"more, and the pod has it":        {vmi: cpuVMI(), has: 2, state: "running", pod: has("3"), want: 6},
		"more, and the pod does not":      {vmi: cpuVMI(), has: 2, state: "running", pod: has("2999m"), want: 0},
		"more, and there is no pod":       {vmi: cpuVMI(), has: 2, state: "running", pod: nil, want: 0},
		"one more, of a socket":           {vmi: cpuVMI(), has: 5, state: "running", pod: has("3"), want: 6},
		"fewer":                           {vmi: cpuVMI(), has: 8, state: "running", pod: has("1"), want: 6},
		"fewer, without a pod":            {vmi: cpuVMI(), has: 7, state: "running", pod: nil, want: 6},
		"as many":                         {vmi: cpuVMI(), has: 6, state: "running", pod: has("3"), want: 0},
		"how many there are is not known": {vmi: cpuVMI(), has: 0, state: "running", pod: has("3"), want: 0},
		"before it is announced":          {vmi: cpuVMI(unannounced), has: 2, state: "running", pod: has("3"), want: 0},
		"fewer, before it is announced":   {vmi: cpuVMI(unannounced), has: 8, state: "running", pod: has("3"), want: 0},
		"a guest without room":            {vmi: cpuVMI(noRoom), has: 2, state: "running", pod: has("3"), want: 0},
		"a guest that is paused":          {vmi: cpuVMI(), has: 2, state: "paused", pod: has("3"), want: 0},
		"a guest that is migrated":        {vmi: cpuVMI(migrating), has: 2, state: "running", pod: has("3"), want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := WantedCPUs(test.vmi, test.has, test.state, !test.emulated, test.pod, cpu("3")); got != test.want {
				t.Errorf("%d CPUs are wanted, want %d", got, test.want)
			}
		})
	}
	if CanChangeCPUs(&v1.VirtualMachineInstance{}) || CanChangeCPUs(cpuVMI(noRoom)) || !CanChangeCPUs(cpuVMI()) {
		t.Error("whether a guest has room is not known")
	}
}

func TestTheTopologyIsWhatQEMUHas(t *testing.T) {
	told := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: 2, Cores: 2, Threads: 1}
	}
	fixed := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.CPU.MaxSockets = 0 }
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		has  int
		want uint32
	}{
		"it has not said, and nothing was told": {cpuVMI(), 0, 3},
		"it has not said, and something was":    {cpuVMI(told), 0, 2},
		"it is not asked":                       {cpuVMI(told, fixed), 0, 3},
		"as many":                               {cpuVMI(told), 6, 3},
		"fewer":                                 {cpuVMI(told), 2, 1},
		"a part of a socket that comes":         {cpuVMI(told), 5, 2},
		"a part of the first socket":            {cpuVMI(told), 1, 1},
		"more":                                  {cpuVMI(told), 8, 4},
		"a part of a socket that goes":          {cpuVMI(told), 7, 4},
	} {
		t.Run(name, func(t *testing.T) {
			if got := *topology(test.vmi, test.has); got != (v1.CPUTopology{Sockets: test.want, Cores: 2, Threads: 1}) {
				t.Errorf("it says %+v, want %d sockets", got, test.want)
			}
		})
	}
}
