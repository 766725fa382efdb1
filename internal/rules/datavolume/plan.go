package datavolume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/objectevent"
)

// Observed is what is known when a decision is made; all of it may be out of
// date.
type Observed struct {
	DataVolume *cdiv1.DataVolume
	// Confirmed means that DataVolume is the newest version that the API server has.
	Confirmed bool
	// Claim has the DataVolume's name, nil when there is none.
	Claim *corev1.PersistentVolumeClaim
	// Class is the claim's, or the one that it would get; nil when there is none.
	// Profile is the class's.
	Class   *storagev1.StorageClass
	Profile *cdiv1.StorageProfile
	// Worker has the worker's name and is the DataVolume's; SourcePod likewise.
	Worker, SourcePod *corev1.Pod
	// Conflicting says that a pod with the worker's name is somebody else's.
	Conflicting bool
	// UsedBy names a pod or a VMI that uses the claim beside its workers when UsersAsked, "pod web", say, empty when there is none.
	UsedBy     string
	UsersAsked bool
	// Warning is the newest one about the claim or the pod that Stuck names when
	// WarningAsked, nil when there is none.
	Warning      *objectevent.Warning
	WarningAsked bool
	// Progress is what the worker said, nil when it was not asked.
	Progress *transfer.Progress
	// Unreachable means that the worker was asked for it, and no connection to it came about.
	Unreachable bool
	Source   Source
	// Restored has the name RestoredName in the source's namespace, nil when there is none.
	Restored *corev1.PersistentVolumeClaim
	// Reference is where the DataVolume's sourceRef leads to. When it leads somewhere,
	// DataVolume has that as its source.
	Reference ResolvedReference
	Config    Config
	Now       time.Time
}

// Question is something that must be known for sure, or that is asked for only when a
// decision depends on it.
type Question string

const (
	// NeedDataVolume asks whether the DataVolume is the newest version.
	NeedDataVolume Question = "the newest version of the DataVolume"
	// NeedWriters asks for a pod that may write to a clone's source.
	NeedWriters Question = "the pods that write to the source"
	// NeedUsers asks for what uses the claim beside its workers. It must not be asked of a cache.
	NeedUsers Question = "the pods and guests that use the claim"
	// NeedWarning asks for the newest warning about what Stuck names.
	NeedWarning Question = "the newest warning about what does not go on"
	// NeedProgress asks the worker how far it is.
	NeedProgress Question = "the worker's progress"
)

// Plan is what is to be done, in the order of its fields: what is made is made
// before the status says so, and deleted when the status has said why.
type Plan struct {
	// Needs is what has to be asked before anything is done: then this is no plan, and
	// another one is to be made.
	Needs Question

	// AddFinalizer is needed before a pod or a claim is made that can't be owned.
	AddFinalizer bool
	CreateClaim  *corev1.PersistentVolumeClaim
	// CreateRestored is the claim that a snapshot is copied from.
	CreateRestored *corev1.PersistentVolumeClaim
	// AdoptClaim makes the DataVolume the owner of a claim that is filled.
	AdoptClaim bool
	// CreateWorker is the worker to be made, CreateSourcePod the one that sends.
	CreateWorker    *Worker
	CreateSourcePod *Worker

	Status cdiv1.DataVolumeStatus
	// AnnotateClaim are annotations that the claim lacks.
	AnnotateClaim map[string]string
	// Event is for the DataVolume's owner, nil when there is nothing to report.
	Event *Event

	DeleteWorker, DeleteSourcePod bool
	// DeleteRestored deletes Restored, which no pod reads any more.
	DeleteRestored  bool
	RemoveFinalizer bool

	// Again says that there is more to do at once, After that there will be.
	Again bool
	After time.Duration
}

// Worker is a worker pod to be made.
type Worker struct {
	Name, Namespace string
	Component       string
	Task            transfer.Task
	// Claim is filled, or by a source pod read; it is mounted.
	Claim *corev1.PersistentVolumeClaim
	// Certificate is nil when it needs none.
	Certificate *Certificate
	// RestartsBefore counts the restarts of the workers before it.
	RestartsBefore int32
}

