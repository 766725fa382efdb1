//go:build apiserver

package controller

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigyaml "sigs.k8s.io/yaml"
)

const manifestRBAC = "../../config/rbac/controller.yaml"

// leastPrivilege gives the loops of this world exactly virt-controller's rights from the manifest, in the world's
// namespace, so that every test also tests the manifest.
func (w *world) leastPrivilege() rest.ImpersonationConfig {
	w.t.Helper()
	account := "system:serviceaccount:" + w.namespace + ":kubevirt-controller"
	for _, object := range w.manifest(manifestRBAC) {
		w.grant(object.Object, account)
	}
	// The authorizer learns roles and bindings one by one: the test waits for one right of each role.
	inForce := func(right authorizationv1.ResourceAttributes) {
		w.t.Helper()
		w.eventually("the right to "+right.Verb+" "+right.Resource+" to be in force", func() (bool, string) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account, ResourceAttributes: &right}}
			w.do("reviewing the rights", w.client.Create(w.ctx, review))
			return review.Status.Allowed, review.Status.Reason
		})
	}
	inForce(authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: "create", Group: "coordination.k8s.io", Resource: "leases"})
	inForce(authorizationv1.ResourceAttributes{Verb: "list", Group: "kubevirt.io", Resource: "virtualmachines"})
	return rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
}

func (w *world) manifest(file string, replace ...string) []*unstructured.Unstructured {
	w.t.Helper()
	objects, err := readManifest(file, replace...)
	w.do("reading the manifest", err)
	return objects
}

func readManifest(file string, replace ...string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.NewReplacer(replace...).Replace(string(text))), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", file, err)
		}
		objects = append(objects, object)
	}
}

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
