package machine

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	metricsID = "metrics0"
	// metricsPort is the name for software in the guest.
	metricsPort = "org.github.vhostmd.1"
	// agentNumber and metricsNumber are fixed, so that no port moves another.
	agentNumber   = 1
	metricsNumber = 2
)

// DownwardMetrics returns virt-launcher's task, nil for none. node is the node's name.
func DownwardMetrics(spec *v1.VirtualMachineInstanceSpec, node string) *launch.DownwardMetrics {
	told := launch.DownwardMetrics{HostName: node, Channel: spec.Domain.Devices.DownwardMetrics != nil}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.DownwardMetrics != nil {
			told.Disk = layout.MetricsFile(v.Name)
		}
	}
	if told.Disk == "" && !told.Channel {
		return nil
	}
	return &told
}

// metricsNode needs no cache mode: only virt-launcher writes, through the page cache.
func (b *builder) metricsNode(d disk, v *v1.Volume) (node, bool) {
	switch {
	case isSATADisk(d.spec):
		b.refuse(d.path, "a disk on the bus sata can't be read-only: take the bus virtio, scsi or usb, or a cdrom")
		return node{}, false
	case d.spec.LUN != nil:
		b.refuse(d.path+".lun", "volume %q is not a block device: a lun needs a claim with volumeMode Block", v.Name)
		return node{}, false
	}
	file := fileNode{name: nodeName("f-", v.Name), path: layout.MetricsFile(v.Name), readOnly: true}
	b.file(file)
	b.blockdev(format(formatRaw, NodeName(v.Name), file.name, true))
	return node{name: NodeName(v.Name), readOnly: true}, true
}
