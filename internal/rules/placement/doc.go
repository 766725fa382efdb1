// Package placement decides how the disks of a VMI are placed on a node where the
// VMI fits, and when they are ready for it.
//
// Storage that is local to a node, in a class that waits for its first
// consumer, is made on the node of the first pod that uses it. That pod must not be the
// worker that fills the claim, which requests less than the VMI, but a pod that requests
// exactly what the VMI will request and does nothing: the provisioning pod.
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
// does not know its claim yet: without all claims the scheduler could choose a
// node where the VMI does not fit.
//
// Who owns what: virt-controller makes and deletes the provisioning pod; the
// scheduler chooses its node; the storage's provisioner binds the claims; the
// DataVolume's owner (Drydock's loop, or CDI) says that it waits, and goes on
// when its claim is bound. Nothing is recorded: every step follows from what
// exists, so after a crash of any part the next round continues.
//
//   - virt-controller: the pod's name follows from the VMI's UID, so a second
//     creation meets the first; the VMI owns it, so it goes with the VMI.
//   - the pod (evicted, rejected by the kubelet, deleted): it is made again while
//     anything waits. It mounts nothing and its deletion needs no kubelet.
//   - the node, before the claims are bound: the scheduler's choice (the
//     claims' selected-node) is taken back, and it chooses again, whichever pod the
//     choice was made for (DecideChoice).
//   - the VMI: the pod is deleted at once, the claims stay as they are.
//
// Invariants:
//   - A provisioning pod exists only while a DataVolume of a VMI that is to start
//     waits for its first consumer, or the pod's claims or the pod itself are still being bound.
//   - Clear is decided only on claims and DataVolumes that were read from the API
//     server: a guest must not get a disk that a worker writes to.
//
// A maintenance pod has the disks of a machine that does not run placed by the same rule; the provisioning pod is that
// pod's then (package maintenance).
//
// It owns the decision only. It is pure: it must not import a client or read the
// clock, and how the pod looks is package launcherpod's.
package placement
