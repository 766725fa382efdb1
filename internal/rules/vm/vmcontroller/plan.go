// Package vmcontroller decides virt-controller's actions for one VirtualMachine: whether its VMI exists, the VM's
// missing fields, and its status. It must not import a client or read the clock.
//
//	run strategy     no VMI                      VMI Succeeded   VMI Failed
//	Always           start                       start again     start again
//	RerunOnFailure   start, unless it has ended  keep            start again
//	Once             start, unless it has run    keep            keep
//	Manual           on request                  keep            keep
//	Halted           –                           delete          delete
//
// "Start again" deletes the finished VMI and creates a new one. If the guest did not run, it waits for a delay that
// grows with each consecutive failure (status.startFailure).
//
// Requests (status.stateChangeRequests) come first: Stop deletes the VMI that it names, Start creates one. A request
// leaves the list when it is done, so that an interrupted one is resumed.
//
// Invariants:
//   - A VMI is created only if none with the VM's name is known.
//   - One-time actions (a Start request, a start under Once or RerunOnFailure) happen once:
//     status.runStrategy and the requests are written after the VMI, and a VMI is created only for the
//     VM version that the API server has confirmed as the newest (NeedVM). Only a VMI that is deleted
//     between these two writes is created again: the VM still asks for it.
//   - A VM that is being deleted never gets a VMI and adopts nothing. The API server confirms that (NeedVM).
//   - A VM whose disks are being snapshotted or restored gets no VMI. One that is being restored gets no
//     DataVolume either (packages snapshot and restore).
//   - A VM that is locked for a maintenance pod gets no VMI (package maintenance).
//   - No VMI is created from a template whose claims are known to be incomplete copies (volumemigration.go).
//
// DataVolumes are created from the VM's dataVolumeTemplates as soon as the VM exists, and again if somebody deletes them.
// The VMI is created when each is filled or waits for its first consumer, the VMI (package placement).
package vmcontroller

import (
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
	"drydock.dev/drydock/internal/rules/vm/rollout"
)

// Observed is the input of a decision.
type Observed struct {
	VM               *v1.VirtualMachine
	VMConfirmed      bool                           // the API server has no newer version
	VMI              *v1.VirtualMachineInstance     // with the VM's name, whoever owns it
	VMIAsked         bool                           // even a nil VMI was read from the API server
	Started          *v1.VirtualMachineInstanceSpec // the template's spec from which the VMI was created, nil if unknown
	DataVolumes      []DataVolume                   // in the order of the VM's dataVolumeTemplates
	NamedDataVolumes []*cdiv1.DataVolume            // the others in the template's volumes
	DrainDisks       []DrainDisk                    // of the VM's own VMI
	// Destinations are the existing claims of DestinationNames, nil if nobody has asked.
	Destinations     map[string]*corev1.PersistentVolumeClaim
	Type, Preference *Referred
	Binding          string // interface binding of a VM that lists no network
	ReferencePolicy  v1.InstancetypeReferencePolicy
	Strategy         v1.VMRolloutStrategy
	Limits           clusterconfig.LiveUpdate
	Now              time.Time
}

// Question is a question that only the API server can answer.
type Question string

// The questions.
const (
	// NeedStored asks to store the plan's VM except for its status, and to plan again with the result.
	NeedStored Question = "the VM as it is completed"
	// NeedTemplate asks for the same after a drain has changed claims in the template.
	NeedTemplate Question = "the VM with other claims in its template"
	NeedVM       Question = "the newest version of the VM"
	NeedVMI      Question = "the VMI"
	// NeedDestinations asks for the claims of DestinationNames.
	NeedDestinations Question = "the claims to which disks are to be copied"
)

