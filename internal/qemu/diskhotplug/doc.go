// Package diskhotplug brings disks into a QEMU that runs, and takes them out again.
//
// A disk comes as an open file: QEMU gets the descriptor (add-fd) and opens its
// block nodes on it, so that nothing has to be made inside of QEMU's container
// and nothing that happens to the container's mounts or device rules can take
// the disk away (decision 115). With the descriptor goes a Tag that says whose it is; QEMU
// keeps it, so after a restart virt-handler reads from QEMU itself what has been
// plugged and how far each plug got.
//
//	          add-fd          blockdev-add …       device_add
//	Absent ───────────> Partial ───────────> Partial ───────────> Plugged
//	   ^                   │                                         │ device_del,
//	   └──── remove-fd ────┴──── blockdev-del … ──── DEVICE_DELETED ─┘ when the guest
//	                                                                  lets go
//
// A disk that is found Partial is never completed but cleared: a virt-handler died
// while it plugged the disk, or the guest has released the device.
//
// # Taking a disk by force
//
// No QEMU command removes a PCI device from a guest that does not release it. But the
// block node behind the device can be replaced: Force puts a node of no size in its
// place, so that the guest's device has no backend any more and all its reads and writes fail.
//
//	           add-fd, blockdev-add          qom-set            blockdev-del …, remove-fd
//	Plugged ───────────────────────> Plugged ───────> Partial ───────────────────────────> Detached
//	                                                                     when the guest      │
//	                                    Absent <── remove-fd ── Partial <── lets go at last ─┘
//
// What takes its place has a Tag of its own, on a descriptor of nothing, that is added
// before anything else of it and removed last. When a part dies:
//
//   - before qom-set: the guest has its disk. Force goes on with what takes its place that is
//     there, or, when the guest lets go by itself, what takes its place is cleared as Partial.
//   - after qom-set: the disk is Partial, as one is that the guest has let go of, and
//     is cleared in the same way; then it is found Detached.
//   - QEMU: all of it ends with it.
//
// QEMU waits for what the guest has written so far before it lets go of the node
// (qom-set), and flushes it (blockdev-del). So Force is for guests that refuse,
// and not for storage that does not answer.
//
// The package knows no VMI and decides nothing about one. It must import
// nothing of Drydock but the monitor's client.
package diskhotplug
