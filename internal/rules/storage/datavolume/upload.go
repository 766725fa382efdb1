package datavolume

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// ObservedUpload is the input of DecideUpload, for a claim without a DataVolume.
type ObservedUpload struct {
	Claim *corev1.PersistentVolumeClaim
	// Confirmed, UsedBy and UsersAsked are as in Observed.
	Confirmed  bool
	UsedBy     string
	UsersAsked bool
	// Waited is the time for which the claim has been in use.
	Waited time.Duration
	Class  *storagev1.StorageClass
	Worker *corev1.Pod
	Config Config
}

// NeedClaim asks for the newest version of the claim.
const NeedClaim Question = "the newest version of the claim"

// Certificate is a worker's TLS certificate.
type Certificate struct {
	// Secret in Namespace holds it; Name is its subject.
	Namespace, Secret, Name string
	Server                  bool
}

// UploadCertificate returns the certificate of the worker for owner, a DataVolume or a claim.
func UploadCertificate(owner metav1.Object) Certificate {
	return Certificate{
		Namespace: owner.GetNamespace(), Secret: SecretName(transfer.UploadName(owner.GetName()), owner.GetUID()),
		Name: workertls.ServerName(owner.GetName(), owner.GetNamespace()), Server: true,
	}
}

// SourceCertificate returns the certificate of the source pod in namespace.
func SourceCertificate(dv *cdiv1.DataVolume, namespace string) Certificate {
	return Certificate{Namespace: namespace, Secret: SourcePodName(dv), Name: workertls.SourceName(dv.Name, dv.Namespace)}
}

// UploadPlan lists actions in the order of its fields.
type UploadPlan struct {
	// Needs is as in Plan.
	Needs        Question
	CreateWorker *Worker
	// Forget lists annotations to remove from the claim.
	Annotations  map[string]string
	Forget       []string
	DeleteWorker bool
	After        time.Duration
}

// TakesUpload reports whether a claim without a DataVolume is marked for an upload.
func TakesUpload(claim metav1.Object) bool {
	if _, asked := claim.GetAnnotations()[layout.AnnUploadTarget]; !asked {
		return false
	}
	owner := metav1.GetControllerOf(claim)
	return owner == nil || owner.Kind != "DataVolume"
}

// TookUpload reports whether annotations of an upload are left on a claim that is not marked any more.
func TookUpload(claim metav1.Object) bool {
	owner := metav1.GetControllerOf(claim)
	_, said := claim.GetAnnotations()[layout.AnnOverwrite]
	return said && !TakesUpload(claim) && (owner == nil || owner.Kind != "DataVolume")
}

// DecideUpload plans the next step of a claim that takes or took an upload. The annotation layout.AnnPodPhase is its
// memory: after Succeeded or Failed no worker is created.
func DecideUpload(o ObservedUpload) UploadPlan {
	w := observeWorker(o.Worker)
	if !TakesUpload(o.Claim) {
		return forgetUpload(o.Claim, &w)
	}
	phase := corev1.PodPhase(o.Claim.Annotations[layout.AnnPodPhase])
	ended := podstatus.TerminalPhase(phase)
	var p UploadPlan
	switch {
	case ended || o.Claim.DeletionTimestamp != nil:
		p.DeleteWorker = w.exists && !w.terminating
		return p
	case w.terminating, !w.exists && o.unbound():
		return p
	case w.unfit(overwrites(o.Claim)):
		p.DeleteWorker = true
		p.Annotations = uploadAnnotations(corev1.PodPending, false, ReasonWorkerGone, unfitWorker)
		return p
	case w.dead:
		p.DeleteWorker = true
	}
	p.Annotations = w.annotations()
	switch {
	case w.exists:
	case !o.Confirmed:
		// A filled claim must not be filled again.
		p.Needs = NeedClaim
	case !o.UsersAsked:
		p.Needs = NeedUsers
	case o.UsedBy != "":
		p.Annotations = uploadAnnotations(corev1.PodPending, false, ReasonClaimInUse, usedBy(o.UsedBy, o.Claim.Name))
		p.After = backoff.Growing(o.Waited, retry, longestRetry)
	default:
		p.CreateWorker = uploadWorker(o)
	}
	recordPermission(&p, &w, o)
	return p
}

// Guests wait until the worker is gone, and the next upload must not inherit the permission to overwrite.
func forgetUpload(claim *corev1.PersistentVolumeClaim, w *worker) UploadPlan {
	p := UploadPlan{DeleteWorker: w.exists && !w.terminating}
	if !TookUpload(claim) {
		return p
	}
	for _, name := range []string{layout.AnnPodPhase, layout.AnnPodReady, layout.AnnRunningReason, layout.AnnRunningMessage, layout.AnnOverwrite} {
		if _, said := claim.Annotations[name]; said {
			p.Forget = append(p.Forget, name)
		}
	}
	return p
}

