// Package placement decides how the disks of a VMI come to be where the VMI
// fits, and when they are ready for it.
//
// Storage that is local to a node, in a class that waits for its first
// consumer, is made on the node of the first pod that uses it. That must not be
// the worker that fills it, which asks for less than the VMI, but a pod that
// asks for exactly what the VMI will ask for and does nothing: the provisioning
// pod.
//
//	claims and         a DataVolume          every claim       every DataVolume
//	DataVolumes        waits for its         is bound          is filled
//	appear             first consumer
//	   |                   |                     |                  |
//	   v                   v                     v                  v
//	Missing ─────> Filling ──────> Provisioning ──────> Filling ──────> Clear
//	   (a claim or     |           pod exists           pod is gone     launcher pod
//	   DataVolume      |               ^                                may be made
//	   is not there)   └── Divided ────┘
//	                       (bound claims are on nodes
//	                       that have none in common)
//
// Filling is also where a VMI waits for a DataVolume that has failed or that
// does not know its claim yet: a pod that lacks a claim would show the scheduler
// half of the picture.
//
// Who owns what: virt-controller makes and deletes the provisioning pod; the
// scheduler chooses its node; the storage's provisioner binds the claims; the
// DataVolume's owner (Drydock's loop, or CDI) says that it waits, and goes on
// when its claim is bound. Nothing is recorded: every step follows from what
// exists, so whoever dies in between, the next look finds the same way.
//
//   - virt-controller: the pod's name follows from the VMI's UID, so a second
//     creation meets the first; the VMI owns it, so it goes with the VMI.
//   - the pod (evicted, rejected by the kubelet, deleted): it is made again while
//     anything waits. It mounts nothing and its deletion needs no kubelet.
//   - the node, before the claims are bound: what the scheduler had settled on
//     (the claims' selected-node) is taken back, and it chooses again. That is so
//     for whichever pod the choice was made (DecideChoice).
//   - the VMI: the pod is deleted at once, the claims stay as they are.
//
// Invariants:
//   - There is no provisioning pod but while a DataVolume of a VMI that is to
//     start waits for its first consumer, or the claims that its pod carries are
//     still being bound.
//   - Clear is said only of claims and DataVolumes as the API server has them: a
//     guest must not find a disk that a worker writes to.
//
// It owns the decision only. It is pure: it must not import a client or read the
// clock, and how the pod looks is package launcherpod's.
package placement
