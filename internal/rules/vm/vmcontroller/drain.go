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

// DrainDisk is a disk of the VM's VMI that a drain may move to another claim.
//
//	the VMI is marked and movable   DataVolume is missing                          create it
//	                                DataVolume exists, template has the old claim  set the new claim
//	                                DataVolume exists, template has the new claim  nothing to do
//	otherwise, and no migration     template has the new claim                     set the old claim
//	is in flight                    template has the old claim, DataVolume exists  delete it
//
// Nothing is stored: the names follow from the VMI (volumemigration.MovesOffNode), and its spec has the disk's current
// claim (decision 342).
type DrainDisk struct {
	Move  volumemigration.Move
	Claim *corev1.PersistentVolumeClaim
	// DataVolume has the name of the disk's next claim.
	DataVolume *cdiv1.DataVolume
}

func (d *decision) drainDisks() {
	if d.vmi == nil || d.Adopt || d.VM.Spec.Template == nil {
		return
	}
	if migration.InFlight(d.vmi) && !d.vmi.IsFinal() {
		// The migration under way completes or fails first.
		return
	}
	if !d.Delete && evacuation.Marked(d.vmi) {
		if moves := evacuation.DiskMoves(d.VM, d.vmi); len(moves) > 0 {
			d.nameDestinations(moves)
			return
		}
	}
	moves := slices.DeleteFunc(volumemigration.MovesOffNode(d.vmi), func(m volumemigration.Move) bool { return !m.Names(&d.VM.Spec.Template.Spec) })
	if len(moves) == 0 {
		d.dropDestinations()
		return
	}
	if !d.awaitsVMI() {
		volumemigration.RestoreClaims(d.VM, d.vmi, moves)
		d.needs(NeedTemplate)
	}
}

// The template names the new claims once DataVolumes exist for all of them.
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
			goesWithVM := slices.ContainsFunc(d.o.DataVolumes, func(dv DataVolume) bool {
				return dv.Name == m.From && dv.Object != nil && metav1.IsControlledBy(dv.Object, d.VM)
			})
			d.CreateDestinations = append(d.CreateDestinations, volumemigration.NewDestination(d.VM, m, disk.Claim, goesWithVM))
		default:
			// One that is being deleted must free the name first.
			ready = ready && volumemigration.MadeForDrain(disk.DataVolume, d.VM)
		}
	}
	if all || !ready || d.awaitsVMI() {
		return
	}
	volumemigration.WriteNewClaims(d.VM, moves)
	d.needs(NeedTemplate)
}

func (d *decision) disk(m volumemigration.Move) *DrainDisk {
	at := slices.IndexFunc(d.o.DrainDisks, func(disk DrainDisk) bool { return disk.Move == m })
	if at < 0 {
		return nil
	}
	return &d.o.DrainDisks[at]
}

// No guest has used these DataVolumes of a drain that is over or was canceled.
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

// A cache is not enough to decide about the VMI's disks.
func (d *decision) awaitsVMI() bool {
	if d.o.VMIAsked {
		return false
	}
	d.needs(NeedVMI)
	return true
}
