// Package placement decides how a VMI's disks are placed on a node where the VMI fits, and when they are ready for it.
// It must not import a client or read the clock. Package launcherpod renders the pod.
//
// Node-local storage of a class that waits for its first consumer is created on that pod's node. The worker that fills
// the claim requests less than the VMI, so it must not be the first: the provisioning pod is, which requests exactly as
// much as the VMI and does nothing.
//
//	claims and         a DataVolume          every claim       every DataVolume
//	DataVolumes        waits for its         is bound          is filled
//	appear             first consumer
//	   |                   |                     |                  |
//	   v                   v                     v                  v
//	Missing ─────> Filling ──────> Provisioning ──────> Filling ──────> Clear
//	   (a claim or     |           pod exists           pod is gone     launcher pod
//	   DataVolume      |               ^                                may be created
//	   is missing)     └── Divided ────┘
//	                       (no node has all
//	                       bound claims)
//
// Filling also covers a DataVolume that has failed or has no claim yet: without all claims the scheduler could choose a
// node where the VMI does not fit. Every step follows from existing objects.
//
//   - The pod is evicted, rejected or deleted: it is created again while a claim waits. It mounts nothing, so its
//     deletion needs no kubelet.
//   - The node is lost before the claims are bound: the scheduler chooses again (DecideChoice).
//
// Invariants:
//   - A provisioning pod exists only while a DataVolume of a VMI that is to start waits for its first consumer, or while
//     the pod's claims or the pod itself are being bound.
//   - Clear is decided only on claims and DataVolumes from the API server: a guest must not get a disk that a worker
//     writes to.
//
// A halted VM's disks are placed alike for a maintenance pod, which then owns the provisioning pod (package
// maintenance); otherwise the VMI does.
package placement
