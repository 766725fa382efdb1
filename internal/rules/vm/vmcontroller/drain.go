package vmcontroller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// DrainDisk is a disk of the VM's VMI that a drain might bring to another claim.
//
//	the VMI is marked and movable   DataVolume is missing                          create it
//	                                DataVolume exists, template has the old claim  set the new claim
//	                                DataVolume exists, template has the new claim  nothing to do
//	otherwise, and no migration     template has the new claim                     set the old claim
//	is in flight                    template has the old claim, DataVolume exists  delete it
//
// Nothing is stored: the names follow from the VMI (volumemigration.Exits), and its spec has the
// disk's current claim (decision 342).
type DrainDisk struct {
	Move volumemigration.Move
	// Claim is the disk's current claim, nil if unknown.
	Claim *corev1.PersistentVolumeClaim
	// DataVolume has the name of the disk's next claim; nil for none.
	DataVolume *cdiv1.DataVolume
}

// drainDisks moves the disks of a guest that must leave its node, or takes that back.
func (d *decision) drainDisks() {
	if d.vmi == nil || d.Adopt || d.VM.Spec.Template == nil {
		return
	}
	if migration.InFlight(d.vmi) && !d.vmi.IsFinal() {
		// The migration under way completes or fails first.
		return
	}
	if moves := d.drained(); len(moves) > 0 {
		d.nameDestinations(moves)
		return
	}
	if d.restoreClaims() {
		return
	}
	d.dropDestinations()
}

// drained returns the moves of the disks of a guest that must leave its node.
func (d *decision) drained() []volumemigration.Move {
	if d.Delete || !evacuation.Marked(d.vmi) {
		return nil
	}
	return evacuation.DiskMoves(d.VM, d.vmi)
}

// nameDestinations sets the new claims in the template once DataVolumes exist for all of them.
func (d *decision) nameDestinations(moves []volumemigration.Move) {
	ready, all := true, true
	for _, m := range moves {
		disk := d.disk(m)
		named := m.Names(&d.VM.Spec.Template.Spec)
		all = all && named
		switch {
		case named:
		case disk == nil || disk.DataVolume == nil && disk.Claim == nil:
			ready = false
		case disk.DataVolume == nil:
			ready = false
			d.CreateDestinations = append(d.CreateDestinations, volumemigration.NewDestination(d.VM, m, disk.Claim, d.ownsDisk(m.From)))
		default:
			// One that is being deleted must free the name first.
			ready = ready && volumemigration.MadeForDrain(disk.DataVolume, d.VM)
		}
	}
	if all || !ready || d.awaitsVMI() {
		return
	}
	volumemigration.Name(d.VM, moves)
	d.needs(NeedTemplate)
}

func (d *decision) disk(m volumemigration.Move) *DrainDisk {
	at := slices.IndexFunc(d.o.DrainDisks, func(disk DrainDisk) bool { return disk.Move == m })
	if at < 0 {
		return nil
	}
	return &d.o.DrainDisks[at]
}

// ownsDisk reports whether the claim belongs to one of the VM's dataVolumeTemplates and goes with the VM.
func (d *decision) ownsDisk(claim string) bool {
	return slices.ContainsFunc(d.o.DataVolumes, func(dv DataVolume) bool {
		return dv.Name == claim && dv.Object != nil && metav1.IsControlledBy(dv.Object, d.VM)
	})
}

// restoreClaims sets the disks' current claims in the template. It returns false if the template has them.
func (d *decision) restoreClaims() bool {
	moves := slices.DeleteFunc(volumemigration.Exits(d.vmi), func(m volumemigration.Move) bool { return !m.Names(&d.VM.Spec.Template.Spec) })
	if len(moves) == 0 {
		return false
	}
	if !d.awaitsVMI() {
		volumemigration.TakeBack(d.VM, d.vmi, moves)
		d.needs(NeedTemplate)
	}
	return true
}

// dropDestinations deletes the DataVolumes of a drain that is over or was canceled. No guest has
// used them as its disk.
func (d *decision) dropDestinations() {
	under := volumemigration.Of(d.vmi)
	ends := d.vmi.DeletionTimestamp != nil || d.vmi.IsFinal()
	for i := range d.o.DrainDisks {
		disk := &d.o.DrainDisks[i]
		if disk.DataVolume == nil || !volumemigration.MadeForDrain(disk.DataVolume, d.VM) || !ends && slices.Contains(under, disk.Move) {
			continue
		}
		if d.awaitsVMI() {
			return
		}
		d.DeleteDestinations = append(d.DeleteDestinations, disk.DataVolume)
	}
}

// dropAtDeletion deletes them when the VM is deleted together with its VMI.
func (d *decision) dropAtDeletion() {
	if d.vmi != nil && d.vmi.DeletionTimestamp != nil && (!migration.InFlight(d.vmi) || d.vmi.IsFinal()) {
		d.dropDestinations()
	}
}

// awaitsVMI reports whether the VMI must first be read from the API server: a cache is not enough to
// decide about its disks.
func (d *decision) awaitsVMI() bool {
	if d.o.VMIAsked {
		return false
	}
	d.needs(NeedVMI)
	return true
}
