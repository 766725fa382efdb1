package machine

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestAGuestIsStartedWithRoomForMemory(t *testing.T) {
	const (
		device  = `-device {"addr":"0xa","block-size":2097152,"bus":"pcie.0","driver":"virtio-mem-pci","id":"memory0","memdev":"ram1","requested-size":0}`
		backend = `-object {"id":"ram1","qom-type":"memory-backend-ram","reserve":false,"size":`
	)
	for name, test := range map[string]struct {
		memory string
		boot   int64
		kvm    bool
		has    []string
		not    []string
	}{
		"no room":                          {memory: "{guest: 256Mi}", kvm: true, has: []string{"-m size=262144k\n"}, not: []string{"ram1", "virtio-mem", "maxmem"}},
		"room for what it has":             {memory: "{guest: 256Mi, maxGuest: 256Mi}", kvm: true, has: []string{"-m size=262144k\n"}, not: []string{"ram1", "virtio-mem", "maxmem"}},
		"less than a block":                {memory: "{guest: 256Mi, maxGuest: 257Mi}", kvm: true, has: []string{"-m size=262144k\n"}, not: []string{"ram1"}},
		"a block, in a whole one of Linux": {memory: "{guest: 256Mi, maxGuest: 258Mi}", kvm: true, has: []string{"-m size=262144k,maxmem=393216k\n", device, backend + "134217728}"}},
		"as much as it has":                {memory: "{guest: 256Mi, maxGuest: 512Mi}", kvm: true, has: []string{"-m size=262144k,maxmem=524288k\n", device, backend + "268435456}"}},
		"emulated":                         {memory: "{guest: 256Mi, maxGuest: 512Mi}", has: []string{"-m size=262152k,maxmem=524296k\n", device, backend + "268435456}"}},
		"a guest that arrives":             {memory: "{guest: 384Mi, maxGuest: 512Mi}", boot: 256 << 20, kvm: true, has: []string{"-m size=262144k,maxmem=524288k\n", `"id":"ram0","qom-type":"memory-backend-ram","size":268435456}`, backend + "268435456}"}},
		"hugepages":                        {memory: "{guest: 4Mi, maxGuest: 512Mi, hugepages: {pageSize: 2Mi}}", kvm: true, has: []string{"-m size=4096k\n"}, not: []string{"ram1"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := prepared(parseDomain(t, "memory: "+test.memory))
			in.KVM, in.Memory = test.kvm, test.boot
			checkArgs(t, in, test.has, test.not)
		})
	}
}

// TestRoomMovesNoDevice compares the addresses of a guest's devices with and without room for memory.
func TestRoomMovesNoDevice(t *testing.T) {
	places := func(memory string) map[string]string {
		vmi := parseDomain(t, "memory: "+memory+"\ndevices: {rng: {}, interfaces: [{name: a}], watchdog: {name: dog, i6300esb: {action: reset}}}")
		m, err := Build(prepared(vmi))
		if err != nil {
			t.Fatal(err)
		}
		return whereabouts(m)
	}
	without, with := places("{guest: 256Mi}"), places("{guest: 256Mi, maxGuest: 512Mi}")
	if len(with) != len(without)+1 || with[MemoryDevice] == "" {
		t.Errorf("%d devices with room, %d without", len(with), len(without))
	}
	for id, place := range without {
		if with[id] != place {
			t.Errorf("%s is at %q with room, at %q without", id, with[id], place)
		}
	}
}

func TestHowMuchMemoryIsPlugged(t *testing.T) {
	const mi = 1 << 20
	for name, test := range map[string]struct {
		memory              *v1.Memory
		boot, room, plugged int64
	}{
		"nothing is said":           {nil, 256 * mi, 0, 0},
		"no room":                   {&v1.Memory{Guest: new(resource.MustParse("512Mi"))}, 256 * mi, 0, 0},
		"what it was started with":  {memory("256Mi", "1Gi"), 256 * mi, 768 * mi, 0},
		"a byte more is a block":    {memory("268435457", "1Gi"), 256 * mi, 768 * mi, 2 * mi},
		"a block":                   {memory("258Mi", "1Gi"), 256 * mi, 768 * mi, 2 * mi},
		"a block and a byte":        {memory("270532609", "1Gi"), 256 * mi, 768 * mi, 4 * mi},
		"all":                       {memory("1Gi", "1Gi"), 256 * mi, 768 * mi, 768 * mi},
		"more than there is":        {memory("2Gi", "1Gi"), 256 * mi, 768 * mi, 768 * mi},
		"less than it started with": {memory("128Mi", "1Gi"), 256 * mi, 768 * mi, 0},
		"an odd room":               {memory("261Mi", "261Mi"), 256 * mi, 4 * mi, 4 * mi},
		"room for less than it has": {memory("128Mi", "128Mi"), 256 * mi, 0, 0},
		"more than can be counted":  {memory("9Ei", "9Ei"), 256 * mi, 1 << 44, 1 << 44},
		"hugepages":                 {&v1.Memory{Guest: new(resource.MustParse("512Mi")), MaxGuest: new(resource.MustParse("1Gi")), Hugepages: &v1.Hugepages{PageSize: "2Mi"}}, 256 * mi, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1.VirtualMachineInstanceSpec{}
			spec.Domain.Memory = test.memory
			if room, plugged := MemoryRoom(spec, test.boot), PluggedMemory(spec, test.boot); room != test.room || plugged != test.plugged {
				t.Errorf("there is room for %d, and %d is plugged; want %d and %d", room, plugged, test.room, test.plugged)
			}
		})
	}
}

func memory(guest, most string) *v1.Memory {
	return &v1.Memory{Guest: new(resource.MustParse(guest)), MaxGuest: new(resource.MustParse(most))}
}

// The kernel refuses device memory that may not be locked, and QEMU then exits.
func TestHowMuchMemoryIsLocked(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{}
	const boot = 512 << 20
	if got, want := LockedMemory(spec, boot), int64(boot+8<<10+1<<30); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got, want := LockedMemory(spec, boot+1), int64(boot+1<<20+8<<10+1<<30); got != want {
		t.Errorf("of memory in no whole mebibytes %d bytes, want %d", got, want)
	}
	spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("512Mi")), MaxGuest: new(resource.MustParse("2Gi"))}
	if got, want := LockedMemory(spec, boot), int64(2<<30+8<<10+1<<30); got != want {
		t.Errorf("with room for more %d bytes, want %d", got, want)
	}
}
