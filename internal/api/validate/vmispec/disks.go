package vmispec

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/machine"
)

// If its bus can't carry all of a serial, the guest sees the beginning.
const maxDiskSerial = 256

// pciAddress matches the addresses that a device can have: alone on the bus behind its own port.
var pciAddress = regexp.MustCompile(`^0000:[0-9a-f]{2}:00\.0$`)

const pciSentence = "must be a PCI address 0000:BB:00.0, where BB is a bus from 01 on, such as 0000:05:00.0"

func disks(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := map[string]*v1.VolumeSource{}
	for i := range spec.Volumes {
		sources[spec.Volumes[i].Name] = &spec.Volumes[i].VolumeSource
	}
	names, addresses := map[string]bool{}, map[string]bool{}
	for i := range spec.Domain.Devices.Disks {
		d, at := &spec.Domain.Devices.Disks[i], at.Index(i)
		source := sources[d.Name]
		errs = append(errs, fieldcheck.Unique(names, d.Name, at.Child("name"))...)
		switch {
		case d.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "is the name of the disk's volume"))
		case source == nil && d.CDRom == nil:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be the name of a volume in spec.volumes"))
		case source != nil && d.LUN != nil && source.PersistentVolumeClaim == nil && source.DataVolume == nil:
			errs = append(errs, field.Forbidden(at.Child("lun"), "only the block device of a claim can be a lun"))
		}
		errs = append(errs, target(d, at)...)
		errs = append(errs, canBeWritten(d, source, at)...)
		errs = append(errs, tuning(d, at)...)
		errs = append(errs, blockSize(d.BlockSize, at.Child("blockSize"))...)
		if d.Disk != nil {
			errs = append(errs, fieldcheck.Unique(addresses, d.Disk.PciAddress, at.Child("disk", "pciAddress"))...)
		}
	}
	return errs
}

// SATA has no read-only hard disk.
func canBeWritten(d *v1.Disk, source *v1.VolumeSource, at *field.Path) field.ErrorList {
	if d.Disk == nil || d.Disk.Bus != v1.DiskBusSATA {
		return nil
	}
	const sentence = "a disk on the bus sata can't be read-only: take the bus virtio, scsi or usb, or a cdrom"
	var errs field.ErrorList
	if d.Disk.ReadOnly {
		errs = append(errs, field.Invalid(at.Child("disk", "readonly"), true, sentence))
	}
	if source != nil && source.DownwardMetrics != nil {
		errs = append(errs, field.Invalid(at.Child("disk", "bus"), d.Disk.Bus, "the guest only reads downward metrics: "+sentence))
	}
	if source != nil && source.PersistentVolumeClaim != nil && source.PersistentVolumeClaim.ReadOnly {
		errs = append(errs, field.Invalid(at.Child("disk", "bus"), d.Disk.Bus, "the volume's claim is read-only: "+sentence))
	}
	return errs
}

// The bus must have its default.
func target(d *v1.Disk, at *field.Path) field.ErrorList {
	var chosen []string
	var errs field.ErrorList
	if t := d.Disk; t != nil {
		chosen = append(chosen, "disk")
		errs = append(errs, fieldcheck.OneOf(t.Bus, at.Child("disk", "bus"),
			v1.DiskBusVirtio, v1.DiskBusSATA, v1.DiskBusSCSI, v1.DiskBusUSB)...)
		errs = append(errs, fieldcheck.Pattern(t.PciAddress, at.Child("disk", "pciAddress"), pciAddress, pciSentence)...)
		if t.PciAddress != "" && t.Bus != v1.DiskBusVirtio {
			errs = append(errs, field.Forbidden(at.Child("disk", "pciAddress"), "only a disk on the bus virtio has an address of its own"))
		}
	}
	if t := d.LUN; t != nil {
		chosen = append(chosen, "lun")
	}
	if t := d.CDRom; t != nil {
		chosen = append(chosen, "cdrom")
		errs = append(errs, fieldcheck.OneOf(t.Bus, at.Child("cdrom", "bus"), v1.DiskBusSATA, v1.DiskBusSCSI)...)
	}
	return append(errs, fieldcheck.ExactlyOne(at, chosen, "a disk is exactly one of disk, lun and cdrom")...)
}

