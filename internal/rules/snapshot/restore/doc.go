// Package restore decides virt-controller's actions for one VirtualMachineRestore: the claims and
// the VM from a snapshot's content, and the restore's status. The table of package identity has the
// parts of the guest's identity that it keeps.
//
// It owns the decision only. It is pure: it must not import a client or read the clock.
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
// The claim of a VM's state (package stateclaim) can't exist beside the VM's current one, nor before
// the VM: its name follows from the VM's name and UID. So it comes last, while the VM must not
// start. After the switch a restore does not fail any more.
//
// Before the switch, nothing that the target uses is changed. The exception is volumeRestorePolicy
// InPlace, which replaces claims: it deletes them once the VM is locked and every VolumeSnapshot is
// ready. From then on such a restore does not fail any more: it continues until the disks exist.
//
// Failures:
//   - virt-controller between two actions: claims have names that follow from the restore, and its UID as an
//     annotation; an annotation of the VM names its last restore. So the next round knows whether the switch
//     was made, and each write is made once.
//   - A claim before the switch: created again. The content or a VolumeSnapshot: Failed, and the restore's
//     claims are deleted.
//   - The target: Failed, likewise, until the garbage collector deletes the restore with it. The restore
//     itself: its finalizer stays until its unused claims are deleted and the VM is unlocked.
//
// Invariants:
//   - A VM is restored with all of the content's disks or not at all.
//   - A restore only deletes its own claims. With InPlace, it also deletes the target's; and it deletes that
//     of the target's state if the snapshot has another.
//   - No guest of the VM starts between the switch and the restored state.
//   - A VM that the restore creates passes admission like any other. It gets no DataVolume template, and no
//     annotation that only Drydock writes.
package restore
