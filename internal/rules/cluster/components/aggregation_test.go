package components

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestRolesAreAggregatedUnlessTheKubeVirtObjectSaysManual(t *testing.T) {
	const label, record = `rbac.authorization.k8s.io/aggregate-to-edit`, `{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-edit":"true"}}}`
	with := func(strategy v1.RoleAggregationStrategy) *v1.KubeVirt {
		kv := &v1.KubeVirt{}
		kv.Spec.Configuration.RoleAggregationStrategy = &strategy
		return kv
	}
	manual, aggregate := with(v1.RoleAggregationStrategyManual), with(v1.RoleAggregationStrategyAggregateToDefault)
	back := `{"metadata":{"resourceVersion":"7","labels":{"rbac.authorization.k8s.io/aggregate-to-edit":"true"},"annotations":{"drydock.dev/replaced-by-kubevirt-object":null}}}`
	away := `{"metadata":{"resourceVersion":"7","labels":{"rbac.authorization.k8s.io/aggregate-to-edit":null},"annotations":{"drydock.dev/replaced-by-kubevirt-object":` +
		`"{\"metadata\":{\"labels\":{\"rbac.authorization.k8s.io/aggregate-to-edit\":\"true\"}}}"}}}`
	for name, test := range map[string]struct {
		kv     *v1.KubeVirt
		label  string
		record string
		want   string
	}{
		"no object, as the manifest has it":               {nil, "true", "", ""},
		"the default, as the manifest has it":             {aggregate, "true", "", ""},
		"manual, as the manifest has it":                  {manual, "true", "", away},
		"manual, the manifest was applied again":          {manual, "true", record, away},
		"manual, and it is":                               {manual, "", record, ""},
		"manual, and an overlay has no label":             {manual, "", "", ""},
		"the default again":                               {aggregate, "", record, back},
		"the object is gone":                              {nil, "", record, back},
		"the default, and an overlay has no label":        {aggregate, "", "", ""},
		"the default again, the manifest has the label":   {aggregate, "true", record, back},
		"the record is spoiled":                           {aggregate, "", "{", `{"metadata":{"resourceVersion":"7","annotations":{"drydock.dev/replaced-by-kubevirt-object":null}}}`},
		"the record speaks of another role's label":       {aggregate, "", `{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`, `{"metadata":{"resourceVersion":"7","annotations":{"drydock.dev/replaced-by-kubevirt-object":null}}}`},
		"manual, and the label says that it is not added": {manual, "false", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			role := &metav1.ObjectMeta{Name: "kubevirt.io:edit", ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{}}
			if test.label != "" {
				role.Labels[label] = test.label
			}
			if test.record != "" {
				role.Annotations[ReplacedAnnotation] = test.record
			}
			got, err := Aggregation(role, test.kv)
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
	for name, want := range map[string]bool{"kubevirt.io:view": true, "kubevirt.io:default": false, "admin": false} {
		if AggregatedRole(name) != want {
			t.Errorf("%s is aggregated: %v", name, !want)
		}
	}
}
