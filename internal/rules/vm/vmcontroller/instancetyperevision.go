package vmcontroller

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// Referred is the instance type or preference of a VM.
//
//	the VM names a revision   its status has one     effective
//	no                        no                     the current type, of which a revision is kept
//	no                        yes, of this type      that revision
//	no                        yes, of another type   the current type; the other revision is released
//	yes                       –                      the named revision, kept as long as the VM exists
//
// A VM whose type can't be found does not start. A running one continues, and follows only its template's volumes.
type Referred struct {
	Source  *instancetype.Source
	Missing string // why Source can't be found
	// Borrowed means that the revision is deleted with its other owners, so that the VM must become one.
	Borrowed  bool
	Unlabeled bool // the VM's own revision lacks labels
}

// Keep is a revision to create, or the name of one to own and to label as Source.
type Keep struct {
	Make   *appsv1.ControllerRevision
	Hold   string
	Source *instancetype.Source
}

// Expanded returns the VM with its type and preference, nil if they are not known.
func (o *Observed) Expanded() *v1.VirtualMachine {
	d := &decision{Plan: Plan{VM: o.VM.DeepCopy()}, o: *o}
	d.expandVM()
	return d.expanded
}

func (d *decision) expand() {
	d.expandVM()
	toType, toPreference := instancetype.References(d.VM)
	if d.expanded != nil && d.expandsForGood(toType, toPreference) {
		d.VM.Spec = *d.expanded.Spec.DeepCopy()
		d.VM.Status.InstancetypeRef, d.VM.Status.PreferenceRef = nil, nil
		d.expanded = d.VM
		d.needs(NeedStored)
		return
	}
	d.VM.Status.InstancetypeRef = d.keepRevision(toType, d.o.Type, d.VM.Status.InstancetypeRef)
	d.VM.Status.PreferenceRef = d.keepRevision(toPreference, d.o.Preference, d.VM.Status.PreferenceRef)
}

func (d *decision) expandVM() {
	if !instancetype.Refers(d.VM) {
		d.expanded = d.VM
		return
	}
	var used instancetype.Used
	toType, toPreference := instancetype.References(d.VM)
	for _, part := range []struct {
		to     *instancetype.Reference
		is     *Referred
		into   **instancetype.Source
		reason string
	}{{toType, d.o.Type, &used.Type, ReasonTypeMissing}, {toPreference, d.o.Preference, &used.Preference, ReasonPreferenceMissing}} {
		switch {
		case part.to == nil || part.is == nil:
		case part.is.Source == nil:
			d.unexpanded = unexpanded{part.reason, part.is.Missing}
			return
		default:
			*part.into = part.is.Source
		}
	}
	expanded, errs := instancetype.Expand(d.VM, used, d.o.Binding)
	if len(errs) > 0 {
		d.unexpanded = unexpanded{ReasonFailedCreate, errs.ToAggregate().Error()}
		return
	}
	d.expanded = expanded
}

// expandsForGood reports whether the VM stores the expanded spec and drops its references.
func (d *decision) expandsForGood(references ...*instancetype.Reference) bool {
	if !instancetype.Refers(d.VM) {
		return false
	}
	switch d.o.ReferencePolicy {
	case v1.ExpandAll:
		return true
	case v1.Expand:
		for _, r := range references {
			if r != nil && r.Revision() != "" {
				return false
			}
		}
		return true
	}
	return false
}

// keepRevision plans to keep a revision and returns the reference for the status.
func (d *decision) keepRevision(to *instancetype.Reference, is *Referred, before *v1.InstancetypeStatusRef) *v1.InstancetypeStatusRef {
	if to == nil {
		return nil
	}
	if is == nil || is.Source == nil {
		return before
	}
	name := to.Revision()
	switch {
	case name == "" && d.expanded == nil:
		// It does not fit the VM. Its owner may change it.
		return before
	case name == "":
		revision := instancetype.NewRevision(d.VM, is.Source)
		name = revision.Name
		d.Keep = append(d.Keep, Keep{Make: revision})
	case is.Borrowed, is.Unlabeled:
		d.Keep = append(d.Keep, Keep{Hold: name, Source: is.Source})
	}
	return to.StatusOf(name)
}

// DroppedRevisions returns the revisions that a VM no longer uses.
func DroppedRevisions(from, to *v1.VirtualMachine) []string {
	var out []string
	for _, ref := range []*v1.InstancetypeStatusRef{from.Status.InstancetypeRef, from.Status.PreferenceRef} {
		if name := instancetype.RevisionOf(ref); name != "" && name != instancetype.RevisionOf(to.Status.InstancetypeRef) && name != instancetype.RevisionOf(to.Status.PreferenceRef) {
			out = append(out, name)
		}
	}
	return out
}
