// Package hotdisk brings disks into a QEMU that runs, and takes them out again.
//
// A disk comes as an open file: QEMU gets the descriptor (add-fd) and opens its
// block nodes on it, so that nothing has to be made inside of QEMU's container
// and nothing that happens to the container's mounts or device rules can take
// the disk away. With the descriptor goes a Tag that says whose it is; QEMU
// keeps it, so whoever connects next, after whatever was killed, reads from
// QEMU itself what has been plugged and how far it got.
//
//	          add-fd          blockdev-add …       device_add
//	Absent ───────────> Partial ───────────> Partial ───────────> Plugged
//	   ^                   │                                         │ device_del,
//	   └──── remove-fd ────┴──── blockdev-del … ──── DEVICE_DELETED ─┘ when the guest
//	                                                                  lets go
//
// A disk that is found Partial is never completed but cleared: it is what a
// virt-handler left that died, or a device that its guest has let go of.
//
// The package knows no VMI and decides nothing about one. It must import
// nothing of Drydock but the monitor's client.
package hotdisk
