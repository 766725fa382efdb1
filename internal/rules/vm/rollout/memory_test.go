package rollout

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
)

func guestMemory(size string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Memory.Guest = new(resource.MustParse(size)) }
}

func mostMemory(size string) specEdit {
	return func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Memory.MaxGuest = new(resource.MustParse(size)) }
}

func noMemory(s *v1.VirtualMachineInstanceSpec) { s.Domain.Memory = nil }

func hugepages(s *v1.VirtualMachineInstanceSpec) {
	s.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
}

func TestWhichWayMemoryReachesTheGuest(t *testing.T) {
	live := []Change{{memoryPath, Live, ReasonMemory}}
	restart := func(why string) []Change { return []Change{{memoryPath, Restart, why}} }
	four := []specEdit{mostMemory("4Gi")}
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		phase    v1.VirtualMachineInstancePhase
		// has is only in the VMI, and wants only in the template.
		both, has, wants []specEdit
		// boot is the guest's memory at its start; "" if it is not in the status.
		boot string
		want []Change
	}{
		"more":                              {boot: "1Gi", has: four, wants: []specEdit{guestMemory("2Gi")}, want: live},
		"a block more":                      {boot: "1Gi", has: four, wants: []specEdit{guestMemory("1026Mi")}, want: live},
		"as much as there is room for":      {boot: "1Gi", has: four, wants: []specEdit{guestMemory("4Gi")}, want: live},
		"a block too much":                  {boot: "1Gi", has: four, wants: []specEdit{guestMemory("4098Mi")}, want: restart(ReasonNoMemory)},
		"less":                              {boot: "1Gi", has: []specEdit{mostMemory("4Gi"), guestMemory("3Gi")}, wants: []specEdit{guestMemory("2Gi")}, want: live},
		"what it was started with":          {boot: "1Gi", has: []specEdit{mostMemory("4Gi"), guestMemory("3Gi")}, want: live},
		"less than that":                    {boot: "1Gi", has: []specEdit{mostMemory("4Gi"), guestMemory("3Gi")}, wants: []specEdit{guestMemory("1022Mi")}, want: restart(ReasonBootMemory)},
		"as much as it has, otherwise said": {boot: "1Gi", has: four, wants: []specEdit{guestMemory("1024Mi")}},
		"half a block":                      {boot: "1Gi", has: four, wants: []specEdit{guestMemory("1025Mi")}, want: restart(ReasonMemoryBlock)},
		"what was started is not said":      {has: four, wants: []specEdit{guestMemory("2Gi")}, want: live},
		"with Stage":                        {strategy: stage, boot: "1Gi", has: four, wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonStaged)},
		"before the guest runs":             {phase: v1.Scheduled, has: four, wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonNotRunning)},
		"a guest that was left no room":     {boot: "1Gi", wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonNoMemory)},
		"a template with room of its own":   {boot: "1Gi", both: four, wants: []specEdit{guestMemory("2Gi")}, want: live},
		"more room":                         {boot: "1Gi", has: four, wants: []specEdit{mostMemory("8Gi")}, want: []Change{{templatePath + ".domain.memory.maxGuest", Restart, ReasonMachine}}},
		"hugepages":                         {boot: "1Gi", both: []specEdit{hugepages}, has: four, wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonHugepages)},
		"dedicated CPUs":                    {boot: "1Gi", both: []specEdit{dedicated}, has: four, wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonPinned)},
		"a memory request":                  {boot: "1Gi", both: []specEdit{named(requests, corev1.ResourceMemory)}, has: four, wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonNamedMemory)},
		"a memory limit":                    {boot: "1Gi", both: []specEdit{named(limits, corev1.ResourceMemory)}, has: four, wants: []specEdit{guestMemory("2Gi")}, want: restart(ReasonNamedMemory)},
		"a CPU request":                     {boot: "1Gi", both: []specEdit{named(requests, corev1.ResourceCPU)}, has: four, wants: []specEdit{guestMemory("2Gi")}, want: live},
		"what the template is to have": {boot: "1Gi", has: four, wants: []specEdit{guestMemory("2Gi"), hugepages}, want: []Change{
			{memoryPath, Restart, ReasonHugepages}, {templatePath + ".domain.memory.hugepages", Restart, ReasonMachine},
		}},
		"none named any more": {boot: "1Gi", has: four, wants: []specEdit{noMemory}, want: restart(ReasonBootMemory)},
	} {
		t.Run(name, func(t *testing.T) {
			in := differing(test.strategy, test.phase, test.both, test.has, test.wants)
			if test.boot != "" {
				in.VMI.Status.Memory = &v1.MemoryStatus{GuestAtBoot: new(resource.MustParse(test.boot))}
			}
			changes(t, in, test.want)
		})
	}
}

