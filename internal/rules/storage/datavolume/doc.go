// Package datavolume decides how a DataVolume's claim is created and filled, by which worker pods, and the DataVolume's
// status. It must neither read nor change the cluster: internal/controller/datavolume observes and applies the plan of
// Decide, and package workerpod renders the pods.
//
// # Phases
//
// A DataVolume goes through the phases of its path in order. It skips none, since others wait for them (a VM's
// provisioning pod for WaitForFirstConsumer), and never goes back. Failed can follow any.
//
//	import  Pending [WaitForFirstConsumer] PVCBound ImportScheduled ImportInProgress Succeeded
//	upload  Pending [WaitForFirstConsumer] PVCBound UploadScheduled UploadReady Succeeded
//	copy    Pending [WaitForFirstConsumer] PVCBound CloneScheduled CloneInProgress Succeeded
//	clone   Pending [WaitForFirstConsumer] CloneScheduled CSICloneInProgress Succeeded
//	restore Pending [WaitForFirstConsumer] CloneScheduled CloneFromSnapshotSourceInProgress Succeeded
//	adopt   Pending [WaitForFirstConsumer] Succeeded
//
// Import covers http, registry and blank. Two workers copy; the storage driver clones, and restores a VolumeSnapshot
// (snapshot.go). Adopt takes over a filled claim. WaitForFirstConsumer is on the path if the class waits for a consumer
// and immediate binding was not requested.
//
//	Pending               the claim does not exist or is not bound
//	WaitForFirstConsumer  the claim exists; a pod that uses it must be scheduled
//	PVCBound              the claim is bound; there is no worker yet
//	…Scheduled            the worker pod exists
//	…InProgress, …Ready   its container has started; it accepts an upload
//	Succeeded             the worker ended with Result Completed, or the driver's claim is bound
//	Failed                a permanent Result; the claim was lost
//
// # Failures
//
// Names follow from the DataVolume, so creation is idempotent and Decide needs no memory but the cluster.
//
//   - virt-controller stops: the next reconciliation sees its effects. The status is written before the worker whose
//     result it reports is deleted.
//   - Stale caches: NeedDataVolume precedes the creation of a claim or worker, so that no claim is filled again after
//     Succeeded.
//   - The worker's container ends: the kubelet restarts it with backoff. An event reports each new reason.
//   - The worker's pod is deleted or evicted, or its node is gone: another one is created once the pod is gone, since
//     two would write one disk.
//   - The claim is deleted: before it was bound, it is created again. Afterwards the DataVolume fails, so that the user
//     learns that the content is gone.
//   - The DataVolume is deleted: its objects have an owner reference. A source pod or a restored claim in another
//     namespace can't have one, so the DataVolume has a finalizer. Objects left after somebody removed that are deleted
//     once the API server has no DataVolume of its UID (leftover.go).
package datavolume
