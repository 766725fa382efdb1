//go:build apiserver

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const manifestUsers = "../../config/rbac/users.yaml"

func (w *world) usersRoles() {
	w.t.Helper()
	for _, object := range w.manifest(manifestUsers) {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		w.do("applying "+object.GetName(), w.client.Apply(w.ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl")))
		w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), object) })
	}
}

func (w *world) aggregated(want bool) {
	w.t.Helper()
	for _, name := range []string{"admin", "edit", "view"} {
		w.eventually("the role kubevirt.io:"+name+" to be as the KubeVirt object says", func() (bool, string) {
			var role rbacv1.ClusterRole
			w.do("reading the role", w.client.Get(w.ctx, client.ObjectKey{Name: "kubevirt.io:" + name}, &role))
			value, there := role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name]
			return there == want && (!want || value == "true"), "the label is " + value
		})
	}
}

func TestRolesAreAggregatedAsTheKubeVirtObjectSays(t *testing.T) {
	var existing rbacv1.ClusterRole
	w := newWorld(t)
	if err := w.client.Get(w.ctx, client.ObjectKey{Name: "kubevirt.io:edit"}, &existing); !apierrors.IsNotFound(err) {
		t.Skipf("this cluster has Drydock's roles, which the test would take away: %v", err)
	}
	w.usersRoles()
	w.setEmulation("kubevirt", w.namespace, true)
	w.aggregated(true)

	manual := v1.RoleAggregationStrategyManual
	w.say(func(spec *v1.KubeVirtSpec) { spec.Configuration.RoleAggregationStrategy = &manual })
	w.aggregated(false)
	// A newer release is applied.
	w.usersRoles()
	w.aggregated(false)
	w.eventually("no complaint", func() (bool, string) {
		status, message := w.synchronized()
		return status == corev1.ConditionTrue, message
	})
	w.awaitSettled()

	w.say(func(spec *v1.KubeVirtSpec) { spec.Configuration.RoleAggregationStrategy = nil })
	w.aggregated(true)
	w.awaitSettled()
}
