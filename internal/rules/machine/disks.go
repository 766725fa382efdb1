package machine

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// The chipset's SATA controller has the buses ide.0 to ide.5. Further disks get further controllers.
	sataPorts          = 6
	maxSATAControllers = 9

	// USB disks follow the inputs.
	firstUSBDiskPort = 8
	lastUSBPort      = 15
)

// MaxSerial is the maximum length of a serial on each bus.
var MaxSerial = map[v1.DiskBus]int{
	v1.DiskBusVirtio: 20,
	v1.DiskBusSATA:   20,
	v1.DiskBusSCSI:   36,
	v1.DiskBusUSB:    20,
}

// DiskID returns the id of a volume's disk.
func DiskID(volume string) string { return "disk-" + volume }

func isVirtio(d *v1.Disk) bool { return d.Disk != nil && d.Disk.Bus == v1.DiskBusVirtio }

// diskBus returns the spec's bus, by default SATA, which every guest supports, or SCSI for a LUN, which SATA
// does not support.
func diskBus(d *v1.Disk) v1.DiskBus {
	var bus v1.DiskBus
	switch {
	case d.CDRom != nil:
		bus = d.CDRom.Bus
	case d.LUN != nil:
		if d.LUN.Bus == "" {
			return v1.DiskBusSCSI
		}
		bus = d.LUN.Bus
	case d.Disk != nil:
		bus = d.Disk.Bus
	}
	if bus == "" {
		return v1.DiskBusSATA
	}
	return bus
}

// isSATADisk reports whether a disk is a hard disk on SATA, which can't be read-only.
func isSATADisk(d *v1.Disk) bool { return d.Disk != nil && diskBus(d) == v1.DiskBusSATA }

type disk struct {
	spec *v1.Disk
	path string
	bus  v1.DiskBus
	// nth counts the disks of the same bus.
	nth   int
	index int
}

func (b *builder) disks() {
	volumes := make(map[string]*v1.Volume)
	for i := range b.vmi.Spec.Volumes {
		volumes[b.vmi.Spec.Volumes[i].Name] = &b.vmi.Spec.Volumes[i]
	}
	nth := make(map[v1.DiskBus]int)
	for i := range b.spec.Devices.Disks {
		spec := &b.spec.Devices.Disks[i]
		if b.hot[spec.Name] {
			continue
		}
		d := disk{spec: spec, path: fmt.Sprintf("devices.disks[%d]", i), bus: diskBus(spec), index: i}
		d.nth = nth[d.bus]
		nth[d.bus]++
		b.disk(d, volumes[spec.Name])
	}
}

func (b *builder) disk(d disk, volume *v1.Volume) {
	b.named(d.path, d.spec.Name)
	device := Properties{"id": DiskID(d.spec.Name)}
	switch {
	case volume == nil && d.spec.CDRom == nil:
		b.refuse(d.path+".name", "there is no volume %q", d.spec.Name)
		return
	case volume == nil, Hotpluggable(volume):
		// A drive without a medium, which may be inserted later.
	default:
		node, ok := b.source(d, volume)
		if !ok {
			return
		}
		device["drive"] = node.name
		// The device manages a LUN's cache.
		if d.spec.LUN == nil {
			node.apply(device)
		}
	}
	b.attach(d, device)
	b.describe(d, device)
	b.device(device)
}

func (b *builder) attach(d disk, device Properties) {
	kind := "hd"
	if d.spec.CDRom != nil {
		kind = "cd"
	}
	switch d.bus {
	case v1.DiskBusVirtio:
		if d.spec.Disk == nil {
			b.refuse(d.path, "only a disk can be on the bus virtio; a cdrom takes sata or scsi, a lun scsi")
			return
		}
		device["driver"] = "virtio-blk-pci"
		behindPort(b.virtio(device), b.placement.disks[d.nth])
		queues := 1
		if isTrue(b.spec.Devices.BlockMultiQueue) {
			queues = VCPUs(b.topology)
		}
		device["num-queues"] = queues
		if thread := b.threads[d.index]; thread != "" {
			device["iothread"] = thread
		}
	case v1.DiskBusSATA:
		if d.spec.LUN != nil {
			b.refuse(d.path+".lun.bus", "a lun must be on the bus scsi")
		}
		device["driver"], device["bus"] = "ide-"+kind, sataBus(d.nth)
		if d.nth >= sataPorts*maxSATAControllers {
			b.refuse(d.path, "a machine has at most %d SATA disks", sataPorts*maxSATAControllers)
		}
	case v1.DiskBusSCSI:
		if d.spec.LUN != nil {
			kind = "block"
		}
		device["driver"], device["bus"] = "scsi-"+kind, scsiBus
		device["channel"], device["scsi-id"], device["lun"] = 0, 0, d.nth
		if kind != "block" {
			device["device_id"] = d.spec.Name
		}
	case v1.DiskBusUSB:
		if d.spec.Disk == nil {
			b.refuse(d.path, "only a disk can be on the bus usb")
		}
		device["driver"], device["bus"] = "usb-storage", usbBus
		device["port"] = fmt.Sprint(firstUSBDiskPort + d.nth)
		if firstUSBDiskPort+d.nth > lastUSBPort {
			b.refuse(d.path, "a machine has at most %d USB disks", lastUSBPort-firstUSBDiskPort+1)
		}
	default:
		b.refuse(d.path, "the bus %q is none of virtio, sata, scsi, usb", d.bus)
	}
}

