package instancetype

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
)

func TestWhatAReferenceIsTo(t *testing.T) {
	for kind, want := range map[string]string{
		"": KindClusterType, "VirtualMachineInstancetype": KindType, "virtualmachineinstancetypes": KindType,
		"VirtualMachineClusterInstancetype": KindClusterType, "virtualmachineclusterinstancetype": KindClusterType, "VirtualMachinePreference": "", "Pod": "",
	} {
		r := &Reference{Role: TypeRole, InstancetypeMatcher: v1.InstancetypeMatcher{Name: "t", Kind: kind}}
		if got := r.KindOf(); got != want {
			t.Errorf("%q is %q, want %q", kind, got, want)
		}
	}
}

func TestReferencesThatAreRefused(t *testing.T) {
	policy := v1.InferFromVolumeFailurePolicy("Retry")
	for want, m := range map[string]v1.InstancetypeMatcher{
		"spec.instancetype.name: Required value: name the instance type, or the volume to infer it from":                                        {},
		"spec.instancetype.inferFromVolume: Forbidden: name and kind are inferred from the volume; give one or the other":                       {Name: "a", InferFromVolume: "b"},
		`spec.instancetype.kind: Unsupported value: "Pod": supported values: "VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"`: {Name: "a", Kind: "Pod"},
		`spec.instancetype.inferFromVolumeFailurePolicy: Unsupported value: "Retry": supported values: "Ignore", "Reject"`:                      {InferFromVolume: "a", InferFromVolumeFailurePolicy: &policy},
		"": {Name: "a"},
	} {
		r := &Reference{Role: TypeRole, InstancetypeMatcher: m}
		if got := said(r.Check()); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestTheRevisionThatAVMGoesBy(t *testing.T) {
	status := &v1.InstancetypeStatusRef{Name: "t", Kind: KindType, ControllerRevisionRef: &v1.ControllerRevisionRef{Name: "kept"}}
	for name, c := range map[string]struct {
		matcher v1.InstancetypeMatcher
		status  *v1.InstancetypeStatusRef
		want    string
	}{
		"a new VM":               {v1.InstancetypeMatcher{Name: "t", Kind: KindType}, nil, ""},
		"one that was looked at": {v1.InstancetypeMatcher{Name: "t", Kind: KindType}, status, "kept"},
		"another type since":     {v1.InstancetypeMatcher{Name: "u", Kind: KindType}, status, ""},
		"of another kind since":  {v1.InstancetypeMatcher{Name: "t", Kind: KindClusterType}, status, ""},
		"one that names it":      {v1.InstancetypeMatcher{Name: "t", Kind: KindType, RevisionName: "mine"}, status, "mine"},
	} {
		r := &Reference{Role: TypeRole, InstancetypeMatcher: c.matcher, Status: c.status}
		if got := r.Revision(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAVMThatRefersToAnotherTypeForgetsTheRevision(t *testing.T) {
	old := vmOf(t, `{domain: {}}`)
	old.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "t", Kind: KindClusterType, RevisionName: "t-1"}
	old.Spec.Preference = &v1.PreferenceMatcher{Name: "p", RevisionName: "p-1"}
	vm := old.DeepCopy()
	vm.Spec.Instancetype.Name = "u"
	Complete(vm, old)
	want := &v1.InstancetypeMatcher{Name: "u", Kind: KindClusterType}
	if diff := cmp.Diff(want, vm.Spec.Instancetype); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&v1.PreferenceMatcher{Name: "p", Kind: "virtualmachineclusterpreference", RevisionName: "p-1"}, vm.Spec.Preference); diff != "" {
		t.Error(diff)
	}
	// A user who names another revision must get it.
	vm.Spec.Instancetype.RevisionName = "u-1"
	Complete(vm, old)
	if vm.Spec.Instancetype.RevisionName != "u-1" {
		t.Errorf("the revision is %q", vm.Spec.Instancetype.RevisionName)
	}
}

func TestARevisionKeepsATypeAndAPreference(t *testing.T) {
	vm := vmOf(t, `{domain: {}}`)
	source := typeOf(t, `{cpu: {guest: 2, model: EPYC}, memory: {guest: 1Gi}}`)
	revision := NewRevision(vm, source)
	if revision.Name != "web-t-v1beta1-type-uid-3" || revision.Namespace != "ns" || revision.Labels[instancetypeapi.ControllerRevisionObjectUIDLabel] != "type-uid" {
		t.Errorf("%+v", revision.ObjectMeta)
	}
	const want = `{"apiVersion":"instancetype.kubevirt.io/v1beta1","kind":"VirtualMachineInstancetype","metadata":{"generation":3,"name":"t","uid":"type-uid"},` +
		`"spec":{"cpu":{"guest":2,"model":"EPYC"},"memory":{"guest":"1Gi"}}}`
	if got := string(revision.Data.Raw); got != want {
		t.Errorf("it keeps\n%s, want, with the fields in their order,\n%s", got, want)
	}
	got, err := FromRevision(&Reference{Role: TypeRole}, revision)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(source, got); diff != "" {
		t.Error(diff)
	}
	if _, err := FromRevision(&Reference{Role: PreferenceRole}, revision); err == nil || !strings.Contains(err.Error(), "keeps no preference: it must be of instancetype.kubevirt.io/v1beta1 and of the kind VirtualMachinePreference or VirtualMachineClusterPreference") {
		t.Errorf("a type that is read as a preference: %v", err)
	}
	vm.Name, source.Name = strings.Repeat("v", 200), strings.Repeat("t", 200)
	long := NewRevision(vm, source)
	if len(long.Name) != 253 || !strings.HasSuffix(long.Name, "-v1beta1-type-uid-3") || len(long.Labels[instancetypeapi.ControllerRevisionObjectNameLabel]) > 63 {
		t.Errorf("a long name: %s, %v", long.Name, long.Labels)
	}
}

// KubeVirt keeps more of an object's metadata than Drydock does.
func TestARevisionThatKubeVirtMade(t *testing.T) {
	for role, data := range map[*Role]string{
		&TypeRole: `{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype", "metadata": {"name": "small",
			"uid": "a", "generation": 2, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"cpu": {"guest": 3}, "memory": {"guest": "1Gi"}}}`,
		&PreferenceRole: `{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachinePreference", "metadata": {"name": "small",
			"uid": "a", "generation": 2, "resourceVersion": "7", "creationTimestamp": null}, "spec": {"cpu": {"preferredCPUTopology": "cores"}}}`,
	} {
		source, err := FromRevision(&Reference{Role: *role}, &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(data)}})
		switch {
		case err != nil:
			t.Errorf("the %s: %v", role.what, err)
		case source.Name != "small" || source.UID != "a" || source.Generation != 2:
			t.Errorf("the %s is %+v", role.what, source)
		case source.Type != nil && source.Type.CPU.Guest != 3, source.Preference != nil && *source.Preference.CPU.PreferredCPUTopology != "cores":
			t.Errorf("the %s is %+v, %+v", role.what, source.Type, source.Preference)
		}
	}
}

// A creator of ControllerRevisions can write anything into them.
func TestARevisionThatKeepsSomethingElse(t *testing.T) {
	for _, data := range []string{``, `null`, `7`, `{`, `{"spec": {}}`, `{"apiVersion": "instancetype.kubevirt.io/v1alpha1", "kind": "VirtualMachineInstancetype"}`,
		`{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"}`,
		`{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype", "spec": {"cpu": {"guest": -1}}}`,
		`{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype", "spec": {"memory": {"guest": "much"}}}`} {
		revision := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(data)}}
		if source, err := FromRevision(&Reference{Role: TypeRole}, revision); err == nil {
			t.Errorf("%s is read as %+v", data, source)
		}
	}
}

