package vmlifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/evacuation"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// DrainDisk is a disk of the VM's VMI that a drain might bring to another claim.
//
//	the VMI is marked, and may be moved          otherwise, and no migration is in flight
//	DataVolume   template                        template     DataVolume
//	none         the old claim   is made         the new one                 names the old claim again
//	there        the old claim   names the new   the old one  there          is deleted
//	there        the new claim   is as it is to be
//
// Nothing of it is remembered: the names follow from the VMI (volumemigration.Exits), and its spec says which claim the disk
// is on (decision 342).
type DrainDisk struct {
	Move volumemigration.Move
	// Claim is the one that the disk is on, nil if it is not known.
	Claim *corev1.PersistentVolumeClaim
	// DataVolume is the one of the name of the claim that the disk goes to, nil when there is none.
	DataVolume *cdiv1.DataVolume
}

// drainDisks has the disks of a guest that is to leave its node go with it, or stay with it.
func (d *decision) drainDisks() {
	if d.vmi == nil || d.Adopt || d.VM.Spec.Template == nil {
		return
	}
	if migration.InFlight(d.vmi) && !d.vmi.IsFinal() {
		// It goes where it is on its way to, or fails.
		return
	}
	if moves := d.drained(); len(moves) > 0 {
		d.nameDestinations(moves)
		return
	}
	if d.takeBack() {
		return
	}
	d.dropDestinations()
}

// drained are the moves of the disks of a guest that is to leave its node.
func (d *decision) drained() []volumemigration.Move {
	if d.Delete || !evacuation.Marked(d.vmi) {
		return nil
	}
	return evacuation.DiskMoves(d.VM, d.vmi)
}

// nameDestinations has the template name the claims that disks go to, once all of them are being made.
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
			// One that is going leaves the name to another.
			ready = ready && volumemigration.MadeForDrain(disk.DataVolume, d.VM)
		}
	}
	if all || !ready || d.awaitsVMI() {
		return
	}
	volumemigration.Name(d.VM, moves)
	d.needs(NeedTemplate)
}

// disk is what was observed of a move, nil for nothing.
func (d *decision) disk(m volumemigration.Move) *DrainDisk {
	at := slices.IndexFunc(d.o.DrainDisks, func(disk DrainDisk) bool { return disk.Move == m })
	if at < 0 {
		return nil
	}
	return &d.o.DrainDisks[at]
}

// ownsDisk reports whether a claim goes with the VM: it is of one of its dataVolumeTemplates.
func (d *decision) ownsDisk(claim string) bool {
	return slices.ContainsFunc(d.o.DataVolumes, func(dv DataVolume) bool {
		return dv.Name == claim && dv.Object != nil && metav1.IsControlledBy(dv.Object, d.VM)
	})
}

// takeBack has the template name the claims again that the disks are on, and reports whether that has to be asked
// or written first.
func (d *decision) takeBack() bool {
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

// dropDestinations deletes what was made for a drain that is over, or has been taken back. No guest has ever had it
// for its disk.
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

// dropAtDeletion deletes it when the VM goes, which takes its VMI along.
func (d *decision) dropAtDeletion() {
	if d.vmi != nil && d.vmi.DeletionTimestamp != nil && (!migration.InFlight(d.vmi) || d.vmi.IsFinal()) {
		d.dropDestinations()
	}
}

// awaitsVMI reports whether the API server is to be asked for the VMI first: what a cache shows of it is not enough to
// decide about its disks.
func (d *decision) awaitsVMI() bool {
	if d.o.VMIAsked {
		return false
	}
	d.needs(NeedVMI)
	return true
}
