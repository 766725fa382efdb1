// Package nodehotplug brings a VMI's hotplugged volumes from their attachment pods
// into the QEMU that runs, and takes them out again: it opens the disk that an
// attachment pod holds, decides what to do about each volume, and reports it for the
// VMI's status.
//
// Decide is pure. After a restart virt-handler can read all of its input
// again: the VMI, the attachment pods of the node, and QEMU, which remembers which
// volume each descriptor belongs to (package diskhotplug, decision 116).
//
//	status            QEMU      what is done
//	AttachedToNode    Absent    open the disk in the pod that the status names,
//	                            then plug it: MountedToPod while that fails
//	AttachedToNode    Plugged   Ready
//	MountedToPod,     Absent    the same; when the pod that the status names is gone,
//	Ready                       from the newest one that the record names
//	Ready             Plugged   nothing; or, when a newer pod that the record names
//	                            holds the volume too: open it there, then name it
//	any               Partial   clear it: a plug that was cut short; in a guest whose
//	                            CPUs have not started, plug the disk beside what QEMU keeps
//	not wanted        Plugged   Detaching: ask the guest, again and again
//	not wanted        Absent    UnMountedFromPod
//	Detaching, and    Plugged   take the disk from the guest by force
//	noted as forced
//	not wanted        Detached    UnMountedFromPod; the guest is asked on and on to let
//	                            go of what is left of the device
//	AttachedToNode    Detached    the same; the volume waits, and its status says so
//
// # When a part dies
//
//   - virt-handler before QEMU has the descriptor: nothing has happened.
//   - virt-handler between that and the disk: QEMU has it Partial, and it is
//     cleared and plugged anew.
//   - virt-handler before the status is written: QEMU has it Plugged, and the
//     status follows.
//   - virt-handler after it asked the guest to let go: the guest is asked again.
//     Detaching is never taken back, because the request cannot be.
//   - virt-handler while it takes a disk by force: QEMU knows how far that got
//     (package diskhotplug), and the VMI knows that it was requested. The guest may use
//     the disk until UnMountedFromPod is written, which follows after QEMU has closed it.
//   - QEMU: its descriptors end with it; the VMI is over.
//   - The attachment pod: QEMU keeps the disk, which is open; the status says that
//     its attachment pod is gone until another one holds it.
//   - The kubelet, containerd: they are not needed here.
//
// The package must not make or delete pods, and must not name a pod in the
// status that the VMI's record does not name.
package nodehotplug
