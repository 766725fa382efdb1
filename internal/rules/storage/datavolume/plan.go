package datavolume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// Observed is the input of Decide. All of it may be stale.
type Observed struct {
	DataVolume *cdiv1.DataVolume
	// Confirmed means that DataVolume is the API server's newest version.
	Confirmed bool
	Claim     *corev1.PersistentVolumeClaim
	// Class is that of the claim, or of the claim to create.
	Class             *storagev1.StorageClass
	Profile           *cdiv1.StorageProfile
	Worker, SourcePod *corev1.Pod
	// Conflicting means that another owner has a pod of the worker's name.
	Conflicting bool
	// UsedBy names another pod or VMI that uses the claim ("pod web"), if UsersAsked.
	UsedBy     string
	UsersAsked bool
	// Warning is the newest warning event about Stuck's object, if WarningAsked.
	Warning      *objectevent.Warning
	WarningAsked bool
	// Progress is nil if the worker was not asked.
	Progress *transfer.Progress
	// Unreachable means that no connection to the asked worker came about.
	Unreachable bool
	Source      Source
	// Restored is the claim RestoredName in the source's namespace.
	Restored *corev1.PersistentVolumeClaim
	// Reference is the resolved sourceRef. DataVolume then has its result as spec.source.
	Reference ResolvedReference
	Config    Config
	Now       time.Time
}

// Question is an observation that Decide needs in some cases only, or in its newest version.
type Question string

// The questions.
const (
	NeedDataVolume Question = "the newest version of the DataVolume"
	NeedWriters    Question = "the pods that write to the source"
	// A cache must not answer NeedUsers.
	NeedUsers Question = "the pods and guests that use the claim"
	// NeedWarning is about the object that Stuck returns.
	NeedWarning  Question = "the newest warning about what does not go on"
	NeedProgress Question = "the worker's progress"
)

// Plan lists actions in the order of its fields: objects are created before the status reports them, and deleted
// afterwards.
type Plan struct {
	// Needs is a question to answer before any action of the plan is applied.
	Needs Question

	// AddFinalizer precedes an object that can't have an owner reference.
	AddFinalizer bool
	CreateClaim  *corev1.PersistentVolumeClaim
	// CreateRestored gets the content of a snapshot.
	CreateRestored *corev1.PersistentVolumeClaim
	// AdoptClaim makes the DataVolume the owner of a filled claim.
	AdoptClaim bool
	// CreateSourcePod reads the source of a copy.
	CreateWorker    *Worker
	CreateSourcePod *Worker

	Status        cdiv1.DataVolumeStatus
	AnnotateClaim map[string]string
	Event         *Event

	DeleteWorker, DeleteSourcePod bool
	DeleteRestored                bool
	RemoveFinalizer               bool

	// Again asks for another reconciliation at once, After for one later.
	Again bool
	After time.Duration
}

// Worker is a worker pod to create.
type Worker struct {
	Name, Namespace string
	Component       string
	Task            transfer.Task
	// A source pod reads Claim, another worker fills it.
	Claim       *corev1.PersistentVolumeClaim
	Certificate *Certificate
	// RestartsBefore counts those of its predecessors.
	RestartsBefore int32
}

// Event is about the DataVolume.
type Event struct {
	Type, Reason, Message string
}

// Decide plans the next step of a DataVolume.
func Decide(o Observed) Plan {
	d := decision{Observed: o, plan: Plan{Status: *o.DataVolume.Status.DeepCopy()}, worker: observeWorker(o.Worker)}
	switch stage := stages[o.DataVolume.Status.Phase]; {
	case o.DataVolume.DeletionTimestamp != nil:
		// Other objects have an owner reference.
		d.endSource()
	case stage == stageDone:
		d.decideEnded()
	default:
		d.advance()
	}
	d.reportClaim()
	if d.readsSource() && !o.Source.WritersAsked {
		d.needs(NeedWriters)
	}
	// A stale cache must not cause these twice.
	p := &d.plan
	makes := p.CreateClaim != nil || p.CreateRestored != nil || p.AdoptClaim || p.CreateWorker != nil || p.CreateSourcePod != nil
	if makes && !o.Confirmed {
		d.needs(NeedDataVolume)
	}
	// This is asked last, since a new user may appear at any moment.
	if d.fills && !o.UsersAsked {
		d.needs(NeedUsers)
	}
	return d.plan
}

