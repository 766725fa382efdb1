package vmlifecycle

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/instancetype"
)

// Referred is what is known of the instance type, or the preference, that a VM refers to.
//
//	the VM names a revision    its status does    it goes by
//	no                         no                 what the type is now, of which a revision is kept
//	no                         yes, of this type  the revision
//	no                         of another type    what the type is now; the other revision is let go
//	yes                        –                  the revision, which is kept as long as the VM is there
//
// A VM that is made from what can't be found does not start. One that runs goes on, and follows nothing of its template
// but its volumes.
type Referred struct {
	// Source is nil when it can't be found; then Missing says why.
	Source  *instancetype.Source
	Missing string
	// Borrowed means that the revision that the VM goes by is one that goes when others do: the VM has to hold it, too.
	Borrowed bool
}

// Keep is a revision that is to be kept for the VM: one to make, or the name of one to hold.
type Keep struct {
	Make *appsv1.ControllerRevision
	Hold string
}

// Expanded is the VM that an observed VM is with what its type and its preference say; nil when that is not known.
func (o *Observed) Expanded() *v1.VirtualMachine {
	d := &decision{Plan: Plan{VM: o.VM.DeepCopy()}, o: *o}
	d.expandVM()
	return d.expanded
}

// expand finds out what the VM is with what it refers to, and keeps revisions of that.
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
	d.VM.Status.InstancetypeRef = d.keep(toType, d.o.Type, d.VM.Status.InstancetypeRef)
	d.VM.Status.PreferenceRef = d.keep(toPreference, d.o.Preference, d.VM.Status.PreferenceRef)
}

// expandVM makes the expanded VM.
func (d *decision) expandVM() {
	if !instancetype.Refers(d.VM) {
		d.expanded = d.VM
		return
	}
	var used instancetype.Used
	toType, toPreference := instancetype.References(d.VM)
	for _, part := range []struct {
		to   *instancetype.Reference
		is   *Referred
		into **instancetype.Source
	}{{toType, d.o.Type, &used.Type}, {toPreference, d.o.Preference, &used.Preference}} {
		switch {
		case part.to == nil || part.is == nil:
		case part.is.Source == nil:
			d.unexpanded = part.is.Missing
			return
		default:
			*part.into = part.is.Source
		}
	}
	expanded, errs := instancetype.Expand(d.VM, used, d.o.Binding)
	if len(errs) > 0 {
		d.unexpanded = errs.ToAggregate().Error()
		return
	}
	d.expanded = expanded
}

// expandsForGood reports whether the VM is to say by itself what it refers to, and to refer to nothing any more.
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

// keep keeps a revision of what is referred to, and gives what the status is to say.
func (d *decision) keep(to *instancetype.Reference, is *Referred, before *v1.InstancetypeStatusRef) *v1.InstancetypeStatusRef {
	if to == nil {
		return nil
	}
	if is == nil || is.Source == nil {
		return before
	}
	name := to.Revision()
	switch {
	case name == "":
		revision := instancetype.NewRevision(d.VM, is.Source)
		name = revision.Name
		d.Keep = append(d.Keep, Keep{Make: revision})
	case is.Borrowed:
		d.Keep = append(d.Keep, Keep{Hold: name})
	}
	return to.StatusOf(name)
}

// Dropped are the revisions that a VM went by and does not go by any more.
func Dropped(from, to *v1.VirtualMachine) []string {
	var out []string
	for _, ref := range []*v1.InstancetypeStatusRef{from.Status.InstancetypeRef, from.Status.PreferenceRef} {
		if name := instancetype.RevisionOf(ref); name != "" && name != instancetype.RevisionOf(to.Status.InstancetypeRef) && name != instancetype.RevisionOf(to.Status.PreferenceRef) {
			out = append(out, name)
		}
	}
	return out
}
