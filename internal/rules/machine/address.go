package machine

import (
	"fmt"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// Slots of the root bus, pcie.0, fixed so that adding a device never moves another (decision 030). 0x00 is the host
// bridge and 0x1f the chipset with its SATA controller.
const (
	slotVideo    = 0x01
	slotSCSI     = 0x02
	slotChannels = 0x03
	slotBalloon  = 0x04
	slotRNG      = 0x05
	slotUSB      = 0x06
	slotWatchdog = 0x07
	slotPanic    = 0x08
	slotInputs   = 0x09
	slotMemory   = 0x0a
	slotSATA     = 0x0b

	slotFirstPort = 0x0c
	slotLastPort  = 0x1e
	portsPerSlot  = 8
	// slotShares is the last slot, where a machine with shares has no ports.
	slotShares = slotLastPort
	// addressSound is a function of the chipset's slot, where the sound of real chipsets is.
	addressSound = "0x1f.5"
	maxPorts     = (slotLastPort - slotFirstPort + 1) * portsPerSlot

	// slotHostDevices is the first of the slots up to slotShares where a machine with devices of its node has their ports,
	// and no others.
	slotHostDevices = 0x1a
	// MaxHostDevices is the number of those ports.
	MaxHostDevices = (slotShares - slotHostDevices) * portsPerSlot

	// minPorts has eight root ports for interfaces and eight for virtio disks. A port costs half a millisecond of QEMU's
	// start and half a mebibyte of its memory.
	minPorts = 16
	// spareDisks is the number of further virtio disks if those ports are in use.
	spareDisks = 4
)

const rootBus = "pcie.0"

// PortID returns the id of a root port, which is also its bus.
func PortID(port int) string { return fmt.Sprintf("port%d", port) }

// Interfaces and virtio disks take the root ports alternately: the first interface is behind port 0, the first virtio
// disk behind port 1, and so on. The ports have no gaps, so the firmware numbers their buses in order: port n is bus
// n+1. A hotplugged device is where the next start will put it.
const (
	firstNICPort  = 0
	firstDiskPort = 1
	portStep      = 2
)

// placement has the root port of each interface and virtio disk, in the spec's order.
type placement struct {
	nics, disks []int
	count       int
}

// pin is the PCI address in the spec, "" for none.
type pin struct {
	path, address string
}

// place assigns pinned ports first. The machine has at most most ports.
func place(nics, disks []pin, most int) (placement, []error) {
	pinned := make(map[int]string)
	var errs []error
	for _, p := range append(append([]pin(nil), nics...), disks...) {
		if p.address == "" {
			continue
		}
		port, err := parsePCIAddress(p.address)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", p.path, err))
		case pinned[port] != "":
			errs = append(errs, fmt.Errorf("%s: %s is taken by %s", p.path, p.address, pinned[port]))
		default:
			pinned[port] = p.path
		}
	}
	result := placement{
		nics:  inTurn(nics, firstNICPort, pinned),
		disks: inTurn(disks, firstDiskPort, pinned),
		count: minPorts,
	}
	for _, port := range append(append([]int(nil), result.nics...), result.disks...) {
		result.count = max(result.count, port+1)
	}
	for len(result.free()) < spareDisks && result.count+portStep <= most {
		result.count += portStep
	}
	if result.count > most {
		errs = append(errs, fmt.Errorf("spec.domain.devices: the interfaces and virtio disks need %d PCI ports, a machine has at most %d",
			result.count, most))
		result.count = most
	}
	return result, errs
}

func (p placement) free() []int {
	used := map[int]bool{}
	for _, port := range append(append([]int(nil), p.disks...), p.nics...) {
		used[port] = true
	}
	var free []int
	for port := firstDiskPort; port < p.count; port += portStep {
		if !used[port] {
			free = append(free, port)
		}
	}
	return free
}

func inTurn(devices []pin, first int, pinned map[int]string) []int {
	ports := make([]int, len(devices))
	next := first
	for i, d := range devices {
		if port, err := parsePCIAddress(d.address); err == nil {
			ports[i] = port
			continue
		}
		for pinned[next] != "" {
			next += portStep
		}
		ports[i] = next
		next += portStep
	}
	return ports
}