// Plan has actions in this order: release revisions, keep revisions, adopt, create the DataVolumes, create the VMI,
// sync, create and delete the destinations of a drain, patch the status, delete the VMI. The status comes before the
// deletion, since it holds the next steps.
type Plan struct {
	// Needs must be answered first; then another plan is made.
	Needs Question
	// VM is the desired VM, never nil. Apart from the status, only the finalizers and a missing firmware UUID differ,
	// with NeedStored, or a drain's claims, with NeedTemplate.
	VM *v1.VirtualMachine
	// ReleaseRevisions removes the VM from the owners of its ControllerRevisions if the garbage collector can't.
	ReleaseRevisions bool
	Keep             []Keep
	Adopt            bool // make the VM the owner of the VMI, which has none
	// AdoptDataVolumes have lost their VM or do not name it.
	CreateDataVolumes, AdoptDataVolumes []*cdiv1.DataVolume
	Create                              *v1.VirtualMachineInstance
	Revision                            *appsv1.ControllerRevision // the record of Create's template
	// Sync is the VMI with the template's changes that reach a running guest, and with the disks to copy in its status.
	Sync                                   *v1.VirtualMachineInstance
	CreateDestinations, DeleteDestinations []*cdiv1.DataVolume
	Delete                                 bool
	After                                  time.Duration // requeue delay, zero for none
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	d := &decision{Plan: Plan{VM: o.VM.DeepCopy()}, o: o}
	d.strategy, d.invalid = o.VM.RunStrategy()
	switch vmi := o.VMI; {
	case vmi == nil:
	case metav1.IsControlledBy(vmi, o.VM):
		d.vmi = vmi
	case adoptable(o.VM, vmi):
		d.vmi, d.Adopt = vmi, true
	default:
		d.conflicting = vmi
	}
	if o.VM.DeletionTimestamp != nil {
		d.expandVM()
		d.decideDeletion()
		if d.vmi != nil && d.vmi.DeletionTimestamp != nil && (!migration.InFlight(d.vmi) || d.vmi.IsFinal()) {
			d.dropDestinations()
		}
	} else {
		d.complete()
		d.expand()
		d.compareVolumes()
		d.decideVMI()
		d.drainDisks()
		d.followMemoryDump()
		d.syncTemplate()
		// A VM that is deleted with --cascade=orphan has released its guest and disks: it would delete what it adopts.
		if (d.Adopt || len(d.AdoptDataVolumes) > 0) && !d.o.VMConfirmed {
			d.needs(NeedVM)
		}
	}
	d.report()
	return d.Plan
}

type decision struct {
	Plan
	o                Observed
	strategy         v1.VirtualMachineRunStrategy
	invalid          error
	vmi, conflicting *v1.VirtualMachineInstance // conflicting has the VM's name and another owner
	start            bool                       // a VMI is to be created, now or after a delay
	disks            dataVolumes
	moves            moves
	dump             memorydump.Plan
	// expanded has the VM's type and preference, nil if they are not known; unexpanded is the reason.
	expanded   *v1.VirtualMachine
	unexpanded unexpanded
}

// unexpanded is why a VM's type and preference can't be applied. The zero value means that they can.
type unexpanded struct{ reason, message string }

func (d *decision) template() *v1.VirtualMachineInstanceTemplateSpec {
	if d.expanded == nil {
		return nil
	}
	return d.expanded.Spec.Template
}

// needs keeps the first of several questions.
func (d *decision) needs(question Question) {
	if d.Needs == "" {
		d.Needs = question
	}
}

// adoptable reports whether the VMI has lost a VM of this name by kubectl delete --cascade=orphan, after which the VM
// was created again.
func adoptable(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return metav1.GetControllerOf(vmi) == nil && vmi.DeletionTimestamp == nil &&
		vmi.Labels[v1.VirtualMachineLabel] == layout.LabelValue(vm.Name) && vm.DeletionTimestamp == nil
}

// Guests of this name had this UUID before UUIDs were persisted.
func (d *decision) complete() {
	if !slices.Contains(d.VM.Finalizers, v1.VirtualMachineControllerFinalizer) {
		d.VM.Finalizers = append(d.VM.Finalizers, v1.VirtualMachineControllerFinalizer)
		d.needs(NeedStored)
	}
	if t := d.VM.Spec.Template; t != nil && firmware.Missing(&t.Spec) {
		firmware.Set(&t.Spec, firmware.Legacy(d.VM.Name))
		d.needs(NeedStored)
	}
}

