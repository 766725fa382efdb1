package datavolume

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/transfer"
)

// Annotations of a claim that takes an upload without a DataVolume. The claim's
// owner sets the first; clients read the others.
const (
	AnnUploadTarget  = group + "/storage.upload.target"
	AnnPodPhase      = group + "/storage.pod.phase"
	AnnPodReady      = group + "/storage.pod.ready"
	AnnRunningReason = group + "/storage.condition.running.reason"
	AnnRunningWords  = group + "/storage.condition.running.message"
)

// ObservedUpload is what is known of a claim that takes an upload by itself.
type ObservedUpload struct {
	Claim  *corev1.PersistentVolumeClaim
	Class  *storagev1.StorageClass
	Worker *corev1.Pod
	Config Config
}

// UploadPlan is what is to be done for it. The worker is made first, then the
// annotations are set, then it is deleted.
type UploadPlan struct {
	CreateWorker *Worker
	Annotations  map[string]string
	DeleteWorker bool
}

// TakesUpload tells whether the claim waits for an upload of its own.
func TakesUpload(claim metav1.Object) bool {
	if _, asked := claim.GetAnnotations()[AnnUploadTarget]; !asked {
		return false
	}
	owner := metav1.GetControllerOf(claim)
	return owner == nil || owner.Kind != "DataVolume"
}

// DecideUpload plans the next step of such a claim. The annotation AnnPodPhase is
// its memory: once it says Succeeded or Failed nothing is made again.
func DecideUpload(o ObservedUpload) UploadPlan {
	w := look(o.Worker)
	phase := corev1.PodPhase(o.Claim.Annotations[AnnPodPhase])
	ended := phase == corev1.PodSucceeded || phase == corev1.PodFailed
	var p UploadPlan
	switch {
	case ended || o.Claim.DeletionTimestamp != nil:
		p.DeleteWorker = w.exists && !w.terminating
		return p
	case w.terminating, !w.exists && o.unbound():
		return p
	case w.dead:
		p.DeleteWorker = true
	case !w.exists:
		p.CreateWorker = uploadWorker(o)
	}
	p.Annotations = w.annotations()
	return p
}

// unbound tells whether the claim waits for a first consumer other than the
// worker.
func (o ObservedUpload) unbound() bool {
	return o.Claim.Status.Phase != corev1.ClaimBound && waits(o.Class) && !WantsImmediate(&cdiv1.DataVolume{}, o.Claim)
}

// annotations are what clients wait for.
func (w *worker) annotations() map[string]string {
	phase, reason, words := corev1.PodPending, w.reason, w.waiting
	switch {
	case w.completed:
		phase, reason, words = corev1.PodSucceeded, ReasonCompleted, "Upload Complete"
	case w.permanent():
		phase, reason, words = corev1.PodFailed, string(w.failure.Reason), w.failure.Message
	case w.running:
		phase, reason, words = corev1.PodRunning, ReasonPodRunning, ""
	case w.failure != nil:
		reason, words = string(w.failure.Reason), w.failure.Message
	}
	return map[string]string{
		AnnPodPhase: string(phase), AnnPodReady: strconv.FormatBool(w.running && w.ready),
		AnnRunningReason: reason, AnnRunningWords: words,
	}
}

func uploadWorker(o ObservedUpload) *Worker {
	name := transfer.UploadName(o.Claim.Name)
	return &Worker{
		Name: name, Namespace: o.Claim.Namespace, Component: ComponentUpload, Claim: o.Claim,
		Secret: SecretName(name, o.Claim.UID), Certificate: workertls.ServerName(o.Claim.Name, o.Claim.Namespace),
		Task: transfer.Task{
			Kind: transfer.KindUpload, Block: IsBlock(o.Claim), Size: diskOf(o.Claim, o.Config), Preallocate: o.Config.Preallocate,
			Archive: o.Claim.Annotations[AnnContentType] == string(cdiv1.DataVolumeArchive),
		},
	}
}
