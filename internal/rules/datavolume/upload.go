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
	"drydock.dev/drydock/internal/rules/podstatus"
)

// ObservedUpload is what is known of a claim that takes an upload by itself.
type ObservedUpload struct {
	Claim *corev1.PersistentVolumeClaim
	// Confirmed means that Claim is the newest version that the API server has.
	Confirmed bool
	// UsedBy and UsersAsked are as those of Observed.
	UsedBy     string
	UsersAsked bool
	Class      *storagev1.StorageClass
	Worker     *corev1.Pod
	Config     Config
}

// NeedClaim asks whether a claim that takes an upload is the newest version.
const NeedClaim Question = "the newest version of the claim"

// Certificate is what a worker shows to its peer.
type Certificate struct {
	// Secret in Namespace holds it; Name is what it says.
	Namespace, Secret, Name string
	// Server distinguishes one that serves from one that calls.
	Server bool
}

// UploadCertificate is that of the worker that takes what is sent for the owner, a
// DataVolume or a claim.
func UploadCertificate(owner metav1.Object) Certificate {
	return Certificate{
		Namespace: owner.GetNamespace(), Secret: SecretName(transfer.UploadName(owner.GetName()), owner.GetUID()),
		Name: workertls.ServerName(owner.GetName(), owner.GetNamespace()), Server: true,
	}
}

// SourceCertificate is that of the worker in another namespace, or the same, that
// sends a clone into the DataVolume's claim.
func SourceCertificate(dv *cdiv1.DataVolume, namespace string) Certificate {
	return Certificate{Namespace: namespace, Secret: SourcePodName(dv), Name: workertls.SourceName(dv.Name, dv.Namespace)}
}

// UploadPlan is what is to be done for it. The worker is made first, then the
// annotations are set, then it is deleted.
type UploadPlan struct {
	// Needs is what has to be asked before anything is done: then this is no plan.
	Needs        Question
	CreateWorker *Worker
	// Annotations are those that the claim is to have, Forget those that it is to lose.
	Annotations  map[string]string
	Forget       []string
	DeleteWorker bool
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// TakesUpload reports whether the claim waits for an upload of its own.
func TakesUpload(claim metav1.Object) bool {
	if _, asked := claim.GetAnnotations()[layout.AnnUploadTarget]; !asked {
		return false
	}
	owner := metav1.GetControllerOf(claim)
	return owner == nil || owner.Kind != "DataVolume"
}

// TookUpload reports whether the claim says something of an upload that it does not wait for any more: its mark is gone.
func TookUpload(claim metav1.Object) bool {
	owner := metav1.GetControllerOf(claim)
	_, said := claim.GetAnnotations()[layout.AnnOverwrite]
	return said && !TakesUpload(claim) && (owner == nil || owner.Kind != "DataVolume")
}

// DecideUpload plans the next step of such a claim, or of one that has been such a claim. The annotation
// layout.AnnPodPhase is its memory: once it says Succeeded or Failed nothing is made again.
func DecideUpload(o ObservedUpload) UploadPlan {
	w := look(o.Worker)
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
	if !w.exists {
		o.begin(&p)
	}
	notePermission(&p, &w, o)
	return p
}

// begin has the worker made, if nobody else has the claim.
func (o ObservedUpload) begin(p *UploadPlan) {
	switch {
	case !o.Confirmed:
		// One that was filled must not be filled again.
		p.Needs = NeedClaim
	case !o.UsersAsked:
		p.Needs = NeedUsers
	case o.UsedBy != "":
		p.Annotations = uploadAnnotations(corev1.PodPending, false, ReasonClaimInUse, usedBy(o.UsedBy, o.Claim.Name))
		p.After = retry
	default:
		p.CreateWorker = uploadWorker(o)
	}
}

// forgetUpload ends the upload of a claim that is not marked any more: guests wait for the end of its worker, and the next
// marking must not find what was allowed for this one.
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

// notePermission keeps on the claim whether its content may be replaced, for this marking alone. A worker that listens and is
// not unfit has found the claim empty, or was told not to mind: from then on its content is the upload's own.
func notePermission(p *UploadPlan, w *worker, o ObservedUpload) {
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

// overwrites reports whether an upload may replace what the claim holds: that was asked for, or noted for this marking.
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

// unbound reports whether the claim waits for a first consumer other than the
// worker.
func (o ObservedUpload) unbound() bool {
	return o.Claim.Status.Phase != corev1.ClaimBound && waits(o.Class) && !WantsImmediate(&cdiv1.DataVolume{}, o.Claim)
}

// reportClaim has the claim of a DataVolume that takes an upload say what a claim
// says that takes one by itself: upstream's virtctl waits for that.
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

// annotations are what clients wait for.
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
