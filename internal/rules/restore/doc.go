// Package restore decides what virt-controller does for one VirtualMachineRestore: what a restore
// makes of a snapshot's content, which claims, which VM, and what its status says. Which parts of the
// guest's identity it keeps is in the table of package identity.
//
// It owns the decision only. It is pure: it must not import a client or read the clock.
//
//	             target is the snapshot's source          target does not exist
//	(new)        waits until the target is stopped        –
//	             gets it for an owner                     –
//	             locks it (status.restoreInProgress)      –
//	claims       made from the VolumeSnapshots            made from the VolumeSnapshots
//	switch       one write gives the VM the snapshot's    one write makes the VM
//	             spec with the new claims                 gets it for an owner
//	afterwards   the claim of the VM's state is made anew from its VolumeSnapshot
//	             claims get their owner, the lock goes    claims get their owner, the VM may start
//	complete
//
// The claim of a VM's state (package vmstate) can't be made beside the one that it has, nor before the VM is
// there: its name follows from the VM's name and UID. So it comes last, while the VM may not start. From the
// switch on a restore does not fail any more either.
//
// Before the switch nothing that the target uses is touched, but for volumeRestorePolicy InPlace,
// which is there to replace claims: it deletes them when the lock is held and every VolumeSnapshot
// is ready. From then on such a restore does not fail any more: it goes on until the disks are there.
//
// When a part dies:
//   - virt-controller between two actions: claims have names that follow from the restore, and say
//     whose they are; the VM says by an annotation which restore it has seen last. So the next
//     round knows whether the switch was made, and each write is made once.
//   - A claim before the switch: made again. The content or a VolumeSnapshot: Failed, and the
//     claims that the restore has made are deleted.
//   - The target: Failed, likewise, until the garbage collector takes the restore with it. The restore itself: its finalizer stays until claims that no
//     VM uses are deleted and the VM is unlocked.
//
// Invariants:
//   - A VM is restored with all of the content's disks or not at all.
//   - No claim is deleted that the restore has not made, but for InPlace those of the target, and that of
//     its state when the snapshot has another.
//   - No guest of the VM begins between the switch and the state.
//   - A VM that the restore makes goes through admission like any other; no DataVolume template, and
//     no annotation that only Drydock writes, comes with it.
package restore