// TestMemoryThatResourcesSayIsTheirChange: a template without guest memory must not get a message about that field.
func TestMemoryThatResourcesSayIsTheirChange(t *testing.T) {
	by := func(size string) specEdit {
		return func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Memory = nil
			s.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(size)}
		}
	}
	in := Input{Strategy: liveUpdate, VMName: "vm", Started: spec(by("1Gi")), VMI: machineOf(v1.Running, spec(by("1Gi"))), Template: spec(by("2Gi"))}
	in.Plugged = in.Template
	want := []Change{{templatePath + ".domain.resources.requests.memory", Restart, ReasonMachine}}
	if got := Compare(in); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", text(got), text(want))
	}
	in.Started = nil
	if got := Compare(in); len(got) != 0 {
		t.Errorf("got\n%s", text(got))
	}
}

func TestAGuestIsStartedWithRoomForMemory(t *testing.T) {
	ratio := clusterconfig.LiveUpdate{MaxHotplugRatio: 4}
	most := func(size string) clusterconfig.LiveUpdate {
		return clusterconfig.LiveUpdate{MaxHotplugRatio: 4, MaxGuest: new(resource.MustParse(size)).Value()}
	}
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		limits   clusterconfig.LiveUpdate
		edits    []specEdit
		want     string
	}{
		"four times what it has":           {limits: ratio, want: "4Gi"},
		"another ratio":                    {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 2}, want: "2Gi"},
		"no ratio":                         {want: ""},
		"a ratio of one":                   {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 1}, want: ""},
		"the cluster's limit":              {limits: most("6Gi"), want: "6Gi"},
		"a limit of what it has":           {limits: most("1Gi"), want: ""},
		"a limit below what it has":        {limits: most("512Mi"), want: ""},
		"a small guest":                    {limits: ratio, edits: []specEdit{guestMemory("1023Mi")}, want: ""},
		"a small guest, with a limit":      {limits: most("6Gi"), edits: []specEdit{guestMemory("1023Mi")}, want: ""},
		"what the template says":           {limits: ratio, edits: []specEdit{mostMemory("3Gi")}, want: "3Gi"},
		"what a small guest says":          {limits: ratio, edits: []specEdit{guestMemory("256Mi"), mostMemory("512Mi")}, want: "512Mi"},
		"a large guest":                    {limits: ratio, edits: []specEdit{guestMemory("200Gi")}, want: "512Gi"},
		"as large as can be":               {limits: ratio, edits: []specEdit{guestMemory("512Gi")}, want: ""},
		"larger":                           {limits: ratio, edits: []specEdit{guestMemory("8Ei")}, want: ""},
		"both as large as can be":          {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 1<<32 - 1}, edits: []specEdit{guestMemory("511Gi")}, want: "512Gi"},
		"a ratio that can't be reached":    {limits: clusterconfig.LiveUpdate{MaxHotplugRatio: 1<<32 - 1}, want: "512Gi"},
		"a limit that can't be":            {limits: most("8Ei"), want: "512Gi"},
		"with Stage":                       {strategy: stage, limits: ratio, want: ""},
		"one whose memory is of hugepages": {limits: ratio, edits: []specEdit{hugepages}, want: ""},
		"one whose request is named":       {limits: ratio, edits: []specEdit{named(requests, corev1.ResourceMemory)}, want: ""},
		"one that says nothing of memory":  {limits: ratio, edits: []specEdit{noMemory}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			strategy := test.strategy
			if strategy == "" {
				strategy = liveUpdate
			}
			s := spec(test.edits...)
			before := machine.GuestMemory(s)
			Prepare(s, strategy, test.limits)
			got := ""
			if m := s.Domain.Memory; m != nil && m.MaxGuest != nil {
				got = m.MaxGuest.String()
			}
			if got != test.want || machine.GuestMemory(s) != before {
				t.Errorf("there is room for %q, want %q", got, test.want)
			}
		})
	}
}

// The release before computed 114085068 for 128Mi without 15 %; its guests need no restart for that.
func TestARequestThatIsRoundedDifferentlyNeedsNoRestart(t *testing.T) {
	requesting := func(bytes int64) specEdit {
		return func(s *v1.VirtualMachineInstanceSpec) {
			s.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI)}
		}
	}
	differs := []Change{{templatePath + ".domain.resources.requests.memory", Restart, ReasonMachine}}
	for name, test := range map[string]struct {
		before, after int64
		want          []Change
	}{
		"rounded up":   {114085068, 114085072, nil},
		"rounded down": {114085072, 114085068, nil},
		"the same":     {1 << 30, 1 << 30, nil},
		"a page more":  {1 << 30, 1<<30 + 4096, differs},
		"a Mi less":    {1 << 30, 1<<30 - 1<<20, differs},
		"none before":  {0, 1, differs},
	} {
		t.Run(name, func(t *testing.T) {
			started := spec(requesting(test.before))
			in := Input{Strategy: liveUpdate, Started: started, VMI: &v1.VirtualMachineInstance{Spec: *started.DeepCopy()}, Template: spec(requesting(test.after))}
			in.VMI.Status.Phase = v1.Running
			in.Plugged = in.Template
			if got := Compare(in); !slices.Equal(got, test.want) {
				t.Errorf("%d after %d: %v, want %v", test.after, test.before, got, test.want)
			}
			if is := started.Domain.Resources.Requests[corev1.ResourceMemory]; is.Value() != test.before {
				t.Errorf("the template of the start was changed to %d", is.Value())
			}
		})
	}
}
