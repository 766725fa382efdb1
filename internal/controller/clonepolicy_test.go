package controller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/policytest"
)

// These tests judge writes by config/rbac/clone-policy.yaml, with the API server's own code.

func aClone(edits ...func(*clonev1.VirtualMachineCloneSpec)) *clonev1.VirtualMachineClone {
	c := &clonev1.VirtualMachineClone{
		TypeMeta:   metav1.TypeMeta{APIVersion: clonev1.SchemeGroupVersion.String(), Kind: "VirtualMachineClone"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"},
		Spec: clonev1.VirtualMachineCloneSpec{
			Source: &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"},
			Target: &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "copy"},
		},
	}
	for _, edit := range edits {
		edit(&c.Spec)
	}
	return c
}

func ofASnapshot(c *clonev1.VirtualMachineCloneSpec) {
	c.Source = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.kubevirt.io"), Kind: "VirtualMachineSnapshot", Name: "copy"}
}

const mayClone = "create virtualmachines, update virtualmachines, create persistentvolumeclaims, create virtualmachinerestores, create virtualmachinesnapshots"

// may answers for a user with exactly the listed rights.
func may(rights string) func(verb, resource string) bool {
	return func(verb, resource string) bool {
		return slices.Contains(strings.Split(rights, ", "), verb+" "+resource)
	}
}

func TestWhichClonesAreAdmitted(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/clone-policy.yaml", "drydock-clones")
	type spec = clonev1.VirtualMachineCloneSpec
	filters := func(f ...string) func(*spec) { return func(c *spec) { c.LabelFilters = f } }
	address := func(a string) func(*spec) {
		return func(c *spec) { c.NewMacAddresses = map[string]string{"a": "02:00:00:00:00:01", "b": a} }
	}
	for name, test := range map[string]struct {
		edit func(*spec)
		want string
	}{
		"of a VM":       {func(*spec) {}, ""},
		"of a snapshot": {ofASnapshot, ""},
		"everything": {func(c *spec) {
			c.LabelFilters, c.AnnotationFilters = []string{"*", "!a/b*"}, []string{"a/b", "!a"}
			c.Template.LabelFilters, c.Template.AnnotationFilters = []string{"a*"}, []string{"!*"}
			c.NewMacAddresses = map[string]string{"a": "02-AA-bb-00-00-01"}
			c.NewSMBiosSerial, c.Patches = new("S"), []string{"{}"}
			c.VolumeNamePolicy = new(clonev1.VolumeNamePolicyPrefixTargetName)
		}, ""},
		"no target":                    {func(c *spec) { c.Target = nil }, ""},
		"a target without a name":      {func(c *spec) { c.Target.Name = "" }, ""},
		"of a claim":                   {func(c *spec) { c.Source.APIGroup, c.Source.Kind = new(""), "PersistentVolumeClaim" }, "spec.source: "},
		"of a group that has no VMs":   {func(c *spec) { c.Source.APIGroup = new("snapshot.kubevirt.io") }, "spec.source: "},
		"of no group":                  {func(c *spec) { c.Source.APIGroup = nil }, "spec.source: "},
		"of nothing":                   {func(c *spec) { c.Source.Name = "" }, "spec.source.name: "},
		"a target of another kind":     {func(c *spec) { c.Target.Kind = "VirtualMachineSnapshot" }, "spec.target: "},
		"a target of another group":    {func(c *spec) { c.Target.APIGroup = nil }, "spec.target: "},
		"to itself":                    {func(c *spec) { c.Target.Name = "web" }, "spec.target.name: "},
		"a star inside":                {filters("a/*/b"), "spec.labelFilters: "},
		"a star before":                {filters("*/b"), "spec.labelFilters: "},
		"an exclamation mark inside":   {filters("a!"), "spec.labelFilters: "},
		"a filter that is only a mark": {filters("!"), "spec.labelFilters: "},
		"an empty filter":              {filters("a", ""), "spec.labelFilters: "},
		"64 filters":                   {filters(slices.Repeat([]string{"a"}, 64)...), ""},
		"65 filters":                   {filters(slices.Repeat([]string{"a"}, 65)...), "spec.labelFilters: "},
		"a long filter":                {filters(strings.Repeat("a", 320)), ""},
		"a filter that is too long":    {filters(strings.Repeat("a", 321)), "spec.labelFilters: "},
		"of annotations":               {func(c *spec) { c.AnnotationFilters = []string{"**"} }, "spec.annotationFilters: "},
		"of the template's labels":     {func(c *spec) { c.Template.LabelFilters = []string{"!!a"} }, "spec.template.labelFilters: "},
		"of its annotations":           {func(c *spec) { c.Template.AnnotationFilters = []string{"a**"} }, "spec.template.annotationFilters: "},
		"a target of no VM's name":     {func(c *spec) { c.Target.Name = "A_B" }, `spec.target.name: Invalid value: "A_B": `},
		"one that is too long":         {func(c *spec) { c.Target.Name = strings.Repeat("n", 254) }, "spec.target.name: "},
		"a source of no name":          {func(c *spec) { c.Source.Name = "a..b" }, `spec.source.name: Invalid value: "a..b": `},
		"no MAC address":               {address("02:00:00:00:00"), `spec.newMacAddresses["b"]: Invalid value: "02:00:00:00:00": `},
		"the address of a group":       {address("01:00:00:00:00:01"), `spec.newMacAddresses["b"]: `},
		"a serial that is too long":    {func(c *spec) { c.NewSMBiosSerial = new(strings.Repeat("s", 257)) }, "spec.newSMBiosSerial: "},
		"49 patches":                   {func(c *spec) { c.Patches = slices.Repeat([]string{"{}"}, 49) }, "spec.patches: "},
		"a patch that is no JSON":      {func(c *spec) { c.Patches = []string{" {} ", "nonsense"} }, `spec.patches: Invalid value: "nonsense": `},
		"a patch that does not end":    {func(c *spec) { c.Patches = []string{`{"op":`} }, "spec.patches: "},
		"a patch that is too long":     {func(c *spec) { c.Patches = []string{strings.Repeat("p", 16385)} }, "spec.patches: "},
		"names that there are not":     {func(c *spec) { c.VolumeNamePolicy = new(clonev1.VolumeNamePolicy("InPlace")) }, "spec.volumeNamePolicy: "},
	} {
		got := policy.Answer(t, policytest.Write{By: tenant, Resource: "virtualmachineclones", New: aClone(test.edit), May: may(mayClone)})
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: answered %q, want %q", name, got, test.want)
		}
	}
	changed := policytest.Write{By: tenant, Resource: "virtualmachineclones", Old: aClone(), New: aClone(ofASnapshot), May: may(mayClone)}
	if got := policy.Answer(t, changed); !strings.HasPrefix(got, "the spec of a clone can't be changed") {
		t.Errorf("a changed spec: answered %q", got)
	}
	if got := policy.Answer(t, policytest.Write{By: collector, Resource: "virtualmachineclones", Old: aClone(), New: aClone()}); got != "" {
		t.Errorf("a write that leaves the spec: answered %q", got)
	}
}

