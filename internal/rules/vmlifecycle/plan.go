// Package vmlifecycle decides what virt-controller does for one VirtualMachine:
// whether its VMI is to exist, what of the VM itself is to be completed, and
// what its status says.
//
// It owns the decision only. It is pure: it must not import a client or read
// the clock.
//
//	run strategy     no VMI                      VMI Succeeded   VMI Failed
//	Always           start                       start again     start again
//	RerunOnFailure   start, unless it has ended  keep            start again
//	Once             start, unless it has run    keep            keep
//	Manual           on request                  keep            keep
//	Halted           –                           delete          delete
//
// "Start again" deletes the finished VMI and makes a new one. A VMI that fails
// before its guest ran is started again after a pause that grows with each
// failure in a row (status.startFailure).
//
// Requests (status.stateChangeRequests) come first: Stop deletes the VMI that
// it names, Start makes one. A request leaves the list when it is done, so one
// that was interrupted is taken up again.
//
// Invariants:
//   - A VMI is created only when none of the VM's name is known.
//   - What is to be done once (a Start request, a start under Once or
//     RerunOnFailure) is done once: status.runStrategy and the requests are
//     written after the VMI is, and a VMI is created only of a VM that the API
//     server says to be the newest (NeedVM). Only a VMI that somebody deletes
//     in the moment in between is made again: the VM still asks for it.
//   - A VM that is being deleted never gets a VMI, and adopts nothing: the API server says that it is the newest (NeedVM).
//   - A VM whose disks are being snapshotted or restored gets no VMI, and one that is being restored no
//     DataVolume (packages snapshot and restore).
//   - A VM that is locked for a maintenance pod gets no VMI (package maintenance).
//   - No VMI is made of a template whose claims are copies that are not complete, as far as is
//     known (volumes.go).
//
// The DataVolumes of the VM's dataVolumeTemplates are made as soon as the VM is
// there, whether it is to run or not; the VMI is made when each of them is filled
// or waits for its first consumer, which the VMI brings (package placement).
// They go with the VM. A DataVolume that somebody deletes is made again.
package vmlifecycle

import (
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/firmware"
	"drydock.dev/drydock/internal/rules/hotplugspec"
	"drydock.dev/drydock/internal/rules/instancetype"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/rollout"
)

// Observed is what a decision is made on.
type Observed struct {
	VM *v1.VirtualMachine
	// VMConfirmed means that VM is the newest version that the API server has.
	VMConfirmed bool
	// VMI is the VirtualMachineInstance of the VM's name, whoever owns it; nil
	// when there is none.
	VMI *v1.VirtualMachineInstance
	// VMIAsked means that VMI, also when it is nil, is what the API server itself has
	// said.
	VMIAsked bool
	// Started is the template's spec that the VMI was made from, nil when it
	// is not known.
	Started *v1.VirtualMachineInstanceSpec
	// DataVolumes are what exists of the VM's dataVolumeTemplates, in their order.
	DataVolumes []DataVolume
	// NamedDataVolumes are those that the template's volumes name beside.
	NamedDataVolumes []*cdiv1.DataVolume
	// DrainDisks are the disks of the VM's own VMI.
	DrainDisks []DrainDisk
	// Type and Preference are what the VM refers to, nil for what it does not.
	Type, Preference *Referred
	// Binding is that of the interface of a VM that lists no network.
	Binding string
	// ReferencePolicy is whether VMs go on to refer to their types and preferences.
	ReferencePolicy v1.InstancetypeReferencePolicy
	// Strategy is the cluster's vmRolloutStrategy.
	Strategy v1.VMRolloutStrategy
	// Limits are how much room the cluster gives its guests to grow.
	Limits clusterconfig.LiveUpdate
	Now    time.Time
}

// Question is something that only the API server can answer.
type Question string

const (
	// NeedStored asks to store what the plan's VM has beside its status, and for the VM
	// as it is then: what follows is written on top of that.
	NeedStored Question = "the VM as it is completed"
	// NeedTemplate asks for the same, when claims in the template have changed for a drain.
	NeedTemplate Question = "the VM with other claims in its template"
	// NeedVM asks whether the VM is the newest version.
	NeedVM Question = "the newest version of the VM"
	// NeedVMI asks for the VMI of the VM's name.
	NeedVMI Question = "the VMI"
)

