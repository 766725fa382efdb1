package instancetype

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Bearer is an object whose labels may have the default type and preference of a volume.
type Bearer struct {
	Kind, Namespace, Name string
}

// The kinds of bearers.
const (
	BearerClaim      = "PersistentVolumeClaim"
	BearerDataVolume = "DataVolume"
	BearerDataSource = "DataSource"
	BearerSnapshot   = "VolumeSnapshot"
)

func (b Bearer) String() string { return fmt.Sprintf("the %s %s/%s", b.Kind, b.Namespace, b.Name) }

// Uninferable is the error for a volume from which nothing can be inferred.
type Uninferable struct {
	why string
	// Silent means that the labels are missing, which the policy Ignore permits, rather than unreadable.
	Silent bool
}

func (u *Uninferable) Error() string { return u.why }

func silent(format string, args ...any) error {
	return &Uninferable{why: fmt.Sprintf(format, args...), Silent: true}
}

// Refuse returns the error for a volume whose labels can't be read.
func (r *Reference) Refuse(why string) error {
	return &Uninferable{why: fmt.Sprintf("the %s can't be inferred from the volume %s: %s", r.what, r.InferFromVolume, why)}
}

// FirstBearer returns the object behind the volume. If the VM creates the volume's DataVolume, it also returns its
// template, whose source is the next one. Every error is an Uninferable.
func (r *Reference) FirstBearer(vm *v1.VirtualMachine) (Bearer, *v1.DataVolumeTemplateSpec, error) {
	var volume *v1.Volume
	if vm.Spec.Template != nil {
		volume = volumeclaim.Named(vm.Spec.Template.Spec.Volumes, r.InferFromVolume)
	}
	if volume == nil {
		return Bearer{}, nil, r.Refuse("the VM has no such volume")
	}
	claim := volumeclaim.Disk(&volume.VolumeSource)
	if claim == "" {
		return Bearer{}, nil, silent("the %s can't be inferred from the volume %s: it is neither a DataVolume nor a claim", r.what, volume.Name)
	}
	if volume.DataVolume == nil {
		return Bearer{BearerClaim, vm.Namespace, claim}, nil, nil
	}
	for i := range vm.Spec.DataVolumeTemplates {
		if t := &vm.Spec.DataVolumeTemplates[i]; t.Name == claim {
			return Bearer{BearerDataVolume, vm.Namespace, claim}, t, nil
		}
	}
	return Bearer{BearerDataVolume, vm.Namespace, claim}, nil, nil
}

// NextBearer returns the source of a DataVolume without labels.
func (r *Reference) NextBearer(spec *cdiv1.DataVolumeSpec, namespace string) (Bearer, error) {
	or := func(named string) string {
		if named == "" {
			return namespace
		}
		return named
	}
	switch {
	case spec.SourceRef != nil && spec.SourceRef.Kind == BearerDataSource:
		return Bearer{BearerDataSource, or(value(spec.SourceRef.Namespace)), spec.SourceRef.Name}, nil
	case spec.Source != nil && spec.Source.PVC != nil:
		return Bearer{BearerClaim, or(spec.Source.PVC.Namespace), spec.Source.PVC.Name}, nil
	case spec.Source != nil && spec.Source.Snapshot != nil:
		return Bearer{BearerSnapshot, or(spec.Source.Snapshot.Namespace), spec.Source.Snapshot.Name}, nil
	}
	return Bearer{}, silent("the %s can't be inferred from the volume %s: its DataVolume has no label %s, and is made from neither a claim, a snapshot nor a DataSource",
		r.what, r.InferFromVolume, r.label)
}

// SourceBearer returns the source of a DataSource.
func (r *Reference) SourceBearer(source *cdiv1.DataSource) (Bearer, error) {
	s := source.Spec.Source
	spec := &cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: s.PVC, Snapshot: s.Snapshot}}
	if s.DataSource != nil {
		spec = &cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: BearerDataSource, Namespace: &s.DataSource.Namespace, Name: s.DataSource.Name}}
	}
	return r.NextBearer(spec, source.Namespace)
}

// Infer returns the reference in the labels, false for none.
func (r *Reference) Infer(labels map[string]string) (*Reference, bool) {
	name := labels[r.label]
	if name == "" {
		return nil, false
	}
	return &Reference{Role: r.Role, InstancetypeMatcher: v1.InstancetypeMatcher{Name: name, Kind: labels[r.kindLabel]}, Status: r.Status}, true
}

// Unlabeled returns the error for labels that are missing from the last bearer.
func (r *Reference) Unlabeled(b Bearer) error {
	return silent("the %s can't be inferred from the volume %s: %s has no label %s", r.what, r.InferFromVolume, b, r.label)
}

// Inferred replaces the VM's reference to a volume by the inferred one, nil for none. The type's memory replaces that of a
// VM that ignores failures, which is for the case without a type.
func (r *Reference) Inferred(vm *v1.VirtualMachine, to *Reference) {
	var matcher *v1.InstancetypeMatcher
	if to != nil {
		matcher = &to.InstancetypeMatcher
	}
	if r.what == PreferenceRole.what {
		vm.Spec.Preference = (*v1.PreferenceMatcher)(matcher)
		return
	}
	vm.Spec.Instancetype = matcher
	if to != nil && r.Ignores() {
		vm.Spec.Template.Spec.Domain.Memory = nil
	}
}

// Ignores reports whether a VM may be created without the type or preference that can't be inferred.
func (r *Reference) Ignores() bool {
	return value(r.InferFromVolumeFailurePolicy) == v1.IgnoreInferFromVolumeFailure
}
