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

// AnnOverwrite on a claim that takes an upload lets the upload replace what the claim holds, if it is AnnOverwriteAsked, and
// does not if it is AnnOverwriteRefused, which virt-controller writes where there is nothing. When the worker runs, or has
// found the claim to be empty, so that what is there from then on is the upload's own, virt-controller gives it and the mark,
// AnnUploadTarget, one value: whoever marks the claim once more makes the permission void. It is AnnOverwriteDone when the claim
// has been filled.
const (
	AnnOverwrite        = "drydock.dev/upload-overwrites"
	AnnOverwriteAsked   = "true"
	AnnOverwriteRefused = "false"
	AnnOverwriteDone    = "done"
)

// AnnCloneWriters on a VM says who wrote each source in another namespace that its dataVolumeTemplates name: whose right its
// DataVolumes are cloned with. Only virt-api writes it, and a restore in place brings
// back what was written.
const AnnCloneWriters = "drydock.dev/clone-writers"
