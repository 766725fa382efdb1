package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

// firmwareNames are volume names that equal the firmware's block nodes, now or in the past.
var firmwareNames = []string{"uefi-code", "uefi-vars", "uefi-code-file", "uefi-vars-file", "uefi-vars-base", "uefi-vars-base-file"}

// anyVMI draws a VMI that admission would accept.
func anyVMI(t *rapid.T) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace = "any", "default"
	memory := resource.MustParse("64Mi")
	domain := &vmi.Spec.Domain
	domain.Memory = &v1.Memory{Guest: &memory}
	if rapid.Bool().Draw(t, "room for memory") {
		domain.Memory.MaxGuest = new(resource.MustParse("256Mi"))
	}
	if rapid.Bool().Draw(t, "efi") {
		domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(bool)}}}
	}
	domain.CPU = &v1.CPU{Sockets: rapid.Uint32Range(1, 4).Draw(t, "sockets"), MaxSockets: 4}
	if rapid.Bool().Draw(t, "threads") {
		policy := rapid.SampledFrom([]v1.IOThreadsPolicy{v1.IOThreadsPolicyShared, v1.IOThreadsPolicyAuto}).Draw(t, "policy")
		domain.IOThreadsPolicy = &policy
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "disks") {
		name := fmt.Sprintf("disk%d", i)
		if i < len(firmwareNames) && rapid.Bool().Draw(t, "named like the firmware's") {
			name = firmwareNames[i]
		}
		addDisk(t, vmi, name)
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "interfaces") {
		addInterface(t, vmi, fmt.Sprintf("nic%d", i))
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "inputs") {
		domain.Devices.Inputs = append(domain.Devices.Inputs, v1.Input{
			Name: fmt.Sprintf("in%d", i),
			Type: rapid.SampledFrom([]v1.InputType{v1.InputTypeTablet, v1.InputTypeKeyboard}).Draw(t, "type"),
			Bus:  rapid.SampledFrom([]v1.InputBus{"", v1.InputBusUSB, v1.InputBusVirtio}).Draw(t, "bus"),
		})
	}
	pinSome(t, vmi)
	return vmi
}

func addDisk(t *rapid.T, vmi *v1.VirtualMachineInstance, name string) {
	disk := v1.Disk{Name: name}
	bus := rapid.SampledFrom([]v1.DiskBus{"", v1.DiskBusVirtio, v1.DiskBusVirtio, v1.DiskBusSATA, v1.DiskBusSCSI, v1.DiskBusUSB}).Draw(t, "bus")
	if rapid.Bool().Draw(t, "cdrom") && bus != v1.DiskBusVirtio && bus != v1.DiskBusUSB {
		disk.CDRom = &v1.CDRomTarget{Bus: bus}
	} else {
		disk.Disk = &v1.DiskTarget{Bus: bus, ReadOnly: rapid.Bool().Draw(t, "readonly") && bus != "" && bus != v1.DiskBusSATA}
	}
	if disk.Disk != nil && bus == v1.DiskBusVirtio && rapid.Bool().Draw(t, "dedicated") {
		own := true
		disk.DedicatedIOThread = &own
	}
	volume := v1.Volume{Name: name}
	switch rapid.IntRange(0, 3).Draw(t, "volume") {
	case 0:
		volume.ContainerDisk = &v1.ContainerDiskSource{Image: "x"}
	case 1:
		volume.DataVolume = &v1.DataVolumeSource{Name: "x"}
	case 2:
		volume.EmptyDisk = &v1.EmptyDiskSource{Capacity: resource.MustParse("1Mi")}
	default:
		volume.CloudInitNoCloud = &v1.CloudInitNoCloudSource{UserData: "x"}
	}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, disk)
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, volume)
}

func addInterface(t *rapid.T, vmi *v1.VirtualMachineInstance, name string) {
	vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{
		Name:  name,
		Model: rapid.SampledFrom([]string{"", v1.VirtIO, "e1000e", "rtl8139"}).Draw(t, "model"),
	})
}

