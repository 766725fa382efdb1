package vmcontroller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// withDisk gives the VM a template for the DataVolume "disk".
func withDisk(vm *v1.VirtualMachine) {
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Labels: map[string]string{"tier": "one"}, Annotations: map[string]string{"note": "kept"}},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}},
	}}
}

func annotated(key, value string) vmEdit {
	return func(vm *v1.VirtualMachine) { vm.Annotations = map[string]string{key: value} }
}

type dvEdit func(*cdiv1.DataVolume)

// disk is the VM's DataVolume in a phase.
func disk(phase cdiv1.DataVolumePhase, edits ...dvEdit) DataVolume {
	dv := newDataVolume(newVM(v1.RunStrategyAlways, withDisk), &newVM(v1.RunStrategyAlways, withDisk).Spec.DataVolumeTemplates[0])
	dv.Status.Phase = phase
	for _, e := range edits {
		e(dv)
	}
	return DataVolume{Name: "disk", Object: dv}
}

func says(kind cdiv1.DataVolumeConditionType, reason, message string) dvEdit {
	return func(dv *cdiv1.DataVolume) {
		dv.Status.ClaimName = dv.Name
		dv.Status.Conditions = append(dv.Status.Conditions, cdiv1.DataVolumeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		})
	}
}

func owned(by ...metav1.OwnerReference) dvEdit {
	return func(dv *cdiv1.DataVolume) { dv.OwnerReferences = by }
}

func madeFor(vm string) dvEdit {
	return func(dv *cdiv1.DataVolume) { dv.Annotations[datavolume.MadeForVM] = vm }
}

func claimOf(owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", OwnerReferences: owners}}
}