// Plan is what is to be done, in this order: release revisions, keep revisions, adopt, create the DataVolumes, create the
// VMI, sync, create and delete what a drain needs or has left, patch the status, delete the VMI. The status comes before a deletion, since it
// holds what is to happen after it.
type Plan struct {
	// Needs is what has to be asked before anything is done: then this is no plan, and
	// another one is to be made.
	Needs Question
	// VM carries the wanted finalizers, spec and status; never nil. Outside of
	// status only finalizers and a missing firmware UUID ever differ, as long as Needs is
	// NeedStored, and the claims of a drain, as long as it is NeedTemplate.
	VM *v1.VirtualMachine
	// ReleaseRevisions takes the VM off those of its ControllerRevisions that the garbage collector can't take it off.
	ReleaseRevisions bool
	// Keep are revisions of the VM's type and preference that are to be kept for it.
	Keep []Keep
	// Adopt makes the VM the owner of the VMI, which has none.
	Adopt bool
	// CreateDataVolumes are to be created, and AdoptDataVolumes, which have lost
	// their VM or do not name it, are to be given to this one.
	CreateDataVolumes, AdoptDataVolumes []*cdiv1.DataVolume
	// Create is the VMI to create, nil for none, and Revision the record of the template that it is made from.
	Create   *v1.VirtualMachineInstance
	Revision *appsv1.ControllerRevision
	// Sync is the VMI as it is to be: with what of the template reaches a running guest,
	// and in its status the volumes whose disks are to be copied. It is nil when it has them.
	Sync *v1.VirtualMachineInstance
	// CreateDestinations are DataVolumes that disks go to because their node is drained, and
	// DeleteDestinations those of them that are not needed any more.
	CreateDestinations, DeleteDestinations []*cdiv1.DataVolume
	Delete                                 bool
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// Decide gives the plan for what was observed.
func Decide(o Observed) Plan {
	d := &decision{Plan: Plan{VM: o.VM.DeepCopy()}, o: o}
	d.strategy, d.invalid = o.VM.RunStrategy()
	d.classify()
	if o.VM.DeletionTimestamp != nil {
		d.expandVM()
		d.decideDeletion()
		d.dropAtDeletion()
	} else {
		d.complete()
		d.expand()
		d.compareVolumes()
		d.decideVMI()
		d.drainDisks()
		d.syncTemplate()
		d.adopt()
	}
	d.report()
	return d.Plan
}

// decision is a Plan in the making.
type decision struct {
	Plan
	o        Observed
	strategy v1.VirtualMachineRunStrategy
	invalid  error
	// vmi is the VM's own VMI, nil when there is none; conflicting is one of its
	// name that is not the VM's.
	vmi, conflicting *v1.VirtualMachineInstance
	// start means that a VMI is to be made, now or when the time has come.
	start bool
	disks dataVolumes
	moves moves
	// expanded is the VM with what its type and its preference say, nil when that is not known: then unexpanded says why.
	expanded   *v1.VirtualMachine
	unexpanded string
}

// template is the template that the VM's guest is made from: with what its instance type and its preference say. It is
// nil when there is none, or when it is not known.
func (d *decision) template() *v1.VirtualMachineInstanceTemplateSpec {
	if d.expanded == nil {
		return nil
	}
	return d.expanded.Spec.Template
}

// needs asks a question first. Of several, the first one is asked first.
func (d *decision) needs(question Question) {
	if d.Needs == "" {
		d.Needs = question
	}
}

// adopt asks the API server for the VM before it becomes an owner. A VM that is being deleted with --cascade=orphan has let go
// of its guest and disks, and would take them along.
func (d *decision) adopt() {
	if (d.Adopt || len(d.AdoptDataVolumes) > 0) && !d.o.VMConfirmed {
		d.needs(NeedVM)
	}
}

// classify distinguishes the VM's own VMI from a foreign one of its name.
func (d *decision) classify() {
	switch vmi := d.o.VMI; {
	case vmi == nil:
	case metav1.IsControlledBy(vmi, d.o.VM):
		d.vmi = vmi
	case adoptable(d.o.VM, vmi):
		d.vmi, d.Adopt = vmi, true
	default:
		d.conflicting = vmi
	}
}

// adoptable reports whether the VMI was a VM's of this name and has lost its
// owner: kubectl delete --cascade=orphan, then the VM made again.
func adoptable(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return metav1.GetControllerOf(vmi) == nil && vmi.DeletionTimestamp == nil &&
		vmi.Labels[v1.VirtualMachineLabel] == layout.LabelValue(vm.Name) && vm.DeletionTimestamp == nil
}

// complete gives the VM what it must have: the finalizer, and the UUID that
// guests of this name had before UUIDs were persisted.
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

// decideDeletion lets the VMI go first, unless it is to stay without its VM:
// then the garbage collector takes its owner reference off.
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

// decideVMI decides whether there is to be a VMI.
func (d *decision) decideVMI() {
	if d.invalid != nil || d.VM.Spec.Template == nil {
		return
	}
	d.classifyDisks()
	d.trackFailures()
	stop := d.settleRequests()
	requested := d.startRequested()
	switch {
	case d.vmi != nil && d.vmi.DeletionTimestamp != nil:
		d.start = requested || d.strategy == v1.RunStrategyAlways || d.changedStrategy()
	case d.vmi != nil && stop:
		d.Delete, d.start = true, requested
	case d.vmi != nil:
		d.keepOrEnd(requested)
	default:
		d.start = requested || d.wantsFirst()
	}
	d.postponeDisks()
	if d.start && d.vmi == nil {
		d.createWhenDue()
	}
	d.recordStrategy()
}

// syncTemplate brings into a VMI that stays what of the template reaches a running guest: hotpluggable
// volumes and what package rollout carries at once, other volumes by having their disks copied. One that is
// being migrated keeps what it has until that is over: both nodes go by it.
func (d *decision) syncTemplate() {
	if !d.stays() || d.Adopt || d.Delete {
		return
	}
	vmi := d.vmi.DeepCopy()
	changed := d.moveVolumes(vmi)
	if !migration.InFlight(d.vmi) && d.template() != nil {
		changed = hotplugspec.SyncTemplate(vmi, d.held()) || changed
		changed = rollout.Carry(d.o.Strategy, vmi, &d.template().Spec) || changed
	}
	if changed {
		d.Sync = vmi
	}
}

// stays reports whether there is a VMI that follows the VM's template.
func (d *decision) stays() bool {
	return d.vmi != nil && d.vmi.DeletionTimestamp == nil && !d.vmi.IsFinal() && d.VM.Spec.Template != nil
}

// keepOrEnd decides about a VMI that is there and is not asked to stop.
func (d *decision) keepOrEnd(requested bool) {
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
		// The failed VMI stays until then: it says what went wrong.
		d.After = wait
		return
	}
	d.Delete = true
	if d.strategy == v1.RunStrategyRerunOnFailure && !requested {
		// Without its VMI nothing else would tell that the VM is to run again.
		// The failure of a VMI that is long gone must not be told twice.
		if !d.o.VMIAsked {
			d.needs(NeedVMI)
		}
		d.VM.Status.StateChangeRequests = append(d.VM.Status.StateChangeRequests,
			v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	}
}

// wantsFirst reports whether a VM without a VMI is to have one unasked.
func (d *decision) wantsFirst() bool {
	switch d.strategy {
	case v1.RunStrategyAlways:
		return true
	case v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure:
		return d.changedStrategy()
	}
	return false
}

// changedStrategy reports whether the run strategy is one that starts a VM when
// it comes into force, and has not done so yet.
func (d *decision) changedStrategy() bool {
	switch d.strategy {
	case v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure:
		return d.VM.Status.RunStrategy != d.strategy
	}
	return false
}

// createWhenDue makes the VMI unless the pause after failures is not over, its
// name is taken, or its disks are not ready for it.
func (d *decision) createWhenDue() {
	if d.After = d.backOff(); d.After > 0 || d.template() == nil || d.conflicting != nil || d.unrecovered() || d.maintained() || d.disksHeld() || !d.disksReady() {
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

// recordStrategy notes the run strategy in the status, but not before what it
// asks for once has been done.
func (d *decision) recordStrategy() {
	if d.start && d.Create == nil && d.changedStrategy() {
		return
	}
	d.VM.Status.RunStrategy = d.strategy
}

// Undone is the status to write when something that was planned could not be
// created: as it was, with a sentence about it.
func Undone(o Observed, p Plan, sentence string) *v1.VirtualMachine {
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

// Instance is the VMI that a VM would have if it started now; expanded is the VM when it is expanded.
func Instance(vm, expanded *v1.VirtualMachine) *v1.VirtualMachineInstance {
	return newVMI(vm, expanded, nil)
}

// newVMI makes the VMI of a VM, of the template that it has when it is expanded.
func newVMI(vm, expanded *v1.VirtualMachine, request *v1.VirtualMachineStateChangeRequest) *v1.VirtualMachineInstance {
	template := expanded.Spec.Template.DeepCopy()
	vmi := &v1.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineInstanceGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: vm.Name, Namespace: vm.Namespace,
			Labels: template.ObjectMeta.Labels, Annotations: template.ObjectMeta.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
			Finalizers:      []string{v1.VirtualMachineInstanceFinalizer},
		},
		Spec:   template.Spec,
		Status: v1.VirtualMachineInstanceStatus{VirtualMachineRevisionName: RevisionName(expanded)},
	}
	for key, name := range instancetype.Annotations(vm) {
		if vmi.Annotations == nil {
			vmi.Annotations = map[string]string{}
		}
		vmi.Annotations[key] = name
	}
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	vmi.Labels[v1.VirtualMachineLabel] = layout.LabelValue(vm.Name)
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[v1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(vm.Generation, 10)
	if request != nil && request.Data[v1.StartRequestDataPausedKey] == v1.StartRequestDataPausedTrue {
		vmi.Spec.StartStrategy = new(v1.StartStrategyPaused)
	}
	return vmi
}
