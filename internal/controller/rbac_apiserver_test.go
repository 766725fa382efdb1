//go:build apiserver

package controller

import (
	"bytes"
	"errors"
	"io"
	"os"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigyaml "sigs.k8s.io/yaml"
)

const manifestRBAC = "../../config/rbac/controller.yaml"

// leastPrivilege gives the loops of this world exactly the rights that the
// manifest gives to virt-controller, in the world's namespace instead of its
// own, so that every test is one of the manifest, too.
func (w *world) leastPrivilege() rest.ImpersonationConfig {
	w.t.Helper()
	data, err := os.ReadFile(manifestRBAC)
	w.do("reading the manifest", err)
	account := "system:serviceaccount:" + w.namespace + ":kubevirt-controller"
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var raw map[string]any
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			w.t.Fatalf("decoding %s: %v", manifestRBAC, err)
		}
		w.grant(raw, account)
	}
	w.eventually("the rights to be in force", func() (bool, string) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: account, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: w.namespace, Verb: "create", Group: "coordination.k8s.io", Resource: "leases",
			},
		}}
		w.do("reviewing the rights", w.client.Create(w.ctx, review))
		return review.Status.Allowed, review.Status.Reason
	})
	return rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
}

// grant makes one object of the manifest, for this world.
func (w *world) grant(raw map[string]any, account string) {
	w.t.Helper()
	data, err := sigyaml.Marshal(raw)
	w.do("encoding", err)
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: account}}
	meta := func(m *metav1.ObjectMeta, namespaced bool) {
		m.Name = "test-" + w.namespace
		m.Namespace = ""
		if namespaced {
			m.Namespace = w.namespace
		}
	}
	var object client.Object
	switch raw["kind"] {
	case "ClusterRole":
		role := &rbacv1.ClusterRole{}
		w.do("decoding", sigyaml.UnmarshalStrict(data, role))
		meta(&role.ObjectMeta, false)
		object = role
	case "Role":
		role := &rbacv1.Role{}
		w.do("decoding", sigyaml.UnmarshalStrict(data, role))
		meta(&role.ObjectMeta, true)
		object = role
	case "ClusterRoleBinding":
		binding := &rbacv1.ClusterRoleBinding{}
		w.do("decoding", sigyaml.UnmarshalStrict(data, binding))
		meta(&binding.ObjectMeta, false)
		binding.RoleRef.Name, binding.Subjects = binding.Name, subject
		object = binding
	case "RoleBinding":
		binding := &rbacv1.RoleBinding{}
		w.do("decoding", sigyaml.UnmarshalStrict(data, binding))
		meta(&binding.ObjectMeta, true)
		binding.RoleRef.Name, binding.Subjects = binding.Name, subject
		object = binding
	case "ServiceAccount":
		return
	default:
		w.t.Fatalf("%s holds a %v that this test does not know", manifestRBAC, raw["kind"])
	}
	w.do("granting", w.client.Create(w.ctx, object))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), object) })
}
