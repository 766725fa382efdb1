package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/policytest"
)

// These tests judge writes by config/rbac/snapshot-policy.yaml, with the API server's own code.

const snapshotPolicies = "../../config/rbac/snapshot-policy.yaml"

func aContent() *snapshotv1.VirtualMachineSnapshotContent {
	return &snapshotv1.VirtualMachineSnapshotContent{
		TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.kubevirt.io/v1beta1", Kind: "VirtualMachineSnapshotContent"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "content", OwnerReferences: []metav1.OwnerReference{{Name: "snap"}}},
		Spec:       snapshotv1.VirtualMachineSnapshotContentSpec{VirtualMachineSnapshotName: new("snap")},
	}
}

func TestNobodyButVirtControllerWritesContents(t *testing.T) {
	const refusal = "only virt-controller may write a VirtualMachineSnapshotContent"
	policy := policytest.Load(t, snapshotPolicies, "drydock-snapshot-contents")
	other, ready, orphan := aContent(), aContent(), aContent()
	other.Spec.VirtualMachineSnapshotName = new("other")
	ready.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true)}
	orphan.OwnerReferences = nil
	for what, c := range map[string]struct {
		old, new *snapshotv1.VirtualMachineSnapshotContent
		resource string
		refused  bool
	}{
		"a new one":      {nil, aContent(), "virtualmachinesnapshotcontents", true},
		"another spec":   {aContent(), other, "virtualmachinesnapshotcontents", true},
		"another status": {aContent(), ready, "virtualmachinesnapshotcontents/status", true},
		"another owner":  {aContent(), orphan, "virtualmachinesnapshotcontents", false},
	} {
		for _, by := range []user.Info{tenant, administrator, collector, virtController} {
			write := policytest.Write{By: by, Resource: c.resource, New: c.new}
			if c.old != nil {
				write.Old = c.old
			}
			got := policy.Answer(t, write)
			if refused := c.refused && by != virtController; refused != strings.HasPrefix(got, refusal) || refused != (got != "") {
				t.Errorf("%s by %s: answered %q", what, by.GetName(), got)
			}
		}
	}
}

func aSnapshot(edits ...func(*snapshotv1.VirtualMachineSnapshotSpec)) *snapshotv1.VirtualMachineSnapshot {
	s := &snapshotv1.VirtualMachineSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.kubevirt.io/v1beta1", Kind: "VirtualMachineSnapshot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snap"},
		Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}},
	}
	for _, edit := range edits {
		edit(&s.Spec)
	}
	return s
}

func TestWhichSnapshotsAreAdmitted(t *testing.T) {
	policy := policytest.Load(t, snapshotPolicies, "drydock-snapshots")
	for want, s := range map[string]*snapshotv1.VirtualMachineSnapshot{
		"": aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) {
			s.DeletionPolicy, s.FailureDeadline = new(snapshotv1.VirtualMachineSnapshotContentRetain), &metav1.Duration{Duration: time.Minute}
		}),
		`spec.source: Invalid value: "kubevirt.io/Pod": a snapshot is of`:  aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.Kind = "Pod" }),
		`spec.source: Invalid value: "/VirtualMachine": a snapshot is of`:  aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.APIGroup = nil }),
		"spec.source.name: Required value":                                 aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.Name = "" }),
		`spec.source.name: Invalid value: "A_B": no VM can have that name`: aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.Name = "A_B" }),
		// All errors at once, with quoted and truncated values.
		`spec.source: Invalid value: "kubevirt.io/` + strings.Repeat("P", 68) + `": a snapshot is of a VirtualMachine: name its apiGroup kubevirt.io and its kind; ` +
			`spec.source.name: Invalid value: "\n\"": no VM can have that name: it has at most 253 lower-case letters, digits, dots and dashes, and begins and ends with a letter or digit; ` +
			`spec.failureDeadline: Invalid value: "-1s": must not be negative; 0 means no deadline`: aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) {
			s.Source.Kind, s.Source.Name, s.FailureDeadline = strings.Repeat("P", 1000), "\n\"", &metav1.Duration{Duration: -time.Second}
		}),
		`spec.failureDeadline: Invalid value: "-1s": must not be negative`: aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) {
			s.FailureDeadline = &metav1.Duration{Duration: -time.Second}
		}),
	} {
		got := policy.Answer(t, policytest.Write{By: tenant, Resource: "virtualmachinesnapshots", New: s})
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("answered %q, want %q", got, want)
		}
	}
	changed := aSnapshot(func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.Name = "other" })
	var old client.Object = aSnapshot()
	if got := policy.Answer(t, policytest.Write{By: tenant, Resource: "virtualmachinesnapshots", Old: old, New: changed}); !strings.HasPrefix(got, "the spec of a snapshot can't be changed") {
		t.Errorf("a changed spec: answered %q", got)
	}
}

