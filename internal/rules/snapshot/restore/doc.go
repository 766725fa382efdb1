// Package restore decides virt-controller's actions for one VirtualMachineRestore: the claims and the VM from a
// snapshot's content, and the restore's status. Package identity has the parts of the guest's identity that it keeps. It
// must not import a client or read the clock.
//
//	             target is the snapshot's source          target does not exist
//	(new)        waits until the target is stopped        –
//	             gets it as its owner                     –
//	             locks it (status.restoreInProgress)      –
//	claims       created from the VolumeSnapshots         created from the VolumeSnapshots
//	switch       one write gives the VM the snapshot's    one write creates the VM
//	             spec with the new claims                 gets it as its owner
//	afterwards   the claim of the VM's state is created again from its VolumeSnapshot
//	             claims get their owner, VM is unlocked   claims get their owner, the VM may start
//	complete
//
// The claim of a VM's state (package stateclaim) can't exist beside the VM's current one, nor before the VM: its name
// follows from the VM's name and UID. So it comes last, while the VM must not start.
//
// Before the switch, nothing that the target uses is changed, except by volumeRestorePolicy InPlace: it deletes claims
// once the VM is locked and every VolumeSnapshot is ready. From then on, as after the switch, a restore does not fail.
//
// Failures:
//   - virt-controller ends between two actions: claims' names follow from the restore, and an annotation has its UID; an
//     annotation of the VM names its last restore. So each write is made once.
//   - A claim is deleted before the switch: it is created again.
//   - The content or a VolumeSnapshot is deleted: the restore fails, and its claims are deleted.
//   - The target is deleted: the same, until the garbage collector deletes the restore with it.
//   - The restore is deleted: its finalizer stays until its unused claims are deleted and the VM is unlocked.
//
// Invariants:
//   - A VM is restored with all of the content's disks or not at all.
//   - A restore only deletes its own claims, with InPlace also the target's, and that of the target's state if the
//     snapshot has another.
//   - No guest of the VM starts between the switch and the restored state.
//   - A VM that the restore creates passes admission like any other. It gets no DataVolume template, and no annotation
//     that only Drydock writes.
package restore