// pinSome gives some devices distinct addresses of their own choice.
func pinSome(t *rapid.T, vmi *v1.VirtualMachineInstance) {
	buses := rapid.Permutation([]int{1, 2, 3, 4, 5, 6, 7, 8, 20, 40}).Draw(t, "buses")
	next := func(name string) string {
		if len(buses) == 0 || rapid.IntRange(0, 4).Draw(t, name) != 0 {
			return ""
		}
		bus := buses[0]
		buses = buses[1:]
		return fmt.Sprintf("0000:%02x:00.0", bus)
	}
	for i := range vmi.Spec.Domain.Devices.Disks {
		if d := &vmi.Spec.Domain.Devices.Disks[i]; isVirtio(d) {
			d.Disk.PciAddress = next("pin disk")
		}
	}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		vmi.Spec.Domain.Devices.Interfaces[i].PciAddress = next("pin interface")
	}
}

func mustBuild(t *rapid.T, vmi *v1.VirtualMachineInstance) *Machine {
	m, err := Build(prepared(vmi))
	if err != nil {
		t.Fatalf("building the machine: %v", err)
	}
	return m
}

// whereabouts returns each device's address in the machine, by ID.
func whereabouts(m *Machine) map[string]string {
	places := make(map[string]string)
	for _, d := range m.Devices {
		place := fmt.Sprint(d["bus"], " ", d["addr"], " ", d["port"], " ", d["scsi-id"], " ", d["lun"], " ", d["nr"])
		places[fmt.Sprint(d["id"])] = place
	}
	return places
}

func TestNoTwoDevicesShareANameOrAPlace(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		m := mustBuild(t, anyVMI(t))
		names := make(map[string]bool)
		for _, list := range [][]Properties{m.Objects, m.Netdevs, m.Devices, m.Blockdevs} {
			for _, p := range list {
				name, _ := p["id"].(string)
				if node, ok := p["node-name"].(string); ok {
					if name = node; len(name) > maxNodeName {
						t.Errorf("the node name %s is too long", name)
					}
				}
				if name == "" || names[name] {
					t.Errorf("%q names nothing or two things", name)
				}
				names[name] = true
			}
		}
		occupant := make(map[string]string)
		for id, place := range whereabouts(m) {
			if other := occupant[place]; other != "" && !onNoBus(m, id) {
				t.Errorf("%s and %s are both at %s", id, other, place)
			}
			occupant[place] = id
		}
	})
}

// onNoBus reports whether a device has no address that another could take, such as an ISA device with a fixed one.
func onNoBus(m *Machine, id string) bool {
	i := slices.IndexFunc(m.Devices, func(p Properties) bool { return p["id"] == id })
	return m.Devices[i]["bus"] == nil
}

func TestEveryDeviceIsOnABusThatIsThere(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		m := mustBuild(t, anyVMI(t))
		there := map[string]bool{rootBus: true}
		for i := range sataPorts {
			there[fmt.Sprintf("ide.%d", i)] = true
		}
		for _, d := range m.Devices {
			if bus, ok := d["bus"].(string); ok && !there[bus] {
				t.Errorf("%s is on %s before that exists", d["id"], bus)
			}
			id := d["id"].(string)
			there[id], there[id+".0"] = true, true
			for i := range sataPorts {
				there[fmt.Sprintf("%s.%d", id, i)] = true
			}
		}
	})
}

func TestTheSameSpecGivesTheSameText(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anyVMI(t)
		first, second := mustBuild(t, vmi).Args(), mustBuild(t, vmi.DeepCopy()).Args()
		if !slices.Equal(first, second) {
			t.Errorf("%q and %q", first, second)
		}
	})
}