// parsePCIAddress returns the root port of an address in the guest, such as 0000:05:00.0.
func parsePCIAddress(address string) (int, error) {
	const form = "%q: give it as 0000:BB:00.0, where BB is a bus from 01 to %02x"
	bus, ok := strings.CutPrefix(address, "0000:")
	if ok {
		bus, ok = strings.CutSuffix(bus, ":00.0")
	}
	n, err := strconv.ParseUint(bus, 16, 8)
	if !ok || err != nil || len(bus) != 2 || n < 1 || n > maxPorts {
		return 0, fmt.Errorf(form, address, maxPorts)
	}
	return int(n) - 1, nil
}

func (b *builder) ports() {
	var nics, disks []pin
	for i := range b.spec.Devices.Interfaces {
		nics = append(nics, pin{
			path:    fmt.Sprintf("spec.domain.devices.interfaces[%d].pciAddress", i),
			address: b.spec.Devices.Interfaces[i].PciAddress,
		})
	}
	for i := range b.spec.Devices.Disks {
		if d := &b.spec.Devices.Disks[i]; isVirtio(d) && !b.hot[d.Name] {
			disks = append(disks, pin{
				path:    fmt.Sprintf("spec.domain.devices.disks[%d].disk.pciAddress", i),
				address: d.Disk.PciAddress,
			})
		}
	}
	var errs []error
	most := maxPorts
	if hostdevice.Any(&b.vmi.Spec) {
		most = (slotHostDevices - slotFirstPort) * portsPerSlot
	}
	b.placement, errs = place(nics, disks, most)
	b.errs = append(b.errs, errs...)
	if HasShares(&b.vmi.Spec) && b.placement.count > maxPorts-portsPerSlot {
		b.refuse("devices.filesystems", "a machine with so many interfaces and virtio disks has no room for them: at most %d PCI ports are left", maxPorts-portsPerSlot)
	}
	for port := range b.placement.count {
		b.port(port, slotFirstPort, port)
	}
	devices := len(hostdevice.Of(&b.vmi.Spec))
	if devices > MaxHostDevices {
		b.refuse("devices", "a machine has at most %d hostDevices and gpus together", MaxHostDevices)
	}
	for i := range min(devices, MaxHostDevices) {
		b.port(maxPorts+i, slotHostDevices, i)
	}
}

// port adds the index-th of the root ports that begin at a slot.
func (b *builder) port(port, slot, index int) {
	b.device(Properties{
		"driver": "pcie-root-port", "id": PortID(port), "bus": rootBus,
		"addr":    fmt.Sprintf("%#x.%d", slot+index/portsPerSlot, index%portsPerSlot),
		"chassis": port + 1, "multifunction": index%portsPerSlot == 0,
	})
}

// NICAddresses returns where the guest sees its interfaces on the PCI bus from the next start on, in the spec's order.
func NICAddresses(spec *v1.VirtualMachineInstanceSpec) []string {
	b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}})
	b.ports()
	addresses := make([]string, len(b.placement.nics))
	for i, port := range b.placement.nics {
		addresses[i] = fmt.Sprintf("0000:%02x:00.0", port+1)
	}
	return addresses
}

// HasNICPort reports whether a running machine has the interface's root port of the next start.
func HasNICPort(spec *v1.VirtualMachineInstanceSpec, at int) bool {
	with := spec.DeepCopy()
	before := min(at, len(with.Domain.Devices.Interfaces))
	with.Domain.Devices.Interfaces = append(with.Domain.Devices.Interfaces[:before], make([]v1.Interface, at+1-before)...)
	is, next := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}}), newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *with}})
	is.ports()
	next.ports()
	return len(next.errs) == 0 && next.placement.nics[at] < is.placement.count
}

// onRootBus places a device that can't be unplugged.
func onRootBus(p Properties, slot int) Properties {
	p["bus"], p["addr"] = rootBus, fmt.Sprintf("%#x", slot)
	return p
}

// behindPort places a device that can be unplugged.
func behindPort(p Properties, port int) Properties {
	p["bus"], p["addr"] = PortID(port), "0x0"
	return p
}