// If the VMI is to be orphaned, the garbage collector removes its owner reference.
func (d *decision) decideDeletion() {
	orphaned := slices.Contains(d.VM.Finalizers, metav1.FinalizerOrphanDependents)
	d.ReleaseRevisions = orphaned
	if d.vmi != nil {
		d.Delete = !orphaned && d.vmi.DeletionTimestamp == nil
		return
	}
	if !slices.Contains(d.VM.Finalizers, v1.VirtualMachineControllerFinalizer) {
		return
	}
	d.needs(NeedStored)
	d.VM.Finalizers = slices.DeleteFunc(d.VM.Finalizers, func(f string) bool {
		return f == v1.VirtualMachineControllerFinalizer
	})
	if len(d.VM.Finalizers) == 0 {
		d.VM.Finalizers = nil
	}
}

func (d *decision) decideVMI() {
	if d.invalid != nil || d.VM.Spec.Template == nil {
		return
	}
	d.classifyDisks()
	d.trackFailures()
	stop := d.dropCompletedRequests()
	requested := d.startRequested()
	switch {
	case d.vmi != nil && d.vmi.DeletionTimestamp != nil:
		d.start = requested || d.strategy == v1.RunStrategyAlways || d.changedStrategy()
	case d.vmi != nil && stop:
		d.Delete, d.start = true, requested
	case d.vmi != nil:
		d.decideExisting(requested)
	default:
		d.start = requested || d.strategy == v1.RunStrategyAlways || d.changedStrategy()
	}
	d.postponeDisks()
	if d.start && d.vmi == nil {
		d.createWhenDue()
	}
	d.recordStrategy()
}

// syncTemplate copies the template's changes that reach a running guest to the VMI. During a migration the VMI stays
// as it is, since both nodes read it.
func (d *decision) syncTemplate() {
	if !d.hasActiveVMI() || d.Adopt || d.Delete {
		return
	}
	vmi := d.vmi.DeepCopy()
	changed := d.moveVolumes(vmi)
	if !migration.InFlight(d.vmi) && d.template() != nil {
		changed = hotplugspec.SyncTemplate(vmi, d.templateForPlugging()) || changed
		changed = rollout.Carry(d.o.Strategy, vmi, &d.template().Spec) || changed
	}
	if d.dump.Changed {
		vmi.Spec.UtilityVolumes, changed = d.dump.Volumes, true
	}
	if changed {
		d.Sync = vmi
	}
}

// followMemoryDump needs the VMI from the API server before it calls a dump lost.
func (d *decision) followMemoryDump() {
	d.dump = memorydump.Decide(memorydump.Observed{Request: d.VM.Status.MemoryDumpRequest, VMI: d.vmi, Asked: d.o.VMIAsked, Now: d.o.Now})
	if d.dump.Ask {
		d.needs(NeedVMI)
		return
	}
	d.VM.Status.MemoryDumpRequest = d.dump.Request
}

func (d *decision) hasActiveVMI() bool {
	return d.vmi != nil && d.vmi.DeletionTimestamp == nil && !d.vmi.IsFinal() && d.VM.Spec.Template != nil
}

