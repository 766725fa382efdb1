package instancetype

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/controllerrevision"
)

// Source is a type or a preference, from the API server or a revision.
type Source struct {
	Kind       string
	Name       string
	UID        string
	Generation int64
	// One of both is set.
	Type       *instancetypev1.VirtualMachineInstancetypeSpec
	Preference *instancetypev1.VirtualMachinePreferenceSpec
}

func (s *Source) String() string {
	what := TypeRole.what
	if s.Preference != nil {
		what = PreferenceRole.what
	}
	return fmt.Sprintf("the %s %s (%s)", what, s.Name, s.Kind)
}

// Check returns why no VM can use the source.
func (s *Source) Check() field.ErrorList {
	if s.Type != nil {
		return CheckType(s.Type)
	}
	return CheckPreference(s.Preference)
}

// SourceOf converts an object of one of the four kinds.
func SourceOf(object metav1.Object) *Source {
	s := &Source{Name: object.GetName(), UID: string(object.GetUID()), Generation: object.GetGeneration()}
	switch o := object.(type) {
	case *instancetypev1.VirtualMachineInstancetype:
		s.Kind, s.Type = KindType, &o.Spec
	case *instancetypev1.VirtualMachineClusterInstancetype:
		s.Kind, s.Type = KindClusterType, &o.Spec
	case *instancetypev1.VirtualMachinePreference:
		s.Kind, s.Preference = KindPreference, &o.Spec
	case *instancetypev1.VirtualMachineClusterPreference:
		s.Kind, s.Preference = KindClusterPreference, &o.Spec
	}
	return s
}

// Placeholder replaces a type that does not exist yet, with the fields that each type has.
func Placeholder(r *Reference) *Source {
	return &Source{Kind: r.KindOf(), Name: r.Name, Type: &instancetypev1.VirtualMachineInstancetypeSpec{
		CPU: instancetypev1.CPUInstancetype{Guest: 1}, Memory: instancetypev1.MemoryInstancetype{Guest: resource.MustParse("1Gi")},
	}}
}

// WithoutShape returns a preference without the fields about the type's CPUs and memory.
func (s *Source) WithoutShape() *Source {
	out := *s
	out.Preference = s.Preference.DeepCopy()
	out.Preference.Requirements = nil
	if out.Preference.CPU != nil {
		out.Preference.CPU.PreferredCPUTopology = nil
	}
	return &out
}

// kept is the content of a revision, in the form of the type or preference itself.
type kept struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        keptMeta        `json:"metadata"`
	Spec            json.RawMessage `json:"spec"`
}

type keptMeta struct {
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

var apiVersion = instancetypev1.SchemeGroupVersion.String()

// RevisionName returns the name of a VM's revision of a type or preference.
func RevisionName(vm *v1.VirtualMachine, s *Source) string {
	return layout.RevisionName(vm.Name+"-"+s.Name, fmt.Sprintf("-%s-%s-%d", instancetypeapi.LatestVersion, s.UID, s.Generation))
}

// NewRevision returns the VM's revision of a type or preference.
func NewRevision(vm *v1.VirtualMachine, s *Source) *appsv1.ControllerRevision {
	var spec any = s.Type
	if s.Preference != nil {
		spec = s.Preference
	}
	data := controllerrevision.Data(kept{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: s.Kind},
		Metadata: keptMeta{Name: s.Name, UID: s.UID, Generation: s.Generation}, Spec: mustMarshal(spec),
	})
	return &appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: RevisionName(vm, s),
			Labels:          labels(s),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data: data,
	}
}

func labels(s *Source) map[string]string {
	return map[string]string{
		instancetypeapi.ControllerRevisionObjectKindLabel:       s.Kind,
		instancetypeapi.ControllerRevisionObjectNameLabel:       layout.LabelValue(s.Name),
		instancetypeapi.ControllerRevisionObjectUIDLabel:        s.UID,
		instancetypeapi.ControllerRevisionObjectGenerationLabel: strconv.FormatInt(s.Generation, 10),
		instancetypeapi.ControllerRevisionObjectVersionLabel:    instancetypeapi.LatestVersion,
	}
}

// Label adds missing labels, and reports whether there were any. Old revisions of KubeVirt lack the label of the version.
func Label(revision *appsv1.ControllerRevision, s *Source) bool {
	lacked := false
	for key, is := range labels(s) {
		if _, there := revision.Labels[key]; there {
			continue
		}
		if lacked = true; revision.Labels == nil {
			revision.Labels = map[string]string{}
		}
		revision.Labels[key] = is
	}
	return lacked
}

// An API type can be encoded.
func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return data
}

// FromRevision returns a revision's content, which must be of a kind that the reference may have.
func FromRevision(r *Reference, revision *appsv1.ControllerRevision) (*Source, error) {
	refuse := func(why string, args ...any) (*Source, error) {
		return nil, fmt.Errorf("the ControllerRevision %s keeps no %s: %w", revision.Name, r.what, fmt.Errorf(why, args...))
	}
	var k kept
	if err := json.Unmarshal(revision.Data.Raw, &k); err != nil {
		return refuse("it can't be read as one: %w", err)
	}
	if k.APIVersion != apiVersion || !slices.Contains(r.kinds, k.Kind) {
		return refuse("it must be of %s and of the kind %s or %s", apiVersion, r.kinds[0], r.kinds[1])
	}
	s := &Source{Kind: k.Kind, Name: k.Metadata.Name, UID: k.Metadata.UID, Generation: k.Metadata.Generation}
	var into any
	if r.what == TypeRole.what {
		s.Type = &instancetypev1.VirtualMachineInstancetypeSpec{}
		into = s.Type
	} else {
		s.Preference = &instancetypev1.VirtualMachinePreferenceSpec{}
		into = s.Preference
	}
	if err := json.Unmarshal(k.Spec, into); err != nil {
		return refuse("its spec can't be read: %w", err)
	}
	return s, nil
}

// StatusOf returns the status entry for a reference and its revision.
func (r *Reference) StatusOf(revision string) *v1.InstancetypeStatusRef {
	return &v1.InstancetypeStatusRef{
		Name: r.Name, Kind: r.KindOf(), ControllerRevisionRef: &v1.ControllerRevisionRef{Name: revision},
	}
}

// RevisionOf returns the revision in a status entry, "" for none.
func RevisionOf(ref *v1.InstancetypeStatusRef) string {
	if ref == nil || ref.ControllerRevisionRef == nil {
		return ""
	}
	return ref.ControllerRevisionRef.Name
}

// Annotations returns a VMI's annotations for its VM's type and preference.
func Annotations(vm *v1.VirtualMachine) map[string]string {
	out := map[string]string{}
	toType, toPreference := References(vm)
	for _, r := range []*Reference{toType, toPreference} {
		if r != nil {
			out[annotationOf[r.KindOf()]] = r.Name
		}
	}
	return out
}

var annotationOf = map[string]string{
	KindType: v1.InstancetypeAnnotation, KindClusterType: v1.ClusterInstancetypeAnnotation,
	KindPreference: v1.PreferenceAnnotation, KindClusterPreference: v1.ClusterPreferenceAnnotation,
}