func TestAVMIsToldWhatItIsMadeFrom(t *testing.T) {
	vm := vmOf(t, `{domain: {}}`)
	vm.Spec.Instancetype, vm.Spec.Preference = &v1.InstancetypeMatcher{Name: "t", Kind: "virtualmachineinstancetype"}, &v1.PreferenceMatcher{Name: "p"}
	want := map[string]string{"kubevirt.io/instancetype-name": "t", "kubevirt.io/cluster-preference-name": "p"}
	if diff := cmp.Diff(want, Annotations(vm)); diff != "" {
		t.Error(diff)
	}
}

// The kind of a reference must stay as its author, or the label from which it was inferred, spells it. Without either
// it must be KubeVirt's word.
func TestTheKindOfAReferenceStaysAsItIsWritten(t *testing.T) {
	for given, want := range map[string]string{
		"": "virtualmachineclusterinstancetype", "virtualmachineinstancetype": "virtualmachineinstancetype",
		KindType: KindType, "virtualmachineclusterinstancetypes": "virtualmachineclusterinstancetypes", "Pod": "Pod",
	} {
		vm := vmOf(t, `{domain: {}}`)
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "t", Kind: given}
		if Complete(vm, nil); vm.Spec.Instancetype.Kind != want {
			t.Errorf("the kind %q becomes %q, want %q", given, vm.Spec.Instancetype.Kind, want)
		}
	}
	asks := vmOf(t, `{domain: {}}`)
	asks.Spec.Instancetype = &v1.InstancetypeMatcher{InferFromVolume: "root"}
	if Complete(asks, nil); asks.Spec.Instancetype.Kind != "" {
		t.Errorf("a reference that is still to be inferred has the kind %q", asks.Spec.Instancetype.Kind)
	}
}

// A revision that KubeVirt made without the version label, or without any, must get the missing labels and keep its
// own.
func TestARevisionGetsItsLabels(t *testing.T) {
	source := typeOf(t, `{cpu: {guest: 1}, memory: {guest: 1Gi}}`)
	source.UID, source.Generation = "u1", 3
	whole := NewRevision(vmOf(t, `{domain: {}}`), source)
	if before := whole.DeepCopy(); Label(whole, source) || !cmp.Equal(whole, before) {
		t.Errorf("one of ours is changed: %v", whole.Labels)
	}
	for name, edit := range map[string]func(map[string]string){
		"without its version": func(l map[string]string) { delete(l, instancetypeapi.ControllerRevisionObjectVersionLabel) },
		"without any":         func(l map[string]string) { clear(l) },
	} {
		some := whole.DeepCopy()
		edit(some.Labels)
		if !Label(some, source) || !cmp.Equal(some, whole) {
			t.Errorf("one %s has %v", name, some.Labels)
		}
	}
	other := whole.DeepCopy()
	other.Labels[instancetypeapi.ControllerRevisionObjectNameLabel] = "mine"
	if Label(other, source) || other.Labels[instancetypeapi.ControllerRevisionObjectNameLabel] != "mine" {
		t.Errorf("what there is was replaced: %v", other.Labels)
	}
	if bare := (&appsv1.ControllerRevision{}); !Label(bare, source) || len(bare.Labels) != 5 {
		t.Errorf("one without a map has %v", bare.Labels)
	}
}
