package layout

const storageAnnotations = "cdi.kubevirt.io/storage."

// CDI's annotations that the API's module lacks.
const (
	// AnnImmediate on a DataVolume or claim lets its worker be the first consumer.
	AnnImmediate   = storageAnnotations + "bind.immediate.requested"
	AnnContentType = storageAnnotations + "contentType"
	// AnnUploadTarget on a claim requests a worker for an upload.
	AnnUploadTarget = storageAnnotations + "upload.target"
	// AnnPodPhase and AnnPodReady on a claim are the state of its worker pod.
	AnnPodPhase = storageAnnotations + "pod.phase"
	AnnPodReady = storageAnnotations + "pod.ready"
	// AnnRunningReason and AnnRunningMessage describe the worker's progress, or why there is none.
	AnnRunningReason  = storageAnnotations + "condition.running.reason"
	AnnRunningMessage = storageAnnotations + "condition.running.message"
)

// AnnOverwrite on a claim for an upload is AnnOverwriteAsked if the upload may replace the claim's content, else
// AnnOverwriteRefused, which virt-controller writes if it is missing. When the worker runs, or has found the claim
// empty, so that any later content is the upload's, virt-controller sets it and the mark, AnnUploadTarget, to one
// value: marking the claim again thus voids the permission. It is AnnOverwriteDone when the claim has been filled.
const (
	AnnOverwrite        = "drydock.dev/upload-overwrites"
	AnnOverwriteAsked   = "true"
	AnnOverwriteRefused = "false"
	AnnOverwriteDone    = "done"
)

// AnnCloneWriters on a VM records who wrote each source in another namespace into its dataVolumeTemplates: they are cloned
// with that user's rights. Only virt-api writes it, and a restore in place restores it.
const AnnCloneWriters = "drydock.dev/clone-writers"