func TestWhoMayRestore(t *testing.T) {
	policy := policytest.Load(t, snapshotPolicies, "drydock-restores")
	restore := func(edits ...func(*snapshotv1.VirtualMachineRestoreSpec)) *snapshotv1.VirtualMachineRestore {
		r := &snapshotv1.VirtualMachineRestore{
			TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.kubevirt.io/v1beta1", Kind: "VirtualMachineRestore"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "back"},
			Spec: snapshotv1.VirtualMachineRestoreSpec{
				Target: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}, VirtualMachineSnapshotName: "snap",
			},
		}
		for _, edit := range edits {
			edit(&r.Spec)
		}
		return r
	}
	inPlace := func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyInPlace)
	}
	const allButDeleting = "create virtualmachines, update virtualmachines, create persistentvolumeclaims"
	const all = allButDeleting + ", delete persistentvolumeclaims"
	for name, c := range map[string]struct {
		restore   *snapshotv1.VirtualMachineRestore
		may, want string
	}{
		"whoever may do it himself":         {restore(), allButDeleting, ""},
		"not who may not make VMs":          {restore(), "update virtualmachines, create persistentvolumeclaims", "a restore makes or changes a VM"},
		"nor change them":                   {restore(), "create virtualmachines, create persistentvolumeclaims", "a restore makes or changes a VM"},
		"nor make claims":                   {restore(), "create virtualmachines, update virtualmachines", "a restore makes claims"},
		"whoever may delete claims himself": {restore(inPlace), all, ""},
		"not who may not":                   {restore(inPlace), allButDeleting, "a restore makes claims, and with"},
		"a target of another kind":          {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) { r.Target.Kind = "Pod" }), all, "spec.target: "},
		"of another group":                  {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) { r.Target.APIGroup = new("x") }), all, "spec.target: "},
		"without a name":                    {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) { r.Target.Name = "" }), all, "spec.target.name: "},
		"with none that a VM can have":      {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) { r.Target.Name = "A_B" }), all, `spec.target.name: Invalid value: "A_B": `},
		"a snapshot of no name":             {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) { r.VirtualMachineSnapshotName = "A_B" }), all, `spec.virtualMachineSnapshotName: Invalid value: "A_B": `},
		"without a snapshot":                {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) { r.VirtualMachineSnapshotName = "" }), all, "spec.virtualMachineSnapshotName: "},
		"a readiness that there is not": {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) {
			r.TargetReadinessPolicy = new(snapshotv1.TargetReadinessPolicy("x"))
		}), all, "spec.targetReadinessPolicy: "},
		"names that there are not": {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) {
			r.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicy("x"))
		}), all, "spec.volumeRestorePolicy: "},
		"an owner that there is not": {restore(func(r *snapshotv1.VirtualMachineRestoreSpec) {
			r.VolumeOwnershipPolicy = new(snapshotv1.VolumeOwnershipPolicy("x"))
		}), all, "spec.volumeOwnershipPolicy: "},
	} {
		may := func(verb, resource string) bool {
			return slices.Contains(strings.Split(c.may, ", "), verb+" "+resource)
		}
		got := policy.Answer(t, policytest.Write{By: tenant, Resource: "virtualmachinerestores", New: c.restore, May: may})
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: answered %q, want %q", name, got, c.want)
		}
	}
	wrong := restore(func(r *snapshotv1.VirtualMachineRestoreSpec) {
		r.Target.Kind, r.Target.Name, r.VirtualMachineSnapshotName = "Pod\n", "", ""
		r.TargetReadinessPolicy, r.VolumeRestorePolicy = new(snapshotv1.TargetReadinessPolicy("x")), new(snapshotv1.VolumeRestorePolicy("y"))
		r.VolumeOwnershipPolicy = new(snapshotv1.VolumeOwnershipPolicy("z"))
	})
	told := policy.Told(t, policytest.Write{By: tenant, Resource: "virtualmachinerestores", New: wrong})
	for _, fault := range []string{
		`spec.target: Invalid value: "kubevirt.io/Pod\n": `, `spec.target.name: Required value: `, `spec.virtualMachineSnapshotName: Required value: `,
		`spec.targetReadinessPolicy: Invalid value: "x": `, `spec.volumeRestorePolicy: Invalid value: "y": `, `spec.volumeOwnershipPolicy: Invalid value: "z": `,
	} {
		if !strings.Contains(told, fault) {
			t.Errorf("of a restore that is all wrong it is told %q, without %q", told, fault)
		}
	}
	old := restore()
	if got := policy.Answer(t, policytest.Write{By: tenant, Resource: "virtualmachinerestores", Old: old, New: restore(inPlace)}); !strings.HasPrefix(got, "the spec of a restore can't be changed") {
		t.Errorf("a changed spec: answered %q", got)
	}
	if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "virtualmachinerestores", Old: old, New: restore()}); got != "" {
		t.Errorf("a write that leaves the spec: answered %q", got)
	}
}