// describe adds the properties that are the same on every bus.
func (b *builder) describe(d disk, device Properties) {
	if index, ok := b.bootIndex(d.spec.BootOrder, d.index); ok && !b.hot[d.spec.Name] {
		device["bootindex"] = index
	}
	if s := d.spec.Serial; s != "" {
		if d.spec.LUN != nil {
			b.refuse(d.path+".serial", "a lun has the serial of its device")
		}
		// The bus transfers no more characters.
		device["serial"] = s[:min(len(s), MaxSerial[d.bus])]
	}
	if isTrue(d.spec.Shareable) {
		device["share-rw"] = true
	}
	if d.spec.CDRom != nil {
		if d.spec.CDRom.Tray == v1.TrayStateOpen {
			b.refuse(d.path+".cdrom.tray", "a machine starts with its trays closed")
		}
		return
	}
	if d.spec.LUN == nil {
		b.blockSize(d, device)
	}
	b.errorPolicy(d, device)
}

// By default the guest stops until the storage works again.
func (b *builder) errorPolicy(d disk, device Properties) {
	policy := v1.DiskErrorPolicyStop
	if d.spec.ErrorPolicy != nil {
		policy = *d.spec.ErrorPolicy
	}
	switch policy {
	case v1.DiskErrorPolicyStop:
		device["werror"], device["rerror"] = "stop", "stop"
	case v1.DiskErrorPolicyIgnore:
		device["werror"], device["rerror"] = "ignore", "ignore"
	case v1.DiskErrorPolicyReport:
		device["werror"], device["rerror"] = "report", "report"
	case v1.DiskErrorPolicyEnospace:
		device["werror"], device["rerror"] = "enospc", "report"
	default:
		b.refuse(d.path+".errorPolicy", "%q is none of stop, ignore, report, enospace", policy)
	}
}

func (b *builder) blockSize(d disk, device Properties) {
	size := d.spec.BlockSize
	if size == nil {
		return
	}
	var logical, physical uint
	if c := size.Custom; c != nil {
		logical, physical = c.Logical, c.Physical
		if c.DiscardGranularity != nil {
			device["discard_granularity"] = *c.DiscardGranularity
		}
	} else if m := size.MatchVolume; m != nil && isOn(m) {
		image := b.in.Images[d.spec.Name]
		logical, physical = uint(image.LogicalBlock), uint(image.PhysicalBlock)
	}
	if logical != 0 {
		device["logical_block_size"] = logical
	}
	if physical != 0 {
		device["physical_block_size"] = physical
	}
}

// If any disk or interface has a bootOrder, the guest tries only those with one, otherwise all disks in the spec's
// order. place is -1 for an interface.
func (b *builder) bootIndex(order *uint, place int) (int, bool) {
	if b.bootOrdered() {
		if order == nil {
			return 0, false
		}
		return int(*order), true
	}
	return place + 1, place >= 0
}

func (b *builder) bootOrdered() bool {
	for i := range b.spec.Devices.Disks {
		if b.spec.Devices.Disks[i].BootOrder != nil {
			return true
		}
	}
	for i := range b.spec.Devices.Interfaces {
		if b.spec.Devices.Interfaces[i].BootOrder != nil {
			return true
		}
	}
	return false
}

func sataBus(nth int) string {
	if nth < sataPorts {
		return fmt.Sprintf("ide.%d", nth)
	}
	return fmt.Sprintf("%s.%d", sataID(nth/sataPorts), nth%sataPorts)
}

func sataID(controller int) string { return fmt.Sprintf("sata%d", controller) }

// isoVolume reports whether virt-handler makes an ISO image of the volume.
func isoVolume(v *v1.Volume) bool {
	return v.CloudInitNoCloud != nil || v.CloudInitConfigDrive != nil || v.ConfigMap != nil ||
		v.Secret != nil || v.DownwardAPI != nil || v.ServiceAccount != nil || v.Sysprep != nil
}