type decision struct {
	Observed
	plan   Plan
	how    method
	worker worker
	// fills means that the plan lets content be written to the claim.
	fills bool
}

// readsSource reports whether the plan starts to read a clone's source; writers matter only then.
func (d *decision) readsSource() bool {
	return d.how == methodClone && d.plan.CreateClaim != nil ||
		d.how == methodCopy && !d.copiesSnapshot() && (d.plan.CreateWorker != nil || d.plan.CreateSourcePod != nil)
}

// The first question wins.
func (d *decision) needs(question Question) {
	if d.plan.Needs == "" {
		d.plan.Needs = question
	}
}

func (d *decision) phase() cdiv1.DataVolumePhase { return d.DataVolume.Status.Phase }
func (d *decision) stage() stage                 { return stages[d.phase()] }

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

func (d *decision) decideEnded() {
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

func (d *decision) advance() {
	d.plan.Status.ClaimName = d.DataVolume.Name
	if d.plan.Status.Progress == "" {
		d.plan.Status.Progress = progressUnknown
	}
	switch _, _, refers := Refers(d.DataVolume); {
	case refers:
		d.awaitReference()
		return
	case d.DataVolume.Spec.Source == nil:
		d.fail(ReasonError, "spec.source says nothing that Drydock could fill the claim from")
		return
	}
	d.how = methodOf(d.Observed)
	d.plan.Status.RestartCount = max(d.plan.Status.RestartCount, d.worker.restarts)
	if d.stage() == stageNone {
		d.step(stagePending)
		d.conditions()
		return
	}
	if d.Claim != nil && d.Claim.DeletionTimestamp != nil {
		// The claim stays while its worker mounts it.
		d.plan.DeleteWorker = d.worker.exists && !d.worker.terminating
	}
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

func mayAdopt(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	return metav1.GetControllerOf(claim) == nil && (claim.Annotations[AnnAdoption] == "true" || dv.Annotations[AnnAdoption] == "true")
}

// isFilled reports whether an annotation declares the claim filled.
func isFilled(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && (claim.Annotations[AnnPopulatedFor] == dv.Name || dv.Annotations[AnnPrePopulated] == claim.Name)
}

func (d *decision) make() *obstacle {
	if d.Claim == nil {
		return d.makeClaim()
	}
	if d.how != methodAdopt && mayAdopt(d.DataVolume, d.Claim) {
		if AwaitsUpload(d.Claim) {
			return &obstacle{reason: ReasonExists, message: uploadAwaited(d.Claim)}
		}
		d.plan.AdoptClaim, d.plan.Again = true, true
		return nil
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
	case d.isImportStarting():
		if stop := d.used(); stop != nil {
			d.plan.DeleteWorker = true
			return stop
		}
	}
	return nil
}

// isImportStarting reports whether an import's worker is about to start its container. It may have waited for
// long, and the claim may have a user since.
func (d *decision) isImportStarting() bool {
	w := &d.worker
	return d.how == methodImport && w.exists && d.Worker.Spec.NodeName != "" && !w.running && !w.completed && !w.permanent()
}

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

func (d *decision) mayWork() bool {
	if d.Claim.Status.Phase == corev1.ClaimBound {
		return d.stage() >= stageBound
	}
	return waits(d.Class) && WantsImmediate(d.DataVolume, d.Claim)
}

func (d *decision) busy() *obstacle {
	if d.how != methodCopy || d.copiesSnapshot() {
		return nil
	}
	if stop := unknownSource(d.Observed); stop != nil {
		return stop
	}
	return busySource(d.Observed)
}

func (d *decision) makeSource() *obstacle {
	switch {
	case d.SourcePod != nil && observeWorker(d.SourcePod).dead:
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