// Event is what the DataVolume's owner is told.
type Event struct {
	Type, Reason, Message string
}

// Decide plans the next step of a DataVolume.
func Decide(o Observed) Plan {
	d := decision{Observed: o, plan: Plan{Status: *o.DataVolume.Status.DeepCopy()}, worker: look(o.Worker)}
	switch stage := stages[o.DataVolume.Status.Phase]; {
	case o.DataVolume.DeletionTimestamp != nil:
		d.release()
	case stage == stageDone:
		d.rest()
	default:
		d.advance()
	}
	d.reportClaim()
	if d.readsSource() && !o.Source.WritersAsked {
		d.needs(NeedWriters)
	}
	if d.plan.makes() && !o.Confirmed {
		d.needs(NeedDataVolume)
	}
	// It is asked last: what uses the claim may come at any moment.
	if d.fills && !o.UsersAsked {
		d.needs(NeedUsers)
	}
	return d.plan
}

// makes reports whether the plan gives the DataVolume something to be filled or to be
// filled by. What is filled must never be filled again because a cache lags.
func (p *Plan) makes() bool {
	return p.CreateClaim != nil || p.CreateRestored != nil || p.AdoptClaim || p.CreateWorker != nil || p.CreateSourcePod != nil
}

// decision is a plan in the making.
type decision struct {
	Observed
	plan   Plan
	how    method
	worker worker
	// fills means that content is about to come into the claim.
	fills bool
}

// readsSource reports whether the plan has a clone's source read: the claim is to be made
// by the driver, or one of the two pods that copy is. Who writes to the source is asked
// for only then, and not while it is read, however often the progress is.
func (d *decision) readsSource() bool {
	return d.how == methodClone && d.plan.CreateClaim != nil ||
		d.how == methodCopy && !d.copiesSnapshot() && (d.plan.CreateWorker != nil || d.plan.CreateSourcePod != nil)
}

// needs asks a question first. Of several, the first one is asked first.
func (d *decision) needs(question Question) {
	if d.plan.Needs == "" {
		d.plan.Needs = question
	}
}

func (d *decision) phase() cdiv1.DataVolumePhase { return d.DataVolume.Status.Phase }
func (d *decision) stage() stage                 { return stages[d.phase()] }

// release ends what ownership does not end.
func (d *decision) release() {
	d.endSource()
}

// endSource deletes the source pod and what it has read of a snapshot, and then lets the DataVolume go.
func (d *decision) endSource() {
	restored := d.Restored != nil && ours(d.DataVolume, d.Restored)
	switch {
	case d.SourcePod != nil:
		d.plan.DeleteSourcePod = d.SourcePod.DeletionTimestamp == nil
	case restored:
		d.plan.DeleteRestored = d.Restored.DeletionTimestamp == nil
	default:
		d.plan.RemoveFinalizer = hasFinalizer(d.DataVolume)
	}
}

// rest is for a DataVolume that has ended: its worker goes, and its conditions
// stay true.
func (d *decision) rest() {
	retain := d.DataVolume.Annotations[AnnRetain] == "true"
	d.plan.DeleteWorker = d.worker.exists && !d.worker.terminating && !retain
	d.endSource()
	d.set(cdiv1.DataVolumeBound, boundCondition(d.DataVolume, d.Claim))
	if d.phase() != cdiv1.Succeeded {
		return
	}
	bound := d.Claim != nil && d.Claim.Status.Phase == corev1.ClaimBound
	if bound {
		d.set(cdiv1.DataVolumeReady, isTrue("", ""))
	} else {
		d.set(cdiv1.DataVolumeReady, isFalse(ReasonNotFound, fmt.Sprintf("the filled claim %s is gone or lost its volume", d.DataVolume.Name)))
	}
}

