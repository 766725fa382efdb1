package snapshot

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/instancetype"
)

// What a VM's instance type and preference were when it was first seen, a ControllerRevision each keeps. The content
// becomes one of their owners, so that a VM can be made with that shape when the snapshot's is gone (decision 560).

// references are those of a VM that is to be as it is, of the type first.
func references(vm *v1.VirtualMachine) []*instancetype.Reference {
	toType, toPreference := instancetype.References(vm)
	return slices.DeleteFunc([]*instancetype.Reference{toType, toPreference}, func(r *instancetype.Reference) bool { return r == nil })
}

// shapeless says why it is not known what the VM goes by, "" when it is.
func shapeless(vm *v1.VirtualMachine) string {
	for _, r := range references(vm) {
		if r.Revision() == "" {
			return fmt.Sprintf("no revision of %s is kept yet, by which the VM %s would go", r, vm.Name)
		}
	}
	return ""
}

// keepShape has the content's VM say which revisions the VM goes by.
func keepShape(content *snapshotv1.VirtualMachine, vm *v1.VirtualMachine) {
	toType, toPreference := instancetype.References(vm)
	if toType != nil {
		content.Status.InstancetypeRef = toType.StatusOf(toType.Revision())
	}
	if toPreference != nil {
		content.Status.PreferenceRef = toPreference.StatusOf(toPreference.Revision())
	}
}

// Revisions are the ControllerRevisions that a content's VM goes by.
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

// HoldsRevisions reports whether it matters who owns the revisions of the content: as long as nothing of the VM is
// kept, since nothing is before they are the content's, too. It is to be asked after VolumeSnapshots were read.
func HoldsRevisions(o Observed) bool {
	d := decision{o: o}
	return len(o.VolumeSnapshots) == 0 && o.Group == nil && !d.cutTaken()
}

// holdRevisions has the content own what the VM goes by, before anything else is made for it. It reports false when
// that is done.
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
