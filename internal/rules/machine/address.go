package machine

import (
	"fmt"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Slots of the root bus, pcie.0. Each part of the machine that cannot be
// unplugged has its own place, so that adding one never moves another (decision 030).
// 0x00 is the host bridge and 0x1f the chipset with its SATA controller.
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

	// The root ports fill the rest, eight to a slot.
	slotFirstPort = 0x0c
	slotLastPort  = 0x1e
	portsPerSlot  = 8
	maxPorts      = (slotLastPort - slotFirstPort + 1) * portsPerSlot

	// minPorts is how many root ports a machine has even when it needs fewer:
	// eight places for interfaces and eight for virtio disks, plugged at start
	// or later. A port costs half a millisecond of QEMU's start and half a
	// mebibyte of its memory.
	minPorts = 16
	// spareDisks is how many virtio disks can be plugged into a machine that has
	// no room left among those.
	spareDisks = 4
)

// rootBus is the bus that the chipset provides.
const rootBus = "pcie.0"

// PortID names a root port; its bus has the same name.
func PortID(port int) string { return fmt.Sprintf("port%d", port) }

// Interfaces and virtio disks share the root ports in turn: the first
// interface is behind port 0, the first virtio disk behind port 1, the second
// interface behind port 2, and so on. Since the ports have no gaps, the
// firmware numbers their buses in order, and the guest sees port n as bus n+1
// whatever is plugged elsewhere; and a device that is plugged into a running
// machine sits where the next start will put it.
const (
	firstNICPort  = 0
	firstDiskPort = 1
	portStep      = 2
)

// placement is where the pluggable PCI devices go: one root port for each
// interface and each virtio disk, in the order in which the spec lists them.
type placement struct {
	nics, disks []int
	// count is the number of root ports.
	count int
}

// pin is a device's wish for an address; empty means none.
type pin struct {
	path, address string
}

// place assigns the root ports. A device that names its address gets it; the
// others take their turn around those.
func place(nics, disks []pin) (placement, []error) {
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
	for len(result.free()) < spareDisks && result.count+portStep <= maxPorts {
		result.count += portStep
	}
	if result.count > maxPorts {
		errs = append(errs, fmt.Errorf("spec.domain.devices: the interfaces and virtio disks need %d PCI ports, a machine has at most %d",
			result.count, maxPorts))
		result.count = maxPorts
	}
	return result, errs
}

// free are the ports for virtio disks that come later.
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

// inTurn gives each device of one kind its port.
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

// parsePCIAddress turns an address as the guest shall see it, such as
// 0000:05:00.0, into the root port that makes it so.
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

// ports adds the root ports and decides who is behind which.
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
	b.placement, errs = place(nics, disks)
	b.errs = append(b.errs, errs...)
	for port := range b.placement.count {
		b.device(Properties{
			"driver": "pcie-root-port", "id": PortID(port), "bus": rootBus,
			"addr":    fmt.Sprintf("%#x.%d", slotFirstPort+port/portsPerSlot, port%portsPerSlot),
			"chassis": port + 1, "multifunction": port%portsPerSlot == 0,
		})
	}
}

// HasNICPort reports whether the machine of a spec has a free root port for an interface that is plugged as the
// one at the index, where the next start would put it.
func HasNICPort(spec *v1.VirtualMachineInstanceSpec, at int) bool {
	with := spec.DeepCopy()
	before := min(at, len(with.Domain.Devices.Interfaces))
	with.Domain.Devices.Interfaces = append(with.Domain.Devices.Interfaces[:before], make([]v1.Interface, at+1-before)...)
	is, next := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}}), newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *with}})
	is.ports()
	next.ports()
	return len(next.errs) == 0 && next.placement.nics[at] < is.placement.count
}

// onRootBus is the place of a device that stays for the machine's life.
func onRootBus(p Properties, slot int) Properties {
	p["bus"], p["addr"] = rootBus, fmt.Sprintf("%#x", slot)
	return p
}

// behindPort is the place of a device that can be unplugged.
func behindPort(p Properties, port int) Properties {
	p["bus"], p["addr"] = PortID(port), "0x0"
	return p
}