// advance makes what is missing and says how far it is.
func (d *decision) advance() {
	d.plan.Status.ClaimName = d.DataVolume.Name
	if d.plan.Status.Progress == "" {
		d.plan.Status.Progress = progressUnknown
	}
	switch _, _, refers := Refers(d.DataVolume); {
	case refers:
		d.lookUp()
		return
	case d.DataVolume.Spec.Source == nil:
		d.fail(ReasonError, "spec.source says nothing that Drydock could fill the claim from")
		return
	}
	d.how = methodOf(d.Observed)
	d.plan.Status.RestartCount = max(d.plan.Status.RestartCount, d.worker.restarts)
	if d.stage() == stageNone {
		// The first word, before anything is made.
		d.step(stagePending)
		d.conditions()
		return
	}
	d.letClaimGo()
	stop := d.stopped()
	if stop == nil {
		stop = d.make()
	}
	if stop != nil {
		d.conditions()
		d.stopAt(stop)
		return
	}
	d.step(d.reached())
	d.conditions()
	d.reportFailure()
}

// letClaimGo ends the worker of a claim that is being deleted: it goes only when no pod
// uses it.
func (d *decision) letClaimGo() {
	if d.Claim != nil && d.Claim.DeletionTimestamp != nil {
		d.plan.DeleteWorker = d.worker.exists && !d.worker.terminating
	}
}

// stopped is what ends or stops the DataVolume where it is.
func (d *decision) stopped() *obstacle {
	dv := d.DataVolume
	if o := notAllowed(dv); o != nil {
		return o
	}
	if d.worker.permanent() && d.how.byWorker() {
		return &obstacle{reason: string(d.worker.failure.Reason), message: d.worker.failure.Message, permanent: true}
	}
	claim := d.Claim
	begun := d.stage() >= stageBound
	switch {
	case claim == nil && begun:
		return &obstacle{reason: ReasonClaimLost, message: claimDeleted(dv), permanent: true}
	case claim == nil:
		return nil
	case claim.DeletionTimestamp != nil && begun:
		return &obstacle{reason: ReasonClaimLost, message: fmt.Sprintf("the claim %s is being deleted before it was filled: "+
			"delete the DataVolume to begin again", dv.Name), permanent: true}
	case claim.DeletionTimestamp != nil:
		return &obstacle{reason: ReasonPending, message: fmt.Sprintf("the claim %s is being deleted", dv.Name), passing: true}
	case claim.Status.Phase == corev1.ClaimLost:
		return &obstacle{reason: ReasonClaimLost, message: fmt.Sprintf("the claim %s has lost its volume %s: "+
			"delete the DataVolume to begin again", dv.Name, claim.Spec.VolumeName), permanent: true}
	case metav1.IsControlledBy(claim, dv), d.how == methodAdopt, mayAdopt(dv, claim):
		return nil
	}
	return &obstacle{reason: ReasonExists, message: fmt.Sprintf("the claim %s exists and is not of this DataVolume: "+
		"delete it, or annotate it with %s=true when it is filled already", dv.Name, AnnAdoption)}
}

func claimDeleted(dv *cdiv1.DataVolume) string {
	return fmt.Sprintf("the claim %s was deleted before it was filled: delete the DataVolume to begin again", dv.Name)
}

// mayAdopt reports whether a claim of nobody is offered to the DataVolume.
func mayAdopt(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	return metav1.GetControllerOf(claim) == nil && (claim.Annotations[AnnAdoption] == "true" || dv.Annotations[AnnAdoption] == "true")
}

// isFilled reports whether the claim is filled already, by somebody's word.
func isFilled(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && (claim.Annotations[AnnPopulatedFor] == dv.Name || dv.Annotations[AnnPrePopulated] == claim.Name)
}

// make plans what is missing: the claim, and when that is bound, the workers.
func (d *decision) make() *obstacle {
	if d.Claim == nil {
		return d.makeClaim()
	}
	if d.how != methodAdopt && mayAdopt(d.DataVolume, d.Claim) {
		return d.adopt()
	}
	if !d.how.byWorker() || !d.mayWork() {
		return nil
	}
	if wait, stop := d.restore(); wait || stop != nil {
		return stop
	}
	if stop := d.makeWorker(); stop != nil {
		return stop
	}
	if d.how == methodCopy && !d.worker.completed {
		return d.makeSource()
	}
	return nil
}

