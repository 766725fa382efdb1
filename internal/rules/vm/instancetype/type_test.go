package instancetype

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

// said formats refusals, one per line.
func said(errs field.ErrorList) string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

// Each field of a type, with the result, and a VM that sets the same, with the refused path.
var typeTable = map[string]struct{ typ, want, says, refused string }{
	"cpu.guest": {`{cpu: {guest: 4}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1}}}`, `{domain: {cpu: {cores: 2}}}`, "spec.template.spec.domain.cpu.cores"},
	"cpu.model": {`{cpu: {guest: 4, model: EPYC}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1, model: EPYC}}}`, `{domain: {cpu: {model: EPYC}}}`, "spec.template.spec.domain.cpu.model"},
	"cpu.dedicatedCPUPlacement": {`{cpu: {guest: 4, dedicatedCPUPlacement: true}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1, dedicatedCpuPlacement: true}}}`,
		`{domain: {cpu: {dedicatedCpuPlacement: true}}}`, "spec.template.spec.domain.cpu.dedicatedCpuPlacement"},
	"cpu.numa": {`{cpu: {guest: 4, numa: {guestMappingPassthrough: {}}}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1, numa: {guestMappingPassthrough: {}}}}}`,
		`{domain: {cpu: {numa: {}}}}`, "spec.template.spec.domain.cpu.numa"},
	"cpu.isolateEmulatorThread": {`{cpu: {guest: 4, isolateEmulatorThread: true}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1, isolateEmulatorThread: true}}}`,
		`{domain: {cpu: {isolateEmulatorThread: true}}}`, "spec.template.spec.domain.cpu.isolateEmulatorThread"},
	"cpu.realtime":   {`{cpu: {guest: 4, realtime: {mask: 0-1}}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1, realtime: {mask: 0-1}}}}`, `{domain: {cpu: {realtime: {}}}}`, "spec.template.spec.domain.cpu.realtime"},
	"cpu.maxSockets": {`{cpu: {guest: 4, maxSockets: 8}}`, `{domain: {cpu: {sockets: 4, cores: 1, threads: 1, maxSockets: 8}}}`, `{domain: {cpu: {maxSockets: 8}}}`, "spec.template.spec.domain.cpu.maxSockets"},
	"memory.guest":   {`{memory: {guest: 2Gi}}`, `{domain: {memory: {guest: 2Gi}}}`, `{domain: {memory: {guest: 2Gi}}}`, "spec.template.spec.domain.memory.guest"},
	"memory.hugepages": {`{memory: {guest: 2Gi, hugepages: {pageSize: 2Mi}}}`, `{domain: {memory: {guest: 2Gi, hugepages: {pageSize: 2Mi}}}}`,
		`{domain: {memory: {hugepages: {pageSize: 1Gi}}}}`, "spec.template.spec.domain.memory.hugepages"},
	"memory.overcommitPercent": {`{memory: {guest: 2Gi, overcommitPercent: 25}}`, `{domain: {memory: {guest: 2Gi}, resources: {requests: {memory: 1536Mi}}}}`,
		`{domain: {resources: {requests: {memory: 1Gi}}}}`, "spec.template.spec.domain.resources.requests.memory"},
	"memory.maxGuest": {`{memory: {guest: 2Gi, maxGuest: 4Gi}}`, `{domain: {memory: {guest: 2Gi, maxGuest: 4Gi}}}`, `{domain: {memory: {maxGuest: 4Gi}}}`, "spec.template.spec.domain.memory.maxGuest"},
	"gpus":            {`{gpus: [{name: g, deviceName: x}]}`, `{domain: {devices: {gpus: [{name: g, deviceName: x}]}}}`, `{domain: {devices: {gpus: [{name: h, deviceName: other}]}}}`, "spec.template.spec.domain.devices.gpus"},
	"hostDevices": {`{hostDevices: [{name: g, deviceName: x}]}`, `{domain: {devices: {hostDevices: [{name: g, deviceName: x}]}}}`,
		`{domain: {devices: {hostDevices: [{name: h, deviceName: other}]}}}`, "spec.template.spec.domain.devices.hostDevices"},
	"ioThreadsPolicy": {`{ioThreadsPolicy: auto}`, `{domain: {ioThreadsPolicy: auto}}`, `{domain: {ioThreadsPolicy: shared}}`, "spec.template.spec.domain.ioThreadsPolicy"},
	"ioThreads":       {`{ioThreads: {supplementalPoolThreadCount: 2}}`, `{domain: {ioThreads: {supplementalPoolThreadCount: 2}}}`, `{domain: {ioThreads: {}}}`, "spec.template.spec.domain.ioThreads"},
	"launchSecurity":  {`{launchSecurity: {sev: {}}}`, `{domain: {launchSecurity: {sev: {}}}}`, `{domain: {launchSecurity: {}}}`, "spec.template.spec.domain.launchSecurity"},
	"nodeSelector":    {`{nodeSelector: {a: b}}`, `{nodeSelector: {a: b}}`, `{nodeSelector: {c: d}}`, "spec.template.spec.nodeSelector"},
	"schedulerName":   {`{schedulerName: mine}`, `{schedulerName: mine}`, `{schedulerName: other}`, "spec.template.spec.schedulerName"},
}