func bus(d *v1.Disk) v1.DiskBus {
	switch {
	case d.Disk != nil:
		return d.Disk.Bus
	case d.LUN != nil:
		return d.LUN.Bus
	case d.CDRom != nil:
		return d.CDRom.Bus
	}
	return ""
}

func tuning(d *v1.Disk, at *field.Path) field.ErrorList {
	errs := fieldcheck.Pattern(d.Serial, at.Child("serial"), word, "must be made of letters, digits and _.+-")
	if len(d.Serial) > maxDiskSerial {
		errs = append(errs, field.TooLong(at.Child("serial"), d.Serial, maxDiskSerial))
	}
	errs = append(errs, fieldcheck.OneOf(d.Cache, at.Child("cache"), v1.CacheNone, v1.CacheWriteThrough, v1.CacheWriteBack)...)
	errs = append(errs, fieldcheck.OneOf(d.IO, at.Child("io"), v1.IONative, v1.IOThreads)...)
	if d.IO == v1.IONative && d.Cache != "" && d.Cache != v1.CacheNone {
		errs = append(errs, field.Invalid(at.Child("io"), d.IO, "native needs the cache mode none"))
	}
	if p := d.ErrorPolicy; p != nil {
		errs = append(errs, fieldcheck.OneOf(*p, at.Child("errorPolicy"), v1.DiskErrorPolicyStop, v1.DiskErrorPolicyIgnore,
			v1.DiskErrorPolicyReport, v1.DiskErrorPolicyEnospace)...)
	}
	if d.DedicatedIOThread != nil && *d.DedicatedIOThread && bus(d) != v1.DiskBusVirtio {
		errs = append(errs, field.Invalid(at.Child("dedicatedIOThread"), true, "only a disk on the bus virtio can have a thread of its own"))
	}
	return errs
}

// SerialWarnings returns warnings about serials that are too long for their buses. The spec must have its defaults.
func SerialWarnings(spec *v1.VirtualMachineInstanceSpec, path *field.Path) []string {
	var all []string
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		if limit, known := machine.MaxSerial[bus(d)]; known && len(d.Serial) > limit {
			all = append(all, fmt.Sprintf("%s: the bus %s carries %d characters, so the guest sees %s",
				path.Child("domain", "devices", "disks").Index(i).Child("serial"), bus(d), limit, d.Serial[:limit]))
		}
	}
	return all
}

const (
	minBlock = 512
	maxBlock = 2 << 20
)

func blockSize(b *v1.BlockSize, at *field.Path) field.ErrorList {
	if b == nil {
		return nil
	}
	var errs field.ErrorList
	if b.Custom != nil && b.MatchVolume != nil {
		errs = append(errs, field.Forbidden(at.Child("matchVolume"), "can't be set beside custom"))
	}
	c, at := b.Custom, at.Child("custom")
	if c == nil {
		return errs
	}
	errs = append(errs, block(c.Logical, at.Child("logical"))...)
	errs = append(errs, block(c.Physical, at.Child("physical"))...)
	if c.Logical > c.Physical && c.Physical != 0 {
		errs = append(errs, field.Invalid(at.Child("logical"), c.Logical,
			fmt.Sprintf("must be at most the physical block size, %d", c.Physical)))
	}
	if g := c.DiscardGranularity; g != nil && c.Logical != 0 && *g%c.Logical != 0 {
		errs = append(errs, field.Invalid(at.Child("discardGranularity"), *g,
			fmt.Sprintf("must be a multiple of the logical block size, %d", c.Logical)))
	}
	return errs
}

func block(size uint, at *field.Path) field.ErrorList {
	if size == 0 || size >= minBlock && size <= maxBlock && size&(size-1) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, size, fmt.Sprintf("must be a power of two between %d and %d", minBlock, maxBlock))}
}

var word = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)
