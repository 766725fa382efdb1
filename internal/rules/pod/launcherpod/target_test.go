package launcherpod

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func targetOf(t *testing.T, spec string, target Target) *corev1.Pod {
	t.Helper()
	vmi := vmiWith(spec)
	vmi.Labels = map[string]string{"app": "web", v1.NodeNameLabel: "node1", v1.MigrationTargetNodeNameLabel: "node3"}
	target.Migration, target.Name, target.SourceNode = "m", "move", "node1"
	pod, err := RenderTarget(vmi, target, hardware, "launcher:1", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// A target pod must differ from the VMI's launcher pod only in its name, its owner, its nodes, and the gate that keeps
// it from being ready before the guest arrives.
func TestATargetPodIsALauncherPodElsewhere(t *testing.T) {
	vmi := vmiWith("domain: {memory: {guest: 1Gi}}")
	vmi.Labels = map[string]string{"app": "web", v1.NodeNameLabel: "node1", v1.MigrationTargetNodeNameLabel: "node3"}
	want, err := Render(vmi, hardware, "launcher:1", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	got := targetOf(t, "domain: {memory: {guest: 1Gi}}", Target{})
	if got.Name == want.Name || got.Name != TargetName(vmi, "m") || got.Name == TargetName(vmi, "n") {
		t.Errorf("the pod's name is %s, that of the first %s", got.Name, want.Name)
	}
	if of, is := IsTarget(got); !is || of != "m" || MigrationOf(got) != "move" {
		t.Errorf("it is a target pod: %v, of %s (%s)", is, of, MigrationOf(got))
	}
	if _, is := IsTarget(want); is || MigrationOf(want) != "" {
		t.Error("the pod that a VMI starts in is a target pod")
	}
	if BondOf(got, vmi) != Whole {
		t.Errorf("it is bound to the VMI by %v", BondOf(got, vmi))
	}
	for _, label := range []string{v1.NodeNameLabel, v1.MigrationTargetNodeNameLabel} {
		if _, there := got.Labels[label]; there {
			t.Errorf("it has the VMI's label %s", label)
		}
	}
	want.Name = got.Name
	want.Labels[v1.MigrationJobLabel], want.Annotations[v1.MigrationJobNameAnnotation] = "m", "move"
	want.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "kubevirt.io/virtual-machine-unpaused"}}
	want.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node1"}}}}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
}

// While a cluster is updated, nodes of the release before lack the new types. A VMI of type q35 names its guest's in the
// status.
func TestANewMachineTypeNeedsANodeThatHasIt(t *testing.T) {
	for name, test := range map[string]struct{ spec, status, want string }{
		"no type":               {"", "", ""},
		"the newest":            {"q35", "", ""},
		"an old one":            {"pc-q35-7.2", "pc-q35-7.2", ""},
		"a new one":             {"pc-q35-10.0", "", "pc-q35-10.0"},
		"a new one that runs":   {"q35", "pc-q35-10.0", "pc-q35-10.0"},
		"an old one that runs":  {"q35", "pc-q35-7.2", ""},
		"nothing that is known": {"pc-q35-rhel9.4.0", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := vmiWith("domain: {memory: {guest: 1Gi}}")
			if test.spec != "" {
				vmi.Spec.Domain.Machine = &v1.Machine{Type: test.spec}
			}
			if test.status != "" {
				vmi.Status.Machine = &v1.Machine{Type: test.status}
			}
			pod, err := RenderTarget(vmi, Target{Migration: "m", Name: "move", SourceNode: "node1"}, hardware, "launcher:1", Facts{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for label := range pod.Spec.NodeSelector {
				if kind, is := strings.CutPrefix(label, v1.SupportedMachineTypeLabel); is {
					got = append(got, kind)
				}
			}
			if !slices.Equal(got, strings.Fields(test.want)) {
				t.Errorf("the pod needs nodes with %q, want %q", got, test.want)
			}
		})
	}
}

// The VMI's own terms must stay, and each must exclude the source.
func TestATargetPodKeepsTheVMIsOwnTerms(t *testing.T) {
	pod := targetOf(t, `
domain: {memory: {guest: 1Gi}}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: zone, operator: In, values: [a]}]
      - matchExpressions: [{key: disk, operator: Exists}]
`, Target{})
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var keys []string
	for _, term := range terms {
		if len(term.MatchFields) != 1 || term.MatchFields[0].Values[0] != "node1" || len(term.MatchExpressions) != 1 {
			t.Errorf("a term is %+v", term)
			continue
		}
		keys = append(keys, term.MatchExpressions[0].Key)
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"disk", "zone"}) {
		t.Errorf("the terms are %+v", terms)
	}
}

// A term without a requirement selects no node, and an added requirement must not make it select some.
func TestATargetPodThatMayRunNowhereStaysSo(t *testing.T) {
	pod := targetOf(t, "{domain: {memory: {guest: 1Gi}}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}}", Target{})
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || !matchesNothing(terms[0]) {
		t.Errorf("the terms are %+v", terms)
	}
}

func TestWhatAMigrationAsksOfTheNode(t *testing.T) {
	pod := targetOf(t, "{domain: {memory: {guest: 1Gi}}, nodeSelector: {zone: a}}",
		Target{NodeSelector: map[string]string{"zone": "b", "disk": "fast", v1.NodeSchedulable: "false"}})
	for key, want := range map[string]string{"zone": "a", "disk": "fast", v1.NodeSchedulable: "true"} {
		if got := pod.Spec.NodeSelector[key]; got != want {
			t.Errorf("the pod asks for %s=%s, want %s", key, got, want)
		}
	}
}

func TestAGuestWithTheHostsCPUStaysOnHostsOfThatModel(t *testing.T) {
	labels := map[string]string{v1.HostModelCPULabel + "Skylake": "true", v1.CPUModelLabel + "Nehalem": "true", "zone": "a"}
	for name, c := range map[string]struct {
		spec string
		want map[string]string
	}{
		"no model":         {"domain: {}", map[string]string{v1.HostModelCPULabel + "Skylake": "true"}},
		"host-model":       {"domain: {cpu: {model: host-model}}", map[string]string{v1.HostModelCPULabel + "Skylake": "true"}},
		"host-passthrough": {"domain: {cpu: {model: host-passthrough}}", map[string]string{v1.HostModelCPULabel + "Skylake": "true"}},
		"a named model":    {"domain: {cpu: {model: Nehalem}}", nil},
	} {
		if diff := cmp.Diff(c.want, SameHost(vmiWith(c.spec), labels)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A guest must keep its accelerator: KVM, with its CPU model unless another is requested, or emulation. The selectors
// of the VMI or its migration must not override that.
func TestATargetPodRunsWithWhatTheGuestRunsWith(t *testing.T) {
	own := []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}
	kvm := corev1.NodeSelectorRequirement{Key: layout.KVMLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"usable"}}
	emulation := corev1.NodeSelectorRequirement{Key: layout.KVMLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"usable"}}
	const model = v1.CPUModelLabel + "Nehalem"
	for name, c := range map[string]struct {
		says  corev1.ConditionStatus
		want  []corev1.NodeSelectorRequirement
		model string
	}{
		"with KVM":              {corev1.ConditionTrue, append(slices.Clone(own), kvm), "true"},
		"emulated":              {corev1.ConditionFalse, append(slices.Clone(own), emulation), ""},
		"it has not been said":  {"", own, ""},
		"what nobody has meant": {corev1.ConditionUnknown, own, ""},
	} {
		vmi := vmiWith(`
domain: {memory: {guest: 1Gi}, cpu: {model: Nehalem}}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}
`)
		if c.says != "" {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: vmistatus.Accelerated, Status: c.says}}
		}
		pod, err := RenderTarget(vmi, Target{Migration: "m", SourceNode: "node1", NodeSelector: map[string]string{layout.KVMLabel: "absent"}},
			emulated, "launcher:1", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if len(terms) != 1 {
			t.Fatalf("%s: the terms are %+v", name, terms)
		}
		if diff := cmp.Diff(c.want, terms[0].MatchExpressions); diff != "" {
			t.Errorf("%s: the node's labels (-want +got):\n%s", name, diff)
		}
		if len(terms[0].MatchFields) != 1 || terms[0].MatchFields[0].Values[0] != "node1" {
			t.Errorf("%s: it may stay on its node: %+v", name, terms[0].MatchFields)
		}
		if got := pod.Spec.NodeSelector[model]; got != c.model {
			t.Errorf("%s: it asks for its CPU model with %q, want %q", name, got, c.model)
		}
	}
}