func TestAddingADeviceMovesNoOther(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anyVMI(t)
		before := whereabouts(mustBuild(t, vmi))
		on := true
		devices := &vmi.Spec.Domain.Devices
		switch rapid.IntRange(0, 8).Draw(t, "what") {
		case 0:
			addDisk(t, vmi, "new")
		case 1:
			addInterface(t, vmi, "new")
		case 2:
			devices.Rng = &v1.Rng{}
		case 3:
			devices.Watchdog = &v1.Watchdog{Name: "dog"}
		case 4:
			model := v1.Pvpanic
			devices.PanicDevices = []v1.PanicDevice{{Model: &model}}
			delete(before, "panic0") // the default one gives way
		case 5:
			devices.BlockMultiQueue, devices.NetworkInterfaceMultiQueue = &on, &on
		case 6:
			devices.Inputs = append(devices.Inputs, v1.Input{Name: "new", Type: v1.InputTypeTablet})
		case 7:
			addDisk(t, vmi, "new1")
			addDisk(t, vmi, "new2")
			addInterface(t, vmi, "new3")
		case 8:
			devices.Sound = &v1.SoundDevice{Name: "new"}
		}
		after := whereabouts(mustBuild(t, vmi))
		for id, place := range before {
			if after[id] != place {
				t.Errorf("%s moves from %s to %q", id, place, after[id])
			}
		}
	})
}

func TestAPinnedDeviceIsWhereItIsPinned(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anyVMI(t)
		places := whereabouts(mustBuild(t, vmi))
		check := func(id, address string) {
			if address == "" {
				return
			}
			var bus int
			if _, err := fmt.Sscanf(address, "0000:%x:00.0", &bus); err != nil {
				t.Fatal(err)
			}
			var got string
			if _, err := fmt.Sscan(places[id], &got); err != nil || got != PortID(bus-1) {
				t.Errorf("%s wants %s and is on %s", id, address, got)
			}
		}
		for _, d := range vmi.Spec.Domain.Devices.Disks {
			if isVirtio(&d) {
				check(DiskID(d.Name), d.Disk.PciAddress)
			}
		}
		for _, i := range vmi.Spec.Domain.Devices.Interfaces {
			check(NICID(i.Name), i.PciAddress)
		}
	})
}

func TestGeneratedMACAddresses(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anyVMI(t)
		addInterface(t, vmi, "one")
		addInterface(t, vmi, "two")
		one, two := MAC(vmi, "one"), MAC(vmi, "two")
		if one == two || one != MAC(vmi, "one") || one[:3] != "02:" || len(one) != 17 {
			t.Errorf("%s and %s", one, two)
		}
		vmi.Name = "renamed"
		vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
		if got := MAC(vmi, "one"); got == one {
			t.Error("another guest gets the same address")
		}
	})
}

// FuzzBuild calls Build with arbitrary VMIs. Build must return, with well-formed arguments.
func FuzzBuild(f *testing.F) {
	f.Add([]byte(`{"spec":{"domain":{"memory":{"guest":"1Gi"},"devices":{"disks":[{"name":"a","disk":{"bus":"virtio","pciAddress":"0000:00:00.0"}}]}}}}`), true)
	f.Add([]byte(`{"spec":{"domain":{"cpu":{"sockets":4294967295,"cores":4294967295},"devices":{"networkInterfaceMultiqueue":true,"interfaces":[{"name":""}]}}}}`), false)
	f.Add([]byte(`{"spec":{"domain":{"ioThreadsPolicy":"auto","clock":{"timezone":"../x"},"firmware":{"kernelBoot":{"container":{"kernelPath":"../../x"}}}}}}`), false)
	f.Fuzz(func(t *testing.T, text []byte, kvm bool) {
		vmi := &v1.VirtualMachineInstance{}
		if json.Unmarshal(text, vmi) != nil {
			return
		}
		in := prepared(vmi)
		in.KVM = kvm
		if m, err := Build(in); err == nil {
			m.Args()
		}
	})
}