// makeWorker plans the worker that fills the claim.
func (d *decision) makeWorker() *obstacle {
	switch {
	case d.Conflicting:
		return &obstacle{reason: ReasonExists, message: fmt.Sprintf("a pod %s exists that is not of this DataVolume", WorkerName(d.DataVolume))}
	case d.worker.terminating:
		return &obstacle{reason: ReasonWorkerGone, message: "the worker pod is being deleted; another is made when it is gone", passing: true}
	case d.worker.dead:
		d.plan.DeleteWorker = true
		return &obstacle{reason: d.failureReason(), message: d.worker.failure.Message}
	case !d.worker.exists:
		for _, check := range []func() *obstacle{d.busy, d.used} {
			if stop := check(); stop != nil {
				return stop
			}
		}
		d.plan.CreateWorker = d.newWorker()
		d.plan.Again = true
	case d.begins():
		if stop := d.used(); stop != nil {
			d.plan.DeleteWorker = true
			return stop
		}
	}
	return nil
}

// begins reports whether a worker that brings the content by itself has its node and is about to begin, for the
// first time or again: it may have waited for a long time.
func (d *decision) begins() bool {
	w := &d.worker
	return d.how == methodImport && w.exists && d.Worker.Spec.NodeName != "" && !w.running && !w.completed && !w.permanent()
}

// adopt plans to take over a claim that is filled.
func (d *decision) adopt() *obstacle {
	if AwaitsUpload(d.Claim) {
		return &obstacle{reason: ReasonExists, message: uploadAwaited(d.Claim)}
	}
	d.plan.AdoptClaim, d.plan.Again = true, true
	return nil
}

// makeClaim plans the claim, when enough is known of what it is for.
func (d *decision) makeClaim() *obstacle {
	if _, said := d.DataVolume.Annotations[AnnPrePopulated]; said {
		return &obstacle{reason: ReasonNotFound, message: fmt.Sprintf("the claim %s is said to be filled and does not exist", d.DataVolume.Name)}
	}
	if stop := unknownSource(d.Observed); stop != nil {
		return stop
	}
	if d.how == methodClone {
		if stop := busySource(d.Observed); stop != nil {
			return stop
		}
	}
	if name := ClassName(d.DataVolume); name != nil && *name != "" && d.Class == nil {
		return &obstacle{reason: ReasonNoClass, message: fmt.Sprintf("there is no StorageClass %s", *name)}
	}
	d.plan.CreateClaim = newClaim(d.Observed, d.how)
	d.plan.Again = true
	return nil
}

// mayWork reports whether a worker may use the claim: it is bound, or the worker
// shall be its first consumer.
func (d *decision) mayWork() bool {
	if d.Claim.Status.Phase == corev1.ClaimBound {
		return d.stage() >= stageBound
	}
	return waits(d.Class) && WantsImmediate(d.DataVolume, d.Claim)
}

// busy is the obstacle when the source of a copy can't be read now.
func (d *decision) busy() *obstacle {
	if d.how != methodCopy || d.copiesSnapshot() {
		return nil
	}
	if stop := unknownSource(d.Observed); stop != nil {
		return stop
	}
	return busySource(d.Observed)
}

// makeSource plans the pod that reads the source of a copy.
func (d *decision) makeSource() *obstacle {
	switch {
	case d.SourcePod != nil && look(d.SourcePod).dead:
		d.plan.DeleteSourcePod = d.SourcePod.DeletionTimestamp == nil
		return nil
	case d.SourcePod != nil:
		return nil
	case d.needsFinalizer():
		d.plan.AddFinalizer, d.plan.Again = true, true
		return nil
	}
	for _, check := range []func() *obstacle{d.busy, d.used} {
		if stop := check(); stop != nil {
			return stop
		}
	}
	d.plan.CreateSourcePod = d.newSource()
	return nil
}

// needsFinalizer reports whether the source's namespace is another, where nothing can be owned, and the DataVolume does
// not wait yet for what is there.
func (d *decision) needsFinalizer() bool {
	namespace, _, _ := SourceOf(&d.DataVolume.Spec, d.DataVolume.Namespace)
	return namespace != d.DataVolume.Namespace && !hasFinalizer(d.DataVolume)
}

func hasFinalizer(dv *cdiv1.DataVolume) bool {
	for _, f := range dv.Finalizers {
		if f == Finalizer {
			return true
		}
	}
	return false
}
