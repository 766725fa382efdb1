// Package datavolume decides how the claim of a DataVolume is made and filled:
// what the claim looks like, which worker is needed when, and what the status says.
//
// It is pure: it must neither read nor change the cluster. Package
// internal/controller/datavolume observes, calls Decide and does what is planned;
// package workerpod renders the pods.
//
// # Phases
//
// A DataVolume goes through the phases of its path in order and skips none, since
// others wait for them (a VM's provisioning pod for WaitForFirstConsumer). It
// never goes back. Failed can follow on every phase.
//
//	import  Pending [WaitForFirstConsumer] PVCBound ImportScheduled ImportInProgress Succeeded
//	upload  Pending [WaitForFirstConsumer] PVCBound UploadScheduled UploadReady Succeeded
//	copy    Pending [WaitForFirstConsumer] PVCBound CloneScheduled CloneInProgress Succeeded
//	clone   Pending [WaitForFirstConsumer] CloneScheduled CSICloneInProgress Succeeded
//	restore Pending [WaitForFirstConsumer] CloneScheduled CloneFromSnapshotSourceInProgress Succeeded
//	adopt   Pending [WaitForFirstConsumer] Succeeded
//
// Import is http, registry and blank; copy is a clone by two workers, clone one
// by the storage driver; restore is a claim from a VolumeSnapshot, and copy one from a VolumeSnapshot that is elsewhere
// or of another volume mode, by way of a claim beside it (snapshot.go); adopt takes a
// claim that is filled already. WaitForFirstConsumer is part of the path when the
// class waits and immediate binding was not asked for.
//
//	Pending               the claim is to be made, or to be bound
//	WaitForFirstConsumer  the claim exists; a pod that uses it must be scheduled
//	PVCBound              the claim is bound; a worker is to be made
//	…Scheduled            the worker pod exists
//	…InProgress, …Ready   its container has started; takes an upload
//	Succeeded             the worker ended with Result Completed, or the driver has
//	                      bound the cloned claim
//	Failed                a Result for which Permanent is true; the claim was lost
//
// # When a part dies
//
// Every object has a name that follows from the DataVolume's, so that making it
// twice makes it once; Decide needs no memory but the cluster.
//
//   - virt-controller between two actions: the next round sees what was done. The
//     status is written before the worker whose result it reports is deleted.
//   - Stale caches: before a claim or a worker is made, the decision asks for the
//     newest DataVolume (NeedDataVolume), so that nothing is filled again after
//     Succeeded.
//   - The worker's container: the kubelet restarts it, with back-off; the restarts
//     are counted. The reason is in the status meanwhile; an event reports it when it
//     has changed.
//   - The worker's pod (deleted, evicted, node gone): when it is gone, another is
//     made. While it is terminating nothing is: two would write one disk.
//   - The claim, before it was bound: made again. Afterwards: Failed, so that
//     the user learns that the content is gone.
//   - The DataVolume: claim, worker, Service and Secret go by ownership. A source
//     pod in another namespace can't be owned, nor a claim that a snapshot is restored to there; for them
//     the DataVolume has a finalizer from before they are made until they are gone.
package datavolume
