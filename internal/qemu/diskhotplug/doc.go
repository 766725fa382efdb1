// Package diskhotplug plugs disks into a running QEMU, and unplugs them.
//
// A disk is passed as an open file: QEMU gets the descriptor (add-fd) and opens its block nodes on it. So nothing is made
// in QEMU's container, and no change of the container's mounts or device rules can remove the disk (decision 115). QEMU
// keeps each descriptor's Tag, from which virt-handler reads the plugged disks and their progress.
//
//	          add-fd          blockdev-add …       device_add
//	Absent ───────────> Partial ───────────> Partial ───────────> Plugged
//	   ^                   │                                         │ device_del,
//	   └──── remove-fd ────┴──── blockdev-del … ──── DEVICE_DELETED ─┘ when the guest
//	                                                                  releases it
//
// A Partial disk is never completed but cleared: virt-handler died while it plugged the disk, or the guest has released
// the device.
//
// # Taking a disk by force
//
// No QEMU command removes a PCI device from a guest that does not release it. But Force replaces the block node
// behind the device by a node of size zero: all the guest's reads and writes fail.
//
//	           add-fd, blockdev-add          qom-set            blockdev-del …, remove-fd
//	Plugged ───────────────────────> Plugged ───────> Partial ───────────────────────────> Detached
//	                                                                     when the guest      │
//	                                    Absent <── remove-fd ── Partial <── releases it ─────┘
//
// The replacement has its own Tag, on a descriptor of /dev/null, which is added before its node and removed last. If
// a process dies:
//
//   - before qom-set: the guest has its disk. Force continues with the existing replacement,
//     or, if the guest releases the device itself, the replacement is cleared as Partial.
//   - after qom-set: the disk is Partial, like one that the guest has released, and is
//     cleared in the same way; then it is Detached.
//   - QEMU: everything ends with it.
//
// QEMU waits for the guest's pending writes before it releases the node (qom-set), and flushes it (blockdev-del): Force is
// for guests that refuse, not for silent storage.
//
// The package must not know VMIs or decide about them, and must import nothing of Drydock but the monitor's client.
package diskhotplug
