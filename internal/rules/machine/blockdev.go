package machine

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	formatRaw   = "raw"
	formatQCOW2 = "qcow2"

	// maxNodeName is QEMU's limit for the name of a block node.
	maxNodeName = 31
)

// NodeName returns the name of a disk's top block node, cut and with a hash if it is too long for QEMU.
func NodeName(volume string) string { return nodeName("n-", volume) }

func nodeName(prefix, volume string) string {
	name := prefix + volume
	if len(name) <= maxNodeName {
		return name
	}
	tail := "-" + layout.HexDigest(volume, 8)
	return name[:maxNodeName-len(tail)] + tail
}

type node struct {
	name string
	// writeCache makes the guest see a volatile cache and flush it.
	writeCache bool
	readOnly   bool
}

func (n node) apply(device Properties) {
	if !n.readOnly {
		device["write-cache"] = onOff(n.writeCache)
	}
}

type caching struct {
	direct bool
	// noFlush ignores the guest's flushes.
	noFlush bool
	// through completes a write only when it is on the medium.
	through bool
}

func (b *builder) source(d disk, v *v1.Volume) (node, bool) {
	if isoVolume(v) {
		// SATA disks can't be read-only. The image is deleted with the pod, so writes do no harm.
		readOnly := !isSATADisk(d.spec)
		file := fileNode{name: nodeName("f-", v.Name), path: layout.ISOFile(v.Name), readOnly: readOnly, caching: caching{noFlush: !readOnly}}
		b.file(file)
		b.blockdev(format(formatRaw, NodeName(v.Name), file.name, readOnly))
		return node{name: NodeName(v.Name), writeCache: true, readOnly: readOnly}, true
	}
	if v.DownwardMetrics != nil {
		return b.metricsNode(d, v)
	}
	if _, ok := volumeImage(v); !ok {
		b.refuse(d.path+".name", "the volume %q is of a kind that a disk cannot be made of", v.Name)
		return node{}, false
	}
	image, ok := b.in.Images[v.Name]
	if !ok {
		b.refuse(d.path+".name", "the image of volume %q has not been prepared", v.Name)
		return node{}, false
	}
	if d.spec.LUN != nil && !image.BlockDevice {
		b.refuse(d.path+".lun", "volume %q is not a block device: a lun needs a claim with volumeMode Block", v.Name)
		return node{}, false
	}
	return b.imageNode(d, v, image)
}

func (b *builder) imageNode(d disk, v *v1.Volume, image launch.PreparedImage) (node, bool) {
	readOnly := isReadOnly(d.spec) || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	if readOnly && isSATADisk(d.spec) {
		b.refuse(d.path, "a disk on the bus sata can't be read-only: take the bus virtio, scsi or usb, or a cdrom")
		return node{}, false
	}
	mode, ok := b.caching(d, image, readOnly)
	if !ok {
		return node{}, false
	}
	result := node{name: NodeName(v.Name), writeCache: !mode.through, readOnly: readOnly}
	fileName := nodeName("f-", v.Name)
	if image.Overlay == "" {
		b.file(fileNode{
			name: fileName, path: image.Source, device: image.BlockDevice, readOnly: readOnly,
			caching: mode, native: b.native(d, image, mode), allocated: b.preallocated(v.Name),
		})
		p := format(image.SourceFormat, result.name, fileName, readOnly)
		if b.preallocated(v.Name) {
			delete(p, "discard")
		}
		b.blockdev(p)
		return result, true
	}
	top := format(formatQCOW2, result.name, fileName, readOnly)
	if image.Source != "" {
		// Many guests read the backing image, so it belongs in the page cache.
		b.file(fileNode{
			name: nodeName("bf-", v.Name), path: image.Source, device: image.BlockDevice, readOnly: true,
		})
		base := nodeName("b-", v.Name)
		b.blockdev(format(image.SourceFormat, base, nodeName("bf-", v.Name), true))
		top["backing"] = base
	}
	b.file(fileNode{name: fileName, path: image.Overlay, readOnly: readOnly, caching: mode})
	b.blockdev(top)
	return result, true
}

// preallocated reports whether the blocks of a volume's disk are to stay allocated when the guest discards them.
func (b *builder) preallocated(volume string) bool {
	if claim := b.in.Claims[volume]; claim != nil {
		return claim.Preallocated
	}
	for i := range b.vmi.Status.VolumeStatus {
		if s := &b.vmi.Status.VolumeStatus[i]; s.Name == volume && s.PersistentVolumeClaimInfo != nil {
			return s.PersistentVolumeClaimInfo.Preallocated
		}
	}
	return false
}

// format returns a block node for a file's format. It never follows the backing image that the image itself names.
func format(kind, name, file string, readOnly bool) Properties {
	p := Properties{"driver": kind, "node-name": name, "file": file, "read-only": readOnly}
	if !readOnly {
		p["discard"] = "unmap"
	}
	if kind == formatQCOW2 {
		p["backing"] = nil
	}
	return p
}

func isReadOnly(d *v1.Disk) bool {
	return d.CDRom != nil || d.LUN != nil && d.LUN.ReadOnly || d.Disk != nil && d.Disk.ReadOnly
}

// By default an overlay, which is deleted with the pod, is not flushed. A lasting disk bypasses the page cache if the
// storage supports it, and otherwise writes through it, which is safe on every storage.
func (b *builder) caching(d disk, image launch.PreparedImage, readOnly bool) (caching, bool) {
	switch d.spec.Cache {
	case "":
		switch {
		case readOnly:
			return caching{}, true
		case image.Overlay != "":
			return caching{noFlush: true}, true
		case image.DirectIO:
			return caching{direct: true}, true
		}
		return caching{through: true}, true
	case v1.CacheNone:
		if !image.DirectIO {
			b.refuse(d.path+".cache", "the storage of volume %q has no direct I/O, which the mode none needs; use writethrough or writeback",
				d.spec.Name)
			return caching{}, false
		}
		return caching{direct: true}, true
	case v1.CacheWriteThrough:
		return caching{through: true}, true
	case v1.CacheWriteBack:
		return caching{}, true
	}
	b.refuse(d.path+".cache", "%q is none of none, writethrough, writeback", d.spec.Cache)
	return caching{}, false
}

// The kernel's asynchronous I/O requires direct I/O, and blocks the guest when a file grows: only block devices have
// it by default.
func (b *builder) native(d disk, image launch.PreparedImage, mode caching) bool {
	switch d.spec.IO {
	case "", v1.DriverIO("default"):
		return image.BlockDevice && mode.direct
	case v1.IOThreads:
		return false
	case v1.IONative:
		if !mode.direct {
			b.refuse(d.path+".io", "native needs the cache mode none")
		}
		return true
	}
	b.refuse(d.path+".io", "%q is none of native, threads, default", d.spec.IO)
	return false
}

type fileNode struct {
	name, path       string
	device, readOnly bool
	caching          caching
	native           bool
	// allocated means that the guest's discards do not reach the file.
	allocated bool
}

func (b *builder) file(f fileNode) {
	p := Properties{"driver": "file", "node-name": f.name, "filename": f.path, "read-only": f.readOnly}
	if f.device {
		p["driver"] = "host_device"
	}
	if !f.readOnly && !f.allocated {
		p["discard"] = "unmap"
	}
	if f.caching.direct || f.caching.noFlush {
		p["cache"] = Properties{"direct": f.caching.direct, "no-flush": f.caching.noFlush}
	}
	if f.native {
		p["aio"] = "native"
	}
	b.blockdev(p)
}
