// Package nodehotplug decides how a VMI's hotplugged volumes get from their attachment pods into the running QEMU, and
// out of it: each volume's action, its delay after a failure, and its status. It also opens the disk in an attachment
// pod (open.go). The concern disks applies the actions.
//
// Decide is pure. A restarted virt-handler can read its input again: the VMI, the node's attachment pods, and QEMU, which
// remembers the volume of each descriptor (package diskhotplug).
//
//	status            QEMU      action
//	AttachedToNode    Absent    open the disk in the pod that the status names,
//	                            then plug it: MountedToPod while that fails
//	AttachedToNode    Plugged   Ready
//	MountedToPod,     Absent    the same; if the pod that the status names is gone,
//	Ready                       from the newest one that the record names
//	Ready             Plugged   nothing; or, if a newer pod that the record names
//	                            holds the volume too: open it there, then name it
//	any               Partial   clear an interrupted plug; in a guest whose CPUs
//	                            have not started, plug the disk beside the remains
//	not wanted        Plugged   Detaching: ask the guest repeatedly
//	not wanted        Absent    UnMountedFromPod
//	Detaching, and    Plugged   take the disk from the guest by force
//	noted as forced
//	not wanted        Detached  UnMountedFromPod; ask the guest repeatedly to
//	                            release the remains of the device
//	AttachedToNode    Detached  the same; the volume waits, as its status shows
//
// # When a part dies
//
//   - virt-handler before QEMU has the descriptor: nothing has happened.
//   - virt-handler between the descriptor and the disk: the Partial disk is cleared
//     and plugged again.
//   - virt-handler before it writes the status: the status follows from QEMU's
//     Plugged disk.
//   - virt-handler after it asked the guest to release a disk: it asks again.
//     Detaching is never revoked, because the request cannot be.
//   - virt-handler while it takes a disk by force: QEMU knows the progress (package
//     diskhotplug), and the VMI has the request. The guest may use the disk until
//     UnMountedFromPod is written, after QEMU has closed it.
//   - QEMU: its descriptors end with it, and so does the VMI.
//   - The attachment pod: QEMU keeps the open disk; the status reports that the
//     pod is gone until another one holds the disk.
//   - The kubelet, containerd: no effect.
//
// The package must not make or delete pods. The status must name no pod that the VMI's record does not name.
package nodehotplug
