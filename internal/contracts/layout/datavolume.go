package layout

// storageAnnotations begins the annotations below.
const storageAnnotations = "cdi.kubevirt.io/storage."

// Annotations of claims and DataVolumes as CDI has them, for its clients. The API's
// module names none of these.
const (
	// AnnImmediate on a DataVolume or claim lets its worker be the first consumer.
	AnnImmediate = storageAnnotations + "bind.immediate.requested"
	// AnnContentType on a claim says what it holds.
	AnnContentType = storageAnnotations + "contentType"
	// AnnUploadTarget on a claim asks for a worker that takes an upload.
	AnnUploadTarget = storageAnnotations + "upload.target"
	// AnnPodPhase and AnnPodReady on a claim tell of its worker pod.
	AnnPodPhase = storageAnnotations + "pod.phase"
	AnnPodReady = storageAnnotations + "pod.ready"
	// AnnRunningReason and AnnRunningMessage say what the worker does, or why it does not.
	AnnRunningReason  = storageAnnotations + "condition.running.reason"
	AnnRunningMessage = storageAnnotations + "condition.running.message"
)
