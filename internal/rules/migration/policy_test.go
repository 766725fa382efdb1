package migration

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
)

type set = map[string]string

func policy(name string, vmi, namespace set) migrationsv1alpha1.MigrationPolicy {
	return migrationsv1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: migrationsv1alpha1.MigrationPolicySpec{
		Selectors: &migrationsv1alpha1.Selectors{VirtualMachineInstanceSelector: vmi, NamespaceSelector: namespace},
	}}
}

func TestThePolicyThatFitsBest(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: set{"size": "small", "os": "fedora", "gpu": "nvidia"}}}
	namespace := set{"priority": "high", "bandwidth": "medium", "hpc-workload": "true"}
	type policies = []migrationsv1alpha1.MigrationPolicy
	for name, c := range map[string]struct {
		policies policies
		want     string
	}{
		"there is none":                                {nil, ""},
		"one by the VMI's label":                       {policies{policy("a", set{"gpu": "nvidia"}, nil)}, "a"},
		"one by the namespace's label":                 {policies{policy("a", nil, set{"priority": "high"})}, "a"},
		"one by both":                                  {policies{policy("a", set{"gpu": "nvidia"}, set{"priority": "high"})}, "a"},
		"the VMI's label is another":                   {policies{policy("a", set{"gpu": "intel"}, set{"priority": "high"})}, ""},
		"the namespace's is another":                   {policies{policy("a", set{"gpu": "nvidia"}, set{"priority": "low"})}, ""},
		"a label is missing":                           {policies{policy("a", set{"gpu": "nvidia", "arm": ""}, nil)}, ""},
		"the VMI's label is no label of the namespace": {policies{policy("a", nil, set{"gpu": "nvidia"})}, ""},
		"one that asks for nothing":                    {policies{policy("a", set{}, set{})}, ""},
		"one without selectors":                        {policies{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, ""},
		"the one with more labels":                     {policies{policy("a", set{"gpu": "nvidia"}, nil), policy("b", set{"size": "small"}, set{"priority": "high"})}, "b"},
		"it comes first in the list":                   {policies{policy("b", set{"size": "small"}, set{"priority": "high"}), policy("a", set{"gpu": "nvidia"}, nil)}, "b"},
		"of as many labels the first key": {policies{
			policy("a", set{"size": "small", "gpu": "nvidia"}, set{"priority": "high", "hpc-workload": "true"}),
			policy("b", set{"size": "small", "gpu": "nvidia"}, set{"priority": "high", "bandwidth": "medium"})}, "b"},
		"of as many labels the first key that differs": {policies{policy("a", set{"gpu": "nvidia", "size": "small"}, nil), policy("b", set{"gpu": "nvidia", "os": "fedora"}, nil)}, "b"},
		"of the same labels the first name":            {policies{policy("b", set{"gpu": "nvidia"}, nil), policy("a", set{"gpu": "nvidia"}, nil), policy("c", set{"gpu": "nvidia"}, nil)}, "a"},
	} {
		if got := Effective(v1.MigrationConfiguration{}, c.policies, vmi, namespace).Policy; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAGuestThatTheKubeletProbesMovesWhole(t *testing.T) {
	allowed := v1.MigrationConfiguration{AllowPostCopy: new(true), AllowWorkloadDisruption: new(true)}
	byLabel := policy("a", set{"gpu": "nvidia"}, nil)
	byLabel.Spec.AllowPostCopy = new(true)
	for name, c := range map[string]struct {
		probe *v1.Probe
		want  bool
	}{
		"no probe":     {nil, true},
		"the agent":    {&v1.Probe{Handler: v1.Handler{GuestAgentPing: &v1.GuestAgentPing{}}}, true},
		"a program":    {&v1.Probe{Handler: v1.Handler{Exec: &corev1.ExecAction{}}}, true},
		"a connection": {&v1.Probe{Handler: v1.Handler{TCPSocket: &corev1.TCPSocketAction{}}}, false},
		"a page":       {&v1.Probe{Handler: v1.Handler{HTTPGet: &corev1.HTTPGetAction{}}}, false},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: set{"gpu": "nvidia"}}, Spec: v1.VirtualMachineInstanceSpec{LivenessProbe: c.probe}}
		for _, policies := range [][]migrationsv1alpha1.MigrationPolicy{nil, {byLabel}} {
			if got := Effective(allowed, policies, vmi, nil); *got.AllowPostCopy != c.want || *got.AllowWorkloadDisruption != c.want {
				t.Errorf("%s, %d policies: post-copy %v, disruption %v", name, len(policies), *got.AllowPostCopy, *got.AllowWorkloadDisruption)
			}
		}
	}
}

