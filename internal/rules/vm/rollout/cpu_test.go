package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func room(most uint32) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.MaxSockets = most }
}

func withSockets(n uint32) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Sockets = n }
}

func cores(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Cores = 2 }

func noCPU(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU = nil }

func named(list func(*v1.ResourceRequirements) *corev1.ResourceList, name corev1.ResourceName) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) {
		*list(&s.Domain.Resources) = corev1.ResourceList{name: resource.MustParse("1")}
	}
}

func requests(r *v1.ResourceRequirements) *corev1.ResourceList { return &r.Requests }
func limits(r *v1.ResourceRequirements) *corev1.ResourceList   { return &r.Limits }

func dedicated(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.DedicatedCPUPlacement = true }
func numa(s *v1.VirtualMachineInstanceSpec)      { s.Domain.CPU.NUMA = &v1.NUMA{} }
func realtime(s *v1.VirtualMachineInstanceSpec)  { s.Domain.CPU.Realtime = &v1.Realtime{} }

func netQueues(on bool) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.NetworkInterfaceMultiQueue = &on }
}

func diskQueues(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.BlockMultiQueue = new(true) }

func TestWhichWaySocketsReachTheGuest(t *testing.T) {
	live := []Change{{socketsPath, Live, ReasonCPUs}}
	restart := func(why string) []Change { return []Change{{socketsPath, Restart, why}} }
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		phase    v1.VirtualMachineInstancePhase
		// has is only in the VMI, and wants only in the template.
		both, has, wants []specEdit
		// runs is the guest's number of sockets, 0 if unknown; kvm means that it is not emulated.
		runs uint32
		kvm  bool
		want []Change
	}{
		"more":                            {has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: live},
		"as many as there is room for":    {has: []specEdit{room(4)}, wants: []specEdit{withSockets(4)}, want: live},
		"one too many":                    {has: []specEdit{room(4)}, wants: []specEdit{withSockets(5)}, want: restart(ReasonNoSocket)},
		"fewer":                           {kvm: true, has: []specEdit{room(4), withSockets(3)}, wants: []specEdit{withSockets(2)}, want: live},
		"fewer, emulated":                 {runs: 3, has: []specEdit{room(4), withSockets(3)}, wants: []specEdit{withSockets(2)}, want: restart(ReasonEmulated)},
		"fewer than were to come":         {runs: 2, has: []specEdit{room(4), withSockets(3)}, wants: []specEdit{withSockets(2)}, want: live},
		"as many as it has":               {has: []specEdit{room(4), withSockets(3)}, wants: []specEdit{withSockets(3)}},
		"none named is one":               {has: []specEdit{room(4), withSockets(2)}, wants: []specEdit{noCPU}, want: live},
		"none named by either":            {has: []specEdit{room(4)}, wants: []specEdit{noCPU}},
		"with Stage":                      {strategy: stage, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonStaged)},
		"before the guest runs":           {phase: v1.Scheduled, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonNotRunning)},
		"cores":                           {has: []specEdit{room(4)}, wants: []specEdit{cores}, want: []Change{{templatePath + ".domain.cpu.cores", Restart, ReasonMachine}}},
		"dedicated CPUs":                  {both: []specEdit{dedicated}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonPinned)},
		"a NUMA topology":                 {both: []specEdit{numa}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonPinned)},
		"real time":                       {both: []specEdit{realtime}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonPinned)},
		"queues of interfaces":            {both: []specEdit{netQueues(true)}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonQueues)},
		"interfaces of one queue":         {both: []specEdit{netQueues(false)}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: live},
		"queues of disks":                 {both: []specEdit{diskQueues}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonQueues)},
		"a CPU request":                   {both: []specEdit{named(requests, corev1.ResourceCPU)}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonNamedCPU)},
		"a CPU limit":                     {both: []specEdit{named(limits, corev1.ResourceCPU)}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: restart(ReasonNamedCPU)},
		"a request of memory":             {both: []specEdit{named(requests, corev1.ResourceMemory)}, has: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: live},
		"what the template is to have":    {has: []specEdit{room(4)}, wants: []specEdit{withSockets(3), diskQueues}, want: []Change{{socketsPath, Restart, ReasonQueues}, {templatePath + ".domain.devices.blockMultiQueue", Restart, ReasonMachine}}},
		"a guest that was left no room":   {wants: []specEdit{withSockets(3)}, want: restart(ReasonNoSocket)},
		"a template with room of its own": {both: []specEdit{room(4)}, wants: []specEdit{withSockets(3)}, want: live},
	} {
		t.Run(name, func(t *testing.T) {
			in := differing(test.strategy, test.phase, test.both, test.has, test.wants)
			if test.runs > 0 {
				in.VMI.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: test.runs}
			}
			if test.kvm {
				in.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: vmistatus.Accelerated, Status: corev1.ConditionTrue}}
			}
			changes(t, in, test.want)
		})
	}
}

func TestAGuestIsStartedWithRoom(t *testing.T) {
	ratio := clusterconfig.LiveUpdate{MaxHotplugRatio: 4}
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		limits   clusterconfig.LiveUpdate
		edits    []specEdit
		want     uint32
	}{
		"four times what it has":         {limits: ratio, edits: []specEdit{withSockets(2)}, want: 8},
		"a guest that names no CPUs":     {limits: ratio, edits: []specEdit{noCPU}, want: 4},
		"cores count":                    {limits: ratio, edits: []specEdit{withSockets(0), cores}, want: 4},
		"another ratio":                  {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 2}, want: 2},
		"no room":                        {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 1}, want: 1},
		"the cluster's limit":            {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 4, MaxCPUSockets: 6}, edits: []specEdit{withSockets(2)}, want: 6},
		"a limit below what it has":      {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 4, MaxCPUSockets: 1}, edits: []specEdit{withSockets(2)}, want: 2},
		"as many CPUs as there can be":   {limits: ratio, edits: []specEdit{withSockets(64)}, want: 255},
		"cores that leave less":          {limits: ratio, edits: []specEdit{withSockets(40), cores}, want: 127},
		"cores and threads that do":      {limits: ratio, edits: []specEdit{withSockets(40), cores, func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Threads = 2 }}, want: 63},
		"more than there can be":         {limits: ratio, edits: []specEdit{withSockets(128), cores}, want: 128},
		"a limit that can't be reached":  {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 1 << 31, MaxCPUSockets: 1 << 31}, edits: []specEdit{withSockets(2)}, want: 255},
		"what the template says":         {limits: ratio, edits: []specEdit{room(3)}, want: 3},
		"with Stage":                     {strategy: stage, limits: ratio, want: 0},
		"one that could not use it":      {limits: ratio, edits: []specEdit{diskQueues}, want: 0},
		"one whose CPU request is named": {limits: ratio, edits: []specEdit{named(requests, corev1.ResourceCPU)}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			strategy := test.strategy
			if strategy == "" {
				strategy = liveUpdate
			}
			s := spec(test.edits...)
			Prepare(s, strategy, test.limits)
			var got uint32
			if s.Domain.CPU != nil {
				got = s.Domain.CPU.MaxSockets
			}
			if got != test.want {
				t.Errorf("there is room for %d sockets, want %d", got, test.want)
			}
		})
	}
}
