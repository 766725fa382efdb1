package vmlifecycle

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/datavolume"
	"drydock.dev/drydock/internal/rules/placement"
	"drydock.dev/drydock/internal/rules/vmstate"
)

// DataVolume is what exists of one of the VM's dataVolumeTemplates.
//
//	DataVolume                  claim                      it is
//	none                        none                       made
//	none                        a DataVolume's             waited for: the claim goes with its owner
//	none                        somebody else's, nobody's  used as it is
//	the VM's                                               the VM's disk
//	nobody's, once a VM's of the name                      adopted
//	nobody's, once another VM's                            in the way
//	nobody's                                               used as it is
//	somebody else's                                        in the way
type DataVolume struct {
	Name string
	// Object is nil when there is none; only then is Claim looked at, which may be
	// nil, too.
	Object *cdiv1.DataVolume
	Claim  *corev1.PersistentVolumeClaim
}

// dataVolumes is the stock of a VM's DataVolumes.
type dataVolumes struct {
	// unready are those that are there and not ready for a VMI; coming names
	// those that are to be made, and blocked says why one can't be.
	unready []*cdiv1.DataVolume
	coming  []string
	blocked string
}

// classifyDisks looks at the DataVolumes, and plans those that are missing.
func (d *decision) classifyDisks() {
	templates := d.VM.Spec.DataVolumeTemplates
	for i := range d.o.DataVolumes {
		dv := &d.o.DataVolumes[i]
		switch {
		case i >= len(templates) || templates[i].Name != dv.Name:
			// Observed of another version of the VM.
		case dv.Object != nil:
			d.judge(dv.Object)
		case dv.Claim == nil:
			d.disks.coming = append(d.disks.coming, dv.Name)
			if d.expanded != nil {
				// What the VM prefers of its disks has to be known first.
				d.CreateDataVolumes = append(d.CreateDataVolumes, newDataVolume(d.VM, &d.expanded.Spec.DataVolumeTemplates[i]))
			}
		case ownedByDataVolume(dv.Claim):
			d.disks.coming = append(d.disks.coming, dv.Name)
		}
	}
	for _, dv := range d.o.NamedDataVolumes {
		if !placement.Ready(dv) {
			d.disks.unready = append(d.disks.unready, dv)
		}
	}
}

// judge finds out about a DataVolume of a template's name.
func (d *decision) judge(dv *cdiv1.DataVolume) {
	if dv.DeletionTimestamp != nil {
		d.disks.coming = append(d.disks.coming, dv.Name)
		return
	}
	switch datavolume.MakerOf(dv, d.VM) {
	case datavolume.Somebody:
		owner := metav1.GetControllerOf(dv)
		d.disks.blocked = fmt.Sprintf("the DataVolume %s exists and belongs to %s %s; give the template another name", dv.Name, owner.Kind, owner.Name)
		return
	case datavolume.AnotherVM:
		d.disks.blocked = orphanOfAnother(dv, d.VM)
		return
	case datavolume.SameName, datavolume.ThisVMUnnamed:
		d.AdoptDataVolumes = append(d.AdoptDataVolumes, dv)
	case datavolume.ThisVM, datavolume.Nobody:
	}
	if !placement.Ready(dv) {
		d.disks.unready = append(d.disks.unready, dv)
	}
}

// orphanOfAnother says that a DataVolume is what another VM has left behind.
func orphanOfAnother(dv *cdiv1.DataVolume, vm *v1.VirtualMachine) string {
	maker := "a VM whose name is not known"
	if name := dv.Annotations[datavolume.MadeForVM]; name != "" {
		maker = "the VM " + name
	}
	return fmt.Sprintf("the DataVolume %s exists and was made for %s, not for this VM, %s; give the template another name. "+
		"If its data is meant to be this VM's, take off the DataVolume's label %s: the VM then uses it and leaves it when it goes",
		dv.Name, maker, vm.Name, v1.CreatedByLabel)
}

// disksHeld reports whether a snapshot or a restore needs the disks, or the VM's state, to itself. Whoever gives
// them back changes the VM, and so wakes the loop.
func (d *decision) disksHeld() bool {
	return d.VM.Status.SnapshotInProgress != nil || d.VM.Status.RestoreInProgress != nil || d.VM.Annotations[vmstate.AwaitedAnnotation] != ""
}

// postponeDisks leaves the DataVolumes of a VM unmade that is to have them only
// when it starts for the first time, or whose claims are being restored.
func (d *decision) postponeDisks() {
	if d.VM.Status.RestoreInProgress != nil {
		d.CreateDataVolumes = nil
		return
	}
	if d.VM.Annotations[v1.ImmediateDataVolumeCreation] == "false" && !d.start && d.vmi == nil {
		d.CreateDataVolumes = nil
	}
}

// disksReady reports whether a VMI may be made.
func (d *decision) disksReady() bool {
	return len(d.disks.unready) == 0 && len(d.disks.coming) == 0 && d.disks.blocked == ""
}

// disksInTrouble reports whether a DataVolume needs somebody to look after it.
func (d *decision) disksInTrouble() bool {
	for _, dv := range d.disks.unready {
		if _, serious := placement.Trouble(dv); serious {
			return true
		}
	}
	return false
}

// disksPrintable is the printable status that the DataVolumes give a VM whose
// guest does not run, empty for none.
func (d *decision) disksPrintable() v1.VirtualMachinePrintableStatus {
	switch {
	case d.disksInTrouble() || d.disks.blocked != "":
		return v1.VirtualMachineStatusDataVolumeError
	case len(d.disks.unready) == 0 && (!d.start || len(d.disks.coming) == 0):
		return ""
	}
	for _, dv := range d.disks.unready {
		if placement.Binding(dv) {
			return v1.VirtualMachineStatusWaitingForVolumeBinding
		}
	}
	return v1.VirtualMachineStatusProvisioning
}

// disksCondition says what the DataVolumes of a VM without VMI wait for; false
// when there is nothing to say.
func (d *decision) disksCondition() (v1.VirtualMachineCondition, bool) {
	out := v1.VirtualMachineCondition{
		Type:   v1.VirtualMachineConditionType(v1.VirtualMachineInstanceDataVolumesReady),
		Status: corev1.ConditionFalse, Reason: v1.VirtualMachineInstanceReasonNotAllDVsReady,
	}
	var said []string
	if waiting := placement.Waiting(d.disks.unready); waiting != "" {
		said = append(said, waiting)
	}
	if len(d.disks.coming) > 0 && d.start {
		said = append(said, "DataVolumes are made: "+strings.Join(d.disks.coming, ", "))
	}
	out.Message = strings.Join(said, "; ")
	return out, d.vmi == nil && d.Create == nil && len(said) > 0
}

// newDataVolume makes the DataVolume of a template. It goes with its VM.
func newDataVolume(vm *v1.VirtualMachine, template *v1.DataVolumeTemplateSpec) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: dataVolumeKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: template.Name, Namespace: vm.Namespace,
			Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
		},
		Spec: *template.Spec.DeepCopy(),
	}
	datavolume.GiveTo(vm, dv)
	if dv.Spec.PriorityClassName == "" && vm.Spec.Template != nil {
		// Its worker is the first step of the VM's start.
		dv.Spec.PriorityClassName = vm.Spec.Template.Spec.PriorityClassName
	}
	return dv
}

const dataVolumeKind = "DataVolume"

func ownedByDataVolume(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == dataVolumeKind
}
