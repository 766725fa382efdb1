package snapshot

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// ControllerRevisions store the first observed state of a VM's instance type and preference. The content becomes
// one of their owners, so that a VM can be restored with them after the snapshot's VM is gone (decision 480).

func shapeless(vm *v1.VirtualMachine) string {
	toType, toPreference := instancetype.References(vm)
	for _, r := range []*instancetype.Reference{toType, toPreference} {
		if r != nil && r.Revision() == "" {
			return fmt.Sprintf("no revision of %s is kept yet, by which the VM %s would go", r, vm.Name)
		}
	}
	return ""
}

// Revisions names the ControllerRevisions of a content's VM.
func Revisions(content *snapshotv1.VirtualMachineSnapshotContent) []string {
	var names []string
	if vm := content.Spec.Source.VirtualMachine; vm != nil {
		for _, ref := range []*v1.InstancetypeStatusRef{vm.Status.InstancetypeRef, vm.Status.PreferenceRef} {
			if name := instancetype.RevisionOf(ref); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// HoldsRevisions reports whether the owners of the revisions matter: only until the first snapshot. It must be called
// after VolumeSnapshots were read.
func HoldsRevisions(o Observed) bool {
	d := decision{o: o}
	return len(o.VolumeSnapshots) == 0 && o.Group == nil && !d.cutTaken()
}

// holdRevisions makes the content an owner of the VM's revisions, before its snapshots are created. It returns false
// once that is done.
func (d *decision) holdRevisions() bool {
	if !HoldsRevisions(d.o) || !d.locked() {
		return false
	}
	var gone []string
	for _, name := range Revisions(d.o.Content) {
		switch held, exists := d.o.Revisions[name]; {
		case !exists:
			gone = append(gone, name)
		case !held:
			d.Revisions = append(d.Revisions, name)
		}
	}
	switch {
	case len(gone) > 0:
		d.Revisions = nil
		d.fail(ReasonSourceLost, fmt.Sprintf("the ControllerRevision %s was deleted, by which the VM %s goes", strings.Join(gone, ", "), d.o.VM.Name))
		return true
	case len(d.Revisions) > 0:
		d.Step = HoldRevisions
		return true
	}
	return false
}