func TestATypeAndAVMThatSaysTheSame(t *testing.T) {
	for name, c := range typeTable {
		t.Run(name, func(t *testing.T) {
			source := withDefaults(typeOf(t, c.typ))
			out, errs := Expand(vmOf(t, `{domain: {}}`), Used{Type: source}, "")
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := parse[v1.VirtualMachineInstanceSpec](t, c.want)
			complete(want)
			if diff := cmp.Diff(want, &out.Spec.Template.Spec); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			_, errs = Expand(vmOf(t, c.says), Used{Type: source}, "")
			line := c.refused + ": Forbidden: VM field(s) " + c.refused + " conflicts with selected instance type: the instance type t (VirtualMachineInstancetype) sets it; leave it out, or select another instance type"
			if got := said(errs); got != line {
				t.Errorf("got  %q\nwant %q", got, line)
			}
		})
	}
}

// withDefaults adds the CPUs and the memory that every type has.
func withDefaults(s *Source) *Source {
	if s.Type.CPU.Guest == 0 {
		s.Type.CPU.Guest = 1
	}
	if s.Type.Memory.Guest.IsZero() {
		s.Type.Memory.Guest.Set(1 << 30)
	}
	return s
}

// complete does so for the expected VM.
func complete(spec *v1.VirtualMachineInstanceSpec) {
	cpu, memory := need(&spec.Domain.CPU), need(&spec.Domain.Memory)
	if cpu.Sockets == 0 {
		cpu.Sockets, cpu.Cores, cpu.Threads = 1, 1, 1
	}
	if memory.Guest == nil {
		gib := parseQuantity("1Gi")
		memory.Guest = &gib
	}
}

