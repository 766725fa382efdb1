package controller

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

// virt-controller may change one thing in three roles: whether each extends the cluster's role of its name.
func TestVirtControllerOnlyLabelsRoles(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/role-policy.yaml", "drydock-roles")
	const prefix = "rbac.authorization.k8s.io/aggregate-to-"
	role := func(name string, change func(*rbacv1.ClusterRole)) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubevirt.io": "", prefix + "view": "true"}},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}}},
		}
		if change != nil {
			change(r)
		}
		return r
	}
	away := func(r *rbacv1.ClusterRole) {
		delete(r.Labels, prefix+"view")
		r.Annotations = map[string]string{components.ReplacedAnnotation: "{}"}
	}
	const view = "kubevirt.io:view"
	for name, test := range map[string]struct {
		by       *user.DefaultInfo
		old, new *rbacv1.ClusterRole
		refused  bool
	}{
		"the label goes":           {virtController, role(view, nil), role(view, away), false},
		"the label comes back":     {virtController, role(view, away), role(view, nil), false},
		"the label says no":        {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.Labels[prefix+"view"] = "false" }), true},
		"another role's label":     {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.Labels[prefix+"edit"] = "true" }), true},
		"another label goes":       {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { delete(r.Labels, "kubevirt.io") }), true},
		"another annotation":       {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.Annotations = map[string]string{"a": "b"} }), true},
		"a rule is added":          {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"*"}}) }), true},
		"a rule goes with a label": {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { away(r); r.Rules = nil }), true},
		"an aggregation rule":      {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.AggregationRule = &rbacv1.AggregationRule{} }), true},
		"a finalizer":              {virtController, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.Finalizers = []string{"a/b"} }), true},
		"another role":             {virtController, role("admin", nil), role("admin", away), true},
		"a role is made":           {virtController, nil, role(view, nil), true},
		"a role is deleted":        {virtController, role(view, nil), nil, true},
		"an administrator":         {administrator, role(view, nil), role(view, func(r *rbacv1.ClusterRole) { r.Rules = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			write := policytest.Write{By: test.by, Resource: "clusterroles"}
			if test.old != nil {
				write.Old = test.old
			}
			if test.new != nil {
				write.New = test.new
			}
			if answer := policy.Answer(t, write); (answer != "") != test.refused {
				t.Errorf("the answer is %q", answer)
			}
		})
	}
}