// The guest's open files have its pod's level, and the target's QEMU must open them, too.
func TestATargetPodHasTheLevelOfTheGuestsPod(t *testing.T) {
	vmi := vmiWith("domain: {memory: {guest: 1Gi}}")
	vmi.Status.SelinuxContext = "system_u:system_r:container_t:s0:c12,c34"
	settings := hardware
	settings.SELinuxLauncherType = "container_kvm_t"
	pod, err := RenderTarget(vmi, Target{Migration: "m", SourceNode: "node1"}, settings, "launcher:1", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&corev1.SELinuxOptions{Type: "container_kvm_t", Level: "s0:c12,c34"}, pod.Spec.SecurityContext.SELinuxOptions); diff != "" {
		t.Errorf("its options (-want +got):\n%s", diff)
	}
	vmi.Status.SelinuxContext = "system_u:system_r:container_t:s0:c0.c1023"
	if _, err := RenderTarget(vmi, Target{Migration: "m", SourceNode: "node1"}, settings, "launcher:1", Facts{}); err == nil {
		t.Error("it is given every category")
	}
}

// A guest with KVM and without a model must not select by a model.
func TestAGuestWithoutAModelAsksForNone(t *testing.T) {
	vmi := vmiWith("domain: {memory: {guest: 1Gi}}")
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: vmistatus.Accelerated, Status: corev1.ConditionTrue}}
	pod, err := RenderTarget(vmi, Target{Migration: "m", SourceNode: "node1"}, emulated, "launcher:1", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for key := range pod.Spec.NodeSelector {
		if strings.HasPrefix(key, v1.CPUModelLabel) {
			t.Errorf("it asks for %s", key)
		}
	}
}