// The permission is for this mark only. A worker that is ready and fit has found the claim empty or may overwrite it:
// from then on the content is the upload's own.
func recordPermission(p *UploadPlan, w *worker, o ObservedUpload) {
	said, exists := o.Claim.Annotations[layout.AnnOverwrite]
	switch {
	case w.completed:
		p.Annotations[layout.AnnOverwrite] = layout.AnnOverwriteDone
	case w.running && said == layout.AnnOverwriteAsked, w.running && w.ready && !overwrites(o.Claim):
		marking := string(o.Worker.UID)
		p.Annotations[layout.AnnUploadTarget], p.Annotations[layout.AnnOverwrite] = marking, marking
	case !exists:
		p.Annotations[layout.AnnOverwrite] = layout.AnnOverwriteRefused
	}
}

// overwrites reports whether the user permitted this mark's upload to replace the content.
func overwrites(claim *corev1.PersistentVolumeClaim) bool {
	switch said := claim.Annotations[layout.AnnOverwrite]; said {
	case layout.AnnOverwriteAsked:
		return true
	case "", layout.AnnOverwriteRefused, layout.AnnOverwriteDone:
		return false
	default:
		return said == claim.Annotations[layout.AnnUploadTarget]
	}
}

func (o ObservedUpload) unbound() bool {
	return o.Claim.Status.Phase != corev1.ClaimBound && waits(o.Class) && !WantsImmediate(&cdiv1.DataVolume{}, o.Claim)
}

// reportClaim sets the annotations that a claim without a DataVolume has: upstream's virtctl waits for them.
func (d *decision) reportClaim() {
	dv, claim := d.DataVolume, d.Claim
	if dv.DeletionTimestamp != nil || dv.Spec.Source == nil || dv.Spec.Source.Upload == nil ||
		claim == nil || claim.DeletionTimestamp != nil || !metav1.IsControlledBy(claim, dv) || isFilled(dv, claim) {
		return
	}
	var wanted map[string]string
	switch {
	case d.plan.Status.Phase == cdiv1.Succeeded:
		wanted = uploadAnnotations(corev1.PodSucceeded, false, ReasonCompleted, uploadComplete)
	case d.plan.Status.Phase == cdiv1.Failed:
		running := condition{}
		if c := lastCondition(d.plan.Status.Conditions, cdiv1.DataVolumeRunning); c != nil {
			running = isFalse(c.Reason, c.Message)
		}
		wanted = uploadAnnotations(corev1.PodFailed, false, running.reason, running.message)
	case d.worker.exists:
		wanted = d.worker.annotations()
	}
	for name, value := range wanted {
		if claim.Annotations[name] == value {
			delete(wanted, name)
		}
	}
	d.plan.AnnotateClaim = wanted
}

const (
	uploadComplete = "Upload Complete"
	unfitWorker    = "the worker pod was made for another answer to whether the claim's content may be replaced; another is made when it is gone"
)

func uploadAnnotations(phase corev1.PodPhase, ready bool, reason, words string) map[string]string {
	return map[string]string{
		layout.AnnPodPhase: string(phase), layout.AnnPodReady: strconv.FormatBool(ready), layout.AnnRunningReason: reason, layout.AnnRunningMessage: words,
	}
}

func (w *worker) annotations() map[string]string {
	phase, reason, words := corev1.PodPending, w.reason, w.waiting
	switch {
	case w.completed:
		phase, reason, words = corev1.PodSucceeded, ReasonCompleted, uploadComplete
	case w.permanent():
		phase, reason, words = corev1.PodFailed, string(w.failure.Reason), w.failure.Message
	case w.running:
		phase, reason, words = corev1.PodRunning, ReasonPodRunning, ""
	case w.failure != nil:
		reason, words = string(w.failure.Reason), w.failure.Message
	}
	return uploadAnnotations(phase, w.running && w.ready, reason, words)
}

func uploadWorker(o ObservedUpload) *Worker {
	certificate := UploadCertificate(o.Claim)
	return &Worker{
		Name: transfer.UploadName(o.Claim.Name), Namespace: o.Claim.Namespace, Component: ComponentUpload, Claim: o.Claim,
		Certificate: &certificate,
		Task: transfer.Task{
			Kind: transfer.KindUpload, Block: IsBlock(o.Claim), Size: diskOf(o.Claim, o.Config), Preallocate: o.Config.Preallocate,
			Archive:     o.Claim.Annotations[layout.AnnContentType] == string(cdiv1.DataVolumeArchive),
			KeepContent: !overwrites(o.Claim),
		},
	}
}