func (d *decision) decideExisting(requested bool) {
	final, failed := d.vmi.IsFinal(), d.vmi.Status.Phase == v1.Failed
	switch d.strategy {
	case v1.RunStrategyHalted:
		d.Delete = true
		return
	case v1.RunStrategyAlways:
		d.start = final
	case v1.RunStrategyRerunOnFailure:
		d.start = failed || final && requested
	default:
		d.start = final && requested
	}
	if !d.start {
		return
	}
	if wait := d.backOff(); wait > 0 && failed {
		// The failed VMI stays until then, since it has the error.
		d.After = wait
		return
	}
	d.Delete = true
	if d.strategy == v1.RunStrategyRerunOnFailure && !requested {
		// Without its VMI, only this request records that the VM must run again. An old VMI's failure must not add
		// another.
		if !d.o.VMIAsked {
			d.needs(NeedVMI)
		}
		d.VM.Status.StateChangeRequests = append(d.VM.Status.StateChangeRequests,
			v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	}
}

// changedStrategy reports whether the run strategy starts a VM when it is set, and has not yet.
func (d *decision) changedStrategy() bool {
	switch d.strategy {
	case v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure:
		return d.VM.Status.RunStrategy != d.strategy
	}
	return false
}

func (d *decision) createWhenDue() {
	if d.After = d.backOff(); d.After > 0 || d.template() == nil || d.conflicting != nil || d.needsRecovery() || d.maintained() {
		return
	}
	// The end of a snapshot or restore changes the VM, which enqueues it.
	if d.VM.Status.SnapshotInProgress != nil || d.VM.Status.RestoreInProgress != nil || d.VM.Annotations[stateclaim.AwaitedAnnotation] != "" {
		return
	}
	if len(d.disks.unready) > 0 || len(d.disks.coming) > 0 || d.disks.blocked != "" {
		return
	}
	if !d.o.VMConfirmed {
		d.needs(NeedVM)
	}
	d.Create, d.Revision = newVMI(d.VM, d.expanded, d.startRequest()), NewRevision(d.expanded)
	rollout.Prepare(&d.Create.Spec, d.o.Strategy, d.o.Limits)
	d.VM.Status.StateChangeRequests = slices.DeleteFunc(d.VM.Status.StateChangeRequests,
		func(r v1.VirtualMachineStateChangeRequest) bool { return r.Action == v1.StartRequest })
	if len(d.VM.Status.StateChangeRequests) == 0 {
		d.VM.Status.StateChangeRequests = nil
	}
}

func (d *decision) recordStrategy() {
	if d.start && d.Create == nil && d.changedStrategy() {
		return
	}
	d.VM.Status.RunStrategy = d.strategy
}

// CreateFailed returns the VM with the status for a failed creation, with the sentence in a condition.
func CreateFailed(o Observed, p Plan, sentence string) *v1.VirtualMachine {
	out := p.VM.DeepCopy()
	out.Status.RunStrategy = o.VM.Status.RunStrategy
	out.Status.StateChangeRequests = o.VM.Status.StateChangeRequests
	out.Status.Created = o.VM.Status.Created
	if before := condition.Find(o.VM.Status.Conditions, v1.VirtualMachineFailure); before != nil {
		out.Status.Conditions = append(out.Status.Conditions, *before)
	}
	condition.Set(&out.Status.Conditions, v1.VirtualMachineCondition{
		Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue,
		Reason: ReasonFailedCreate, Message: sentence,
	}, o.Now)
	sortConditions(out)
	return out
}

// Instance returns the VMI that a VM would get if it started now.
func Instance(vm, expanded *v1.VirtualMachine) *v1.VirtualMachineInstance {
	return newVMI(vm, expanded, nil)
}

func newVMI(vm, expanded *v1.VirtualMachine, request *v1.VirtualMachineStateChangeRequest) *v1.VirtualMachineInstance {
	spec := expanded.Spec.Template.Spec.DeepCopy()
	labels, annotations := metadata(vm, expanded)
	annotations[v1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(vm.Generation, 10)
	vmi := &v1.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineInstanceGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: vm.Name, Namespace: vm.Namespace, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
			Finalizers:      []string{v1.VirtualMachineInstanceFinalizer},
		},
		Spec:   *spec,
		Status: v1.VirtualMachineInstanceStatus{VirtualMachineRevisionName: RevisionName(expanded)},
	}
	if request != nil && request.Data[v1.StartRequestDataPausedKey] == v1.StartRequestDataPausedTrue {
		vmi.Spec.StartStrategy = new(v1.StartStrategyPaused)
	}
	return vmi
}

// metadata returns the labels and annotations that a VMI gets from its VM's template.
func metadata(vm, expanded *v1.VirtualMachine) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	template := &expanded.Spec.Template.ObjectMeta
	maps.Copy(labels, template.Labels)
	maps.Copy(annotations, template.Annotations)
	maps.Copy(annotations, instancetype.Annotations(vm))
	labels[v1.VirtualMachineLabel] = layout.LabelValue(vm.Name)
	return labels, annotations
}