// A status must have all of the cluster's configuration: both types have the same field names in JSON.
func TestAStatusHasTheWholeConfiguration(t *testing.T) {
	given := v1.MigrationConfiguration{
		NodeDrainTaintKey: new("drain"), ParallelOutboundMigrationsPerNode: new(uint32(1)), ParallelMigrationsPerCluster: new(uint32(2)),
		AllowAutoConverge: new(true), BandwidthPerMigration: new(resource.MustParse("1Mi")), CompletionTimeoutPerGiB: new(int64(3)),
		MaxDowntimeMs: new(uint64(4)), ProgressTimeout: new(int64(5)), UtilityVolumesTimeout: new(int64(6)), UnsafeMigrationOverride: new(true),
		AllowPostCopy: new(true), AllowWorkloadDisruption: new(true), DisableTLS: new(true), Network: new("net"), MatchSELinuxLevelOnMigration: new(true),
	}
	for i := range reflect.ValueOf(given).NumField() {
		if reflect.ValueOf(given).Field(i).IsZero() {
			t.Fatalf("this test does not set %s", reflect.TypeOf(given).Field(i).Name)
		}
	}
	got := options(&given)
	want, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	has, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, want), decoded(t, has)); diff != "" {
		t.Errorf("want, got:\n%s", diff)
	}
}

func decoded(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestWhatAPolicySets(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: set{"gpu": "nvidia"}}}
	base := func(edits ...func(*v1.MigrationConfiguration)) v1.MigrationConfiguration {
		c := v1.MigrationConfiguration{AllowAutoConverge: new(false), BandwidthPerMigration: new(resource.MustParse("0")), CompletionTimeoutPerGiB: new(int64(150)),
			AllowPostCopy: new(false), AllowWorkloadDisruption: new(false), ParallelMigrationsPerCluster: new(uint32(5))}
		for _, e := range edits {
			e(&c)
		}
		return c
	}
	for name, c := range map[string]struct {
		spec migrationsv1alpha1.MigrationPolicySpec
		want v1.MigrationConfiguration
	}{
		"nothing": {migrationsv1alpha1.MigrationPolicySpec{}, base()},
		"all": {migrationsv1alpha1.MigrationPolicySpec{AllowAutoConverge: new(true), BandwidthPerMigration: new(resource.MustParse("64Mi")), CompletionTimeoutPerGiB: new(int64(800)), MaxDowntimeMs: new(uint64(900)), AllowPostCopy: new(true), AllowWorkloadDisruption: new(false)},
			base(func(c *v1.MigrationConfiguration) {
				c.AllowAutoConverge, c.BandwidthPerMigration, c.CompletionTimeoutPerGiB, c.AllowPostCopy = new(true), new(resource.MustParse("64Mi")), new(int64(800)), new(true)
				c.MaxDowntimeMs = new(uint64(900))
			})},
		"post-copy alone": {migrationsv1alpha1.MigrationPolicySpec{AllowPostCopy: new(true)},
			base(func(c *v1.MigrationConfiguration) { c.AllowPostCopy, c.AllowWorkloadDisruption = new(true), new(true) })},
		"disruption alone": {migrationsv1alpha1.MigrationPolicySpec{AllowWorkloadDisruption: new(true)},
			base(func(c *v1.MigrationConfiguration) { c.AllowWorkloadDisruption = new(true) })},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("a", set{"gpu": "nvidia"}, nil)
			c.spec.Selectors = p.Spec.Selectors
			p.Spec = c.spec
			cluster := base()
			got := Effective(cluster, []migrationsv1alpha1.MigrationPolicy{p}, vmi, nil)
			if diff := cmp.Diff(Configuration{VMIMConfigurationOptions: options(&c.want), Policy: "a"}, got); diff != "" {
				t.Errorf("want, got:\n%s", diff)
			}
			if diff := cmp.Diff(base(), cluster); diff != "" {
				t.Errorf("the cluster's configuration has changed:\n%s", diff)
			}
		})
	}
}

// A cache may show an object twice during its replacement.
func TestOfOnePolicyTwiceTheFirstCounts(t *testing.T) {
	first, second := policy("a", set{"gpu": "nvidia"}, nil), policy("a", set{"gpu": "nvidia"}, nil)
	first.Spec.CompletionTimeoutPerGiB = new(int64(7))
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: set{"gpu": "nvidia"}}}
	got := Effective(v1.MigrationConfiguration{}, []migrationsv1alpha1.MigrationPolicy{first, second}, vmi, nil)
	if got.CompletionTimeoutPerGiB == nil || *got.CompletionTimeoutPerGiB != 7 {
		t.Errorf("the configuration is %+v", got)
	}
}