// KubeVirt stores such types, and its clients send 0 for what they leave out.
func TestATypeWithoutCPUsOrMemory(t *testing.T) {
	for name, c := range map[string]struct{ typ, topology, want string }{
		"no CPUs":             {`{memory: {guest: 1Gi}}`, "", `{domain: {cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 1Gi}}}`},
		"no CPUs as cores":    {`{memory: {guest: 1Gi}}`, "cores", `{domain: {cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 1Gi}}}`},
		"no CPUs, spread":     {`{memory: {guest: 1Gi}}`, "spread", `{domain: {cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 1Gi}}}`},
		"no memory":           {`{cpu: {guest: 2}}`, "", `{domain: {cpu: {sockets: 2, cores: 1, threads: 1}, memory: {}}}`},
		"a part of no memory": {`{cpu: {guest: 2}, memory: {overcommitPercent: 15}}`, "", `{domain: {cpu: {sockets: 2, cores: 1, threads: 1}, memory: {}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			used := Used{Type: typeOf(t, c.typ)}
			if c.topology != "" {
				used.Preference = &Source{Kind: KindPreference, Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t, `{cpu: {preferredCPUTopology: `+c.topology+`}}`)}
			}
			out, errs := Expand(vmOf(t, `{domain: {}}`), used, "")
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(parse[v1.VirtualMachineInstanceSpec](t, c.want), &out.Spec.Template.Spec); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The first is the number of KubeVirt's own test; exact would be 114085068.
func TestOvercommittedMemoryIsRoundedAsInKubeVirt(t *testing.T) {
	for _, c := range []struct {
		memory  string
		percent int
		want    int64
	}{
		{"128Mi", 15, 114085072}, {"2Gi", 25, 1536 << 20}, {"1Gi", 100, 0}, {"1Gi", 1, 1063004416}, {"16Ti", 1, 17416264351744},
	} {
		if got := overcommitted(parseQuantity(c.memory), c.percent); got.Value() != c.want {
			t.Errorf("%s without %d%% is %d, want %d", c.memory, c.percent, got.Value(), c.want)
		}
	}
}

// A field that is new in the API module fails here.
func TestEveryFieldOfATypeIsTested(t *testing.T) {
	elsewhere := map[string]bool{"annotations": true}
	for _, part := range []struct {
		typ reflect.Type
		at  string
	}{
		{reflect.TypeFor[instancetypev1.VirtualMachineInstancetypeSpec](), ""},
		{reflect.TypeFor[instancetypev1.CPUInstancetype](), "cpu."},
		{reflect.TypeFor[instancetypev1.MemoryInstancetype](), "memory."},
	} {
		for i := range part.typ.NumField() {
			name, _, _ := strings.Cut(part.typ.Field(i).Tag.Get("json"), ",")
			if _, listed := typeTable[part.at+name]; !listed && !elsewhere[part.at+name] && name != "cpu" && name != "memory" {
				t.Errorf("nothing is tested of the field %s", part.at+name)
			}
		}
	}
}

func TestAllConflictsAreNamedAtOnce(t *testing.T) {
	source := typeOf(t, `{cpu: {guest: 2}, memory: {guest: 1Gi}, annotations: {a: type, b: type}}`)
	vm := vmOf(t, `{domain: {cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 1Gi}, resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}}}`)
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "mine", "b": "type"}
	_, errs := Expand(vm, Used{Type: source}, "")
	var paths []string
	for _, err := range errs {
		paths = append(paths, strings.TrimPrefix(err.Field, "spec.template."))
	}
	want := []string{"spec.domain.cpu.sockets", "spec.domain.cpu.cores", "spec.domain.cpu.threads", "spec.domain.resources.requests.cpu", "spec.domain.resources.limits.cpu",
		"spec.domain.memory.guest", "spec.domain.resources.limits.memory", "metadata.annotations[a]"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
}

func TestTopologies(t *testing.T) {
	for name, c := range map[string]struct {
		preference string
		vcpus      uint32
		want       [3]uint32
		refused    bool
	}{
		"none":                    {`{}`, 6, [3]uint32{6, 1, 1}, false},
		"sockets":                 {`{cpu: {preferredCPUTopology: sockets}}`, 6, [3]uint32{6, 1, 1}, false},
		"cores":                   {`{cpu: {preferredCPUTopology: cores}}`, 6, [3]uint32{1, 6, 1}, false},
		"threads":                 {`{cpu: {preferredCPUTopology: threads}}`, 6, [3]uint32{1, 1, 6}, false},
		"any":                     {`{cpu: {preferredCPUTopology: any}}`, 6, [3]uint32{6, 1, 1}, false},
		"its old name":            {`{cpu: {preferredCPUTopology: preferCores}}`, 6, [3]uint32{1, 6, 1}, false},
		"spread":                  {`{cpu: {preferredCPUTopology: spread}}`, 6, [3]uint32{3, 2, 1}, false},
		"spread by an old name":   {`{cpu: {preferredCPUTopology: preferSpread}, preferSpreadSocketToCoreRatio: 3}`, 6, [3]uint32{2, 3, 1}, false},
		"its ratio":               {`{cpu: {preferredCPUTopology: spread, spreadOptions: {ratio: 4}}, preferSpreadSocketToCoreRatio: 3}`, 8, [3]uint32{2, 4, 1}, false},
		"cores and threads":       {`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}}`, 6, [3]uint32{1, 3, 2}, false},
		"all three":               {`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads, ratio: 3}}}`, 12, [3]uint32{2, 3, 2}, false},
		"one CPU is not spread":   {`{cpu: {preferredCPUTopology: spread}}`, 1, [3]uint32{}, true},
		"nor five across threads": {`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}}`, 5, [3]uint32{}, true},
		"nor six across all":      {`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads}}}`, 6, [3]uint32{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			source := withDefaults(typeOf(t, `{}`))
			source.Type.CPU.Guest = c.vcpus
			preference := &Source{Kind: KindPreference, Name: "p", Preference: parse[instancetypev1.VirtualMachinePreferenceSpec](t, c.preference)}
			out, errs := Expand(vmOf(t, `{domain: {}}`), Used{Type: source, Preference: preference}, "")
			if c.refused {
				if !strings.Contains(said(errs), "spec.instancetype: Forbidden: the ") || !strings.Contains(said(errs), " vCPUs of the instance type t (VirtualMachineInstancetype) can't be spread as the preference p (VirtualMachinePreference) prefers it") {
					t.Errorf("got %q", said(errs))
				}
				return
			}
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			cpu := out.Spec.Template.Spec.Domain.CPU
			if got := [3]uint32{cpu.Sockets, cpu.Cores, cpu.Threads}; got != c.want {
				t.Errorf("sockets, cores, threads are %v, want %v", got, c.want)
			}
		})
	}
}

func TestTheExpandedVMRefersToNothing(t *testing.T) {
	vm := vmOf(t, `{domain: {}}`)
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "t"}
	before := vm.DeepCopy()
	out, errs := Expand(vm, Used{Type: withDefaults(typeOf(t, `{}`))}, "")
	if len(errs) > 0 || Refers(out) || !Refers(vm) {
		t.Errorf("%v, refers: %v, the VM itself: %v", errs, Refers(out), Refers(vm))
	}
	if diff := cmp.Diff(before, vm); diff != "" {
		t.Errorf("the VM itself was changed: %s", diff)
	}
}