// The guest's pod must be found by name after any number of migrations.
func TestWhichPodTheGuestIsIn(t *testing.T) {
	state := func(edit func(*v1.VirtualMachineInstanceMigrationState)) *v1.VirtualMachineInstanceMigrationState {
		m := &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourceNode: "a", SourcePod: "one", TargetNode: "b", TargetPod: "two"}
		edit(m)
		return m
	}
	asIs := func(*v1.VirtualMachineInstanceMigrationState) {}
	completed := func(m *v1.VirtualMachineInstanceMigrationState) { m.Completed = true }
	first := Name(vmiWith("{}"))
	for name, c := range map[string]struct {
		node           string
		state          *v1.VirtualMachineInstanceMigrationState
		current, other string
	}{
		"it was never migrated":                      {"a", nil, first, ""},
		"another program's word, without pods":       {"a", &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}, first, ""},
		"it is migrated":                             {"a", state(asIs), "one", "two"},
		"its migration has failed":                   {"a", state(func(m *v1.VirtualMachineInstanceMigrationState) { m.Failed = true }), "one", "two"},
		"it runs on the target, the VMI is not told": {"a", state(completed), "one", "two"},
		"nobody says that it runs on the target":     {"b", state(asIs), "one", "two"},
		"it runs on the target":                      {"b", state(completed), "two", "one"},
		"no target pod is named":                     {"b", state(func(m *v1.VirtualMachineInstanceMigrationState) { m.Completed, m.TargetPod = true, "" }), "one", ""},
	} {
		vmi := vmiWith("{}")
		vmi.Status.NodeName, vmi.Status.MigrationState = c.node, c.state
		if current, other := CurrentName(vmi), OtherName(vmi); current != c.current || other != c.other {
			t.Errorf("%s: in %q beside %q, want %q and %q", name, current, other, c.current, c.other)
		}
		if Arrived(vmi) != (c.current == "two") {
			t.Errorf("%s: it has arrived: %t", name, Arrived(vmi))
		}
		if node, want := OtherNode(vmi), map[string]string{"": "", "one": "a", "two": "b"}[c.other]; node != want {
			t.Errorf("%s: the other pod is on %q, want %q", name, node, want)
		}
	}
}

func TestATargetPodsNameIsAHostName(t *testing.T) {
	vmi := vmiWith("{}")
	for _, name := range []string{"web", strings.Repeat("x", 253), "a.b.c"} {
		vmi.Name = name
		if wrong := validation.IsDNS1123Subdomain(TargetName(vmi, "m")); len(wrong) > 0 {
			t.Errorf("the name %s: %v", TargetName(vmi, "m"), wrong)
		}
	}
}