// TestDisks has one DataVolume, and the VM's action and condition.
func TestDisks(t *testing.T) {
	const (
		starting     = v1.VirtualMachineStatusStarting
		provisioning = v1.VirtualMachineStatusProvisioning
		binding      = v1.VirtualMachineStatusWaitingForVolumeBinding
		inError      = v1.VirtualMachineStatusDataVolumeError
		stopped      = v1.VirtualMachineStatusStopped
		always       = v1.RunStrategyAlways
		halted       = v1.RunStrategyHalted
	)
	conflicting := metav1.OwnerReference{APIVersion: "v1", Kind: "VirtualMachine", Name: "other", UID: "other-uid", Controller: new(true)}
	maker := metav1.OwnerReference{Kind: "DataVolume", Name: "disk", UID: "old", Controller: new(true)}
	const keep = "If its data is meant to be this VM's, take off the DataVolume's label kubevirt.io/created-by: the VM then uses it and leaves it when it goes"
	type does struct {
		makes, adopts, starts bool
		printable             v1.VirtualMachinePrintableStatus
		// says is the message of the condition about the disks.
		says string
	}
	tests := map[string]struct {
		vm   *v1.VirtualMachine
		dv   DataVolume
		want does
	}{
		"it is made before the VMI": {newVM(always, withDisk), DataVolume{Name: "disk"},
			does{makes: true, printable: provisioning, says: "DataVolumes are made: disk"}},
		"it is made for a VM that does not run, too": {newVM(halted, withDisk), DataVolume{Name: "disk"},
			does{makes: true, printable: stopped}},
		"or not, where the VM asks for that": {newVM(halted, withDisk, annotated(v1.ImmediateDataVolumeCreation, "false")), DataVolume{Name: "disk"},
			does{printable: stopped}},
		"which ends with its start": {newVM(always, withDisk, annotated(v1.ImmediateDataVolumeCreation, "false")), DataVolume{Name: "disk"},
			does{makes: true, printable: provisioning, says: "DataVolumes are made: disk"}},
		"a claim of the name that nobody fills is used as it is": {newVM(always, withDisk), DataVolume{Name: "disk", Claim: claimOf()},
			does{starts: true, printable: starting}},
		"a claim whose DataVolume was deleted goes first": {newVM(always, withDisk), DataVolume{Name: "disk", Claim: claimOf(maker)},
			does{printable: provisioning, says: "DataVolumes are made: disk"}},
		"it is being filled": {newVM(always, withDisk), disk(cdiv1.ImportInProgress),
			does{printable: provisioning, says: "waiting for DataVolumes to be filled: disk"}},
		"it is being filled for a VM that does not run": {newVM(halted, withDisk), disk(cdiv1.ImportInProgress),
			does{printable: provisioning, says: "waiting for DataVolumes to be filled: disk"}},
		"its claim is not bound": {newVM(always, withDisk), disk(cdiv1.Pending, says(cdiv1.DataVolumeBound, "Pending", "no provisioner")),
			does{printable: binding, says: "waiting for DataVolumes to be filled: disk"}},
		"it waits for its first consumer, which the VMI brings": {newVM(always, withDisk), disk(cdiv1.WaitForFirstConsumer),
			does{starts: true, printable: starting}},
		"it waits for its first consumer and the VM does not run": {newVM(halted, withDisk), disk(cdiv1.WaitForFirstConsumer),
			does{printable: stopped}},
		"it is filled": {newVM(always, withDisk), disk(cdiv1.Succeeded),
			does{starts: true, printable: starting}},
		"its worker fails and is tried again": {newVM(always, withDisk), disk(cdiv1.ImportInProgress, says(cdiv1.DataVolumeRunning, "Error", "404 Not Found")),
			does{printable: inError, says: "DataVolume disk: 404 Not Found"}},
		"it has failed": {newVM(always, withDisk), disk(cdiv1.Failed, says(cdiv1.DataVolumeRunning, "NotAnImage", "this is no image")),
			does{printable: inError, says: "DataVolume disk has failed: this is no image"}},
		"it has failed and the VM does not run": {newVM(halted, withDisk), disk(cdiv1.Failed, says(cdiv1.DataVolumeRunning, "NotAnImage", "this is no image")),
			does{printable: inError, says: "DataVolume disk has failed: this is no image"}},
		"it is being deleted": {newVM(always, withDisk), disk(cdiv1.Succeeded, func(dv *cdiv1.DataVolume) { dv.DeletionTimestamp = &metav1.Time{Time: now} }),
			does{printable: provisioning, says: "DataVolumes are made: disk"}},
		"it is somebody else's": {newVM(always, withDisk), disk(cdiv1.Succeeded, owned(conflicting)),
			does{printable: inError, says: "the DataVolume disk exists and belongs to VirtualMachine other; give the template another name"}},
		"it has lost its VM": {newVM(always, withDisk), disk(cdiv1.Succeeded, owned()),
			does{adopts: true, starts: true, printable: starting}},
		"it was another VM's, which has left it": {newVM(always, withDisk), disk(cdiv1.Succeeded, owned(), madeFor("other")),
			does{printable: inError, says: "the DataVolume disk exists and was made for the VM other, not for this VM, vm; give the template another name. " + keep}},
		"it was a VM's, and nobody knows which": {newVM(halted, withDisk), disk(cdiv1.Succeeded, owned(), madeFor("")),
			does{printable: inError, says: "the DataVolume disk exists and was made for a VM whose name is not known, not for this VM, vm; give the template another name. " + keep}},
		"it is the VM's, which an earlier version has not named": {newVM(always, withDisk), disk(cdiv1.Succeeded, madeFor("")),
			does{adopts: true, starts: true, printable: starting}},
		"it is nobody's and was made by a user: used, not taken": {newVM(always, withDisk), disk(cdiv1.Succeeded, owned(), func(dv *cdiv1.DataVolume) { dv.Labels = nil }),
			does{starts: true, printable: starting}},
		"the VM is being deleted": {newVM(always, withDisk, deleting()), DataVolume{Name: "disk"},
			does{printable: v1.VirtualMachineStatusTerminating}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide(Observed{VM: test.vm, DataVolumes: []DataVolume{test.dv}, Now: now})
			got := does{
				makes: len(p.CreateDataVolumes) == 1, adopts: len(p.AdoptDataVolumes) == 1, starts: p.Create != nil,
				printable: p.VM.Status.PrintableStatus,
			}
			for _, kind := range []v1.VirtualMachineConditionType{v1.VirtualMachineFailure, "DataVolumesReady"} {
				if c := condition.Find(p.VM.Status.Conditions, kind); c != nil {
					got.says = c.Message
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(does{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestADataVolumeIsMadeOfItsTemplate(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways, withDisk, func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.PriorityClassName = "high" })
	made := decide(Observed{VM: vm, DataVolumes: []DataVolume{{Name: "disk"}}, Now: now}).CreateDataVolumes[0]
	switch {
	case !metav1.IsControlledBy(made, vm) || !*made.OwnerReferences[0].BlockOwnerDeletion:
		t.Errorf("its owner is %+v", made.OwnerReferences)
	case made.Labels[v1.CreatedByLabel] != "vm-uid" || made.Labels["tier"] != "one" || made.Annotations["note"] != "kept" || made.Annotations[datavolume.MadeForVM] != "vm":
		t.Errorf("labels %v, annotations %v", made.Labels, made.Annotations)
	case made.Spec.PriorityClassName != "high" || made.Spec.Source.Blank == nil:
		t.Errorf("spec %+v", made.Spec)
	}
	if vm.Spec.DataVolumeTemplates[0].Labels[v1.CreatedByLabel] != "" {
		t.Error("the VM's own template was changed")
	}
}

// The DataVolumes of a running VM must not matter; before that its VMI's message must win.
func TestTheVMISaysWhatItsDisksWaitFor(t *testing.T) {
	pending := func(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason string) vmiEdit {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason})
		}
	}
	notReady := pending(v1.VirtualMachineInstanceDataVolumesReady, corev1.ConditionFalse, v1.VirtualMachineInstanceReasonNotAllDVsReady)
	waits := pending(v1.VirtualMachineInstanceProvisioning, corev1.ConditionTrue, "")
	unplaced := pending(podScheduledCondition, corev1.ConditionFalse, corev1.PodReasonUnschedulable)
	onlyPending := []v1.VirtualMachineInstancePhase{v1.Pending}
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		dv   DataVolume
		want v1.VirtualMachinePrintableStatus
	}{
		"the claims are being bound": {newTestVMI(onlyPending, notReady, waits), disk(cdiv1.WaitForFirstConsumer), v1.VirtualMachineStatusWaitingForVolumeBinding},
		"no node fits":               {newTestVMI(onlyPending, notReady, waits, unplaced), disk(cdiv1.WaitForFirstConsumer), v1.VirtualMachineStatusUnschedulable},
		"the disks are being filled": {newTestVMI(onlyPending, notReady), disk(cdiv1.ImportInProgress), v1.VirtualMachineStatusProvisioning},
		"a disk has failed":          {newTestVMI(onlyPending, notReady), disk(cdiv1.Failed), v1.VirtualMachineStatusDataVolumeError},
		"the disks are filled":       {newTestVMI(slices.Concat(onlyPending, []v1.VirtualMachineInstancePhase{v1.Scheduling})), disk(cdiv1.Succeeded), v1.VirtualMachineStatusStarting},
		"the guest waits for volumes": {newTestVMI(running, pending(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, runstate.ReasonWaitingForVolumes)),
			disk(cdiv1.Succeeded), v1.VirtualMachineStatusStarting},
		"the guest is not Ready": {newTestVMI(running, pending(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, "ReadinessProbeNotPassed")),
			disk(cdiv1.Succeeded), v1.VirtualMachineStatusRunning},
		"the guest runs, disk or none": {newTestVMI(running), disk(cdiv1.Failed), v1.VirtualMachineStatusRunning},
	} {
		vm := newVM(v1.RunStrategyAlways, withDisk)
		got := decide(Observed{VM: vm, VMI: c.vmi, DataVolumes: []DataVolume{c.dv}, Now: now}).VM.Status.PrintableStatus
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Observations for another version of the VM say nothing about this one's disks.
func TestDataVolumesOfAnotherVersionAreLeftAlone(t *testing.T) {
	other := func(vm *v1.VirtualMachine) {
		withDisk(vm)
		vm.Spec.DataVolumeTemplates[0].Name = "other"
	}
	for name, test := range map[string]struct {
		vm       *v1.VirtualMachine
		observed []DataVolume
		makes    int
	}{
		"the VM has no templates any more": {newVM(v1.RunStrategyAlways), []DataVolume{{Name: "disk"}}, 0},
		"the VM has another template now":  {newVM(v1.RunStrategyAlways, other), []DataVolume{{Name: "disk"}}, 0},
		"the VM has fewer templates now":   {newVM(v1.RunStrategyAlways, withDisk), []DataVolume{{Name: "disk"}, {Name: "more"}}, 1},
		"the VM has them all":              {newVM(v1.RunStrategyAlways, withDisk), []DataVolume{{Name: "disk"}}, 1},
	} {
		if p := decide(Observed{VM: test.vm, DataVolumes: test.observed, Now: now}); len(p.CreateDataVolumes) != test.makes {
			t.Errorf("%s: makes %d DataVolumes, want %d", name, len(p.CreateDataVolumes), test.makes)
		}
	}
}

func TestATemplatesOwnPriorityStays(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways, withDisk, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.PriorityClassName = "high"
		vm.Spec.DataVolumeTemplates[0].Spec.PriorityClassName = "low"
	})
	made := decide(Observed{VM: vm, DataVolumes: []DataVolume{{Name: "disk"}}, Now: now}).CreateDataVolumes
	if len(made) != 1 || made[0].Spec.PriorityClassName != "low" {
		t.Errorf("made are %+v, want one of the priority low", made)
	}
}

// Only a VMI's message about the disks may appear.
func TestWhoSaysWhatTheDisksWaitFor(t *testing.T) {
	waits := vmiSays(v1.VirtualMachineInstanceDataVolumesReady, "False", "NotAllDVsReady", "said by the VMI")
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		dv   []DataVolume
		want string
	}{
		"the VMI":                         {newVM(v1.RunStrategyAlways, withDisk), newTestVMI(starting, waits), []DataVolume{disk(cdiv1.ImportInProgress)}, "said by the VMI"},
		"the VM, which has none":          {newVM(v1.RunStrategyAlways, withDisk), nil, []DataVolume{disk(cdiv1.ImportInProgress)}, "waiting for DataVolumes to be filled: disk"},
		"nobody, since there are none":    {newVM(v1.RunStrategyAlways, failures(1, "x", time.Minute)), nil, nil, "nothing"},
		"nobody, since they are filled":   {newVM(v1.RunStrategyHalted, withDisk), nil, []DataVolume{disk(cdiv1.Succeeded)}, "nothing"},
		"nobody, since the VM is stopped": {newVM(v1.RunStrategyHalted, withDisk), nil, []DataVolume{{Name: "disk"}}, "nothing"},
	} {
		got := "nothing"
		vm := decide(Observed{VM: test.vm, VMI: test.vmi, DataVolumes: test.dv, Now: now}).VM
		if c := condition.Find(vm.Status.Conditions, "DataVolumesReady"); c != nil {
			got = c.Message
		}
		if got != test.want {
			t.Errorf("%s: the condition says %q, want %q", name, got, test.want)
		}
	}
}

func TestNoDataVolumeIsMadeWhileItsClaimIsRestored(t *testing.T) {
	restored := newVM(v1.RunStrategyHalted, withDisk)
	for making, edit := range map[bool]vmEdit{
		true:  func(vm *v1.VirtualMachine) { vm.Status.SnapshotInProgress = new("s") },
		false: func(vm *v1.VirtualMachine) { vm.Status.RestoreInProgress = new("r") },
	} {
		vm := restored.DeepCopy()
		edit(vm)
		if plan := Decide(Observed{VM: vm, DataVolumes: []DataVolume{{Name: "disk"}}, Now: now}); (len(plan.CreateDataVolumes) > 0) != making {
			t.Errorf("status %+v: the DataVolumes %v are made", vm.Status, plan.CreateDataVolumes)
		}
	}
}