// A clone with many errors must be refused with all, each value quoted and truncated.
func TestAllThatIsWrongWithACloneIsToldAtOnce(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/clone-policy.yaml", "drydock-clones")
	long := strings.Repeat("\n\"", 1000)
	wrong := aClone(func(c *clonev1.VirtualMachineCloneSpec) {
		c.Source.APIGroup, c.Source.Name, c.Target.Kind, c.Target.Name = new(long), "", long, "A_B"
		c.LabelFilters, c.AnnotationFilters = slices.Repeat([]string{"a"}, 65), []string{"ok", "*no*", long}
		c.Template.LabelFilters, c.Template.AnnotationFilters = []string{long}, []string{long}
		c.NewMacAddresses = map[string]string{"eth0": "01:00:00:00:00:01"}
		c.NewSMBiosSerial, c.Patches, c.VolumeNamePolicy = new(long), []string{strings.Repeat("p", 16385), "nonsense", long, `{"op":`}, new(clonev1.VolumeNamePolicy("InPlace"))
	})
	got := policy.Told(t, policytest.Write{By: tenant, Resource: "virtualmachineclones", New: wrong, May: may("")})
	at := -1
	for _, fault := range []string{
		`spec.source.name: Required value: `, `spec.source: Invalid value: "\n\"`, `spec.target: Invalid value: "kubevirt.io/\n\"`,
		`spec.target.name: Invalid value: "A_B": no VM can have that name`,
		`spec.labelFilters: Too many: 65: `, `spec.annotationFilters: Invalid value: "*no*": `,
		`spec.template.labelFilters: Invalid value: "\n\"`, `spec.template.annotationFilters: Invalid value: "\n\"`,
		`spec.newMacAddresses["eth0"]: Invalid value: "01:00:00:00:00:01": `, `spec.newSMBiosSerial: Too long: `,
		`spec.patches: Too long: `, `spec.patches: Invalid value: "nonsense": `, `spec.volumeNamePolicy: Invalid value: "InPlace": `,
	} {
		if next := strings.Index(got, fault); next <= at {
			t.Errorf("%q is not told, or not in its place:\n%s", fault, got)
		} else {
			at = next
		}
	}
}

func TestWhoMayClone(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/clone-policy.yaml", "drydock-clones")
	without := func(right string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(mayClone, ", "), func(r string) bool { return r == right }), ", ")
	}
	for _, c := range []struct {
		clone        *clonev1.VirtualMachineClone
		rights, want string
	}{
		{aClone(), mayClone, ""},
		{aClone(), without("create virtualmachines"), "a clone makes a VM: "},
		{aClone(), without("update virtualmachines"), "a clone makes a VM: "},
		{aClone(), without("create persistentvolumeclaims"), "a clone makes claims: "},
		{aClone(), without("create virtualmachinerestores"), "a clone makes a restore"},
		{aClone(), without("create virtualmachinesnapshots"), "a clone makes a restore"},
		{aClone(ofASnapshot), without("create virtualmachinesnapshots"), ""},
		{aClone(ofASnapshot), without("create virtualmachinerestores"), "a clone makes a restore"},
	} {
		got := policy.Answer(t, policytest.Write{By: tenant, Resource: "virtualmachineclones", New: c.clone, May: may(c.rights)})
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("with the rights to %s: answered %q, want %q", c.rights, got, c.want)
		}
	}
}

// A clone's creator was asked for his rights. virt-controller, which makes the restore, lacks some of them, and must be
// allowed.
func TestVirtControllerMakesTheRestoresOfClones(t *testing.T) {
	policy := policytest.Load(t, snapshotPolicies, "drydock-restores")
	r := &snapshotv1.VirtualMachineRestore{
		TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.kubevirt.io/v1beta1", Kind: "VirtualMachineRestore"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tmp-restore"},
		Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "copy"}, VirtualMachineSnapshotName: "snap",
		},
	}
	if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "virtualmachinerestores", New: r}); got != "" {
		t.Errorf("answered %q", got)
	}
	if got := policy.Answer(t, policytest.Write{By: collector, Resource: "virtualmachinerestores", New: r}); got == "" {
		t.Error("another component may restore without rights")
	}
}
