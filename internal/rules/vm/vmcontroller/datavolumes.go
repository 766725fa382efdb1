package vmcontroller

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/placement"
)

// DataVolume has the objects of one of the VM's dataVolumeTemplates.
//
//	DataVolume                       claim                            result
//	none                             none                             created
//	none                             owned by a DataVolume            wait: the claim goes with its owner
//	none                             owned by another object or none  used as it is
//	owned by the VM                                                   the VM's disk
//	orphan of a VM of this name                                       adopted
//	orphan of another VM                                              blocks the VM
//	without owner                                                     used as it is
//	owned by another object                                           blocks the VM
type DataVolume struct {
	Name string
	// Claim only matters without Object.
	Object *cdiv1.DataVolume
	Claim  *corev1.PersistentVolumeClaim
}

type dataVolumes struct {
	// coming are to be created; blocked is why one can't be.
	unready []*cdiv1.DataVolume
	coming  []string
	blocked string
}

func (d *decision) classifyDisks() {
	templates := d.VM.Spec.DataVolumeTemplates
	for i := range d.o.DataVolumes {
		dv := &d.o.DataVolumes[i]
		switch {
		case i >= len(templates) || templates[i].Name != dv.Name:
			// They were observed for another version of the VM.
		case dv.Object != nil:
			d.classifyDataVolume(dv.Object)
		case dv.Claim == nil:
			d.disks.coming = append(d.disks.coming, dv.Name)
			if d.expanded != nil {
				// The VM's preferences for its disks must be known first.
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

func (d *decision) classifyDataVolume(dv *cdiv1.DataVolume) {
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
		maker := "a VM whose name is not known"
		if name := dv.Annotations[datavolume.MadeForVM]; name != "" {
			maker = "the VM " + name
		}
		d.disks.blocked = fmt.Sprintf("the DataVolume %s exists and was made for %s, not for this VM, %s; give the template another name. "+
			"If its data is meant to be this VM's, take off the DataVolume's label %s: the VM then uses it and leaves it when it goes",
			dv.Name, maker, d.VM.Name, v1.CreatedByLabel)
		return
	case datavolume.SameName, datavolume.ThisVMUnnamed:
		d.AdoptDataVolumes = append(d.AdoptDataVolumes, dv)
	case datavolume.ThisVM, datavolume.Nobody:
	}
	if !placement.Ready(dv) {
		d.disks.unready = append(d.disks.unready, dv)
	}
}

// DataVolumes wait while claims are being restored, and for the first start of a VM that asks for that.
func (d *decision) postponeDisks() {
	if d.VM.Status.RestoreInProgress != nil {
		d.CreateDataVolumes = nil
		return
	}
	if d.VM.Annotations[v1.ImmediateDataVolumeCreation] == "false" && !d.start && d.vmi == nil {
		d.CreateDataVolumes = nil
	}
}

func (d *decision) disksInTrouble() bool {
	for _, dv := range d.disks.unready {
		if _, serious := placement.Trouble(dv); serious {
			return true
		}
	}
	return false
}

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
		// Its worker pod is the first step of the VM's start.
		dv.Spec.PriorityClassName = vm.Spec.Template.Spec.PriorityClassName
	}
	return dv
}

const dataVolumeKind = "DataVolume"

func ownedByDataVolume(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == dataVolumeKind
}
