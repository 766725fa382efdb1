//go:build apiserver

package api

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
)

// templates writes VMs, as a user who may make VMs in one namespace, that clone a disk from another, without the right
// to read there and with it.
func (w *world) templates(t *testing.T) {
	source := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "api-test-source-"}}
	must(t, w.admin.Create(t.Context(), source))
	t.Cleanup(func() { _ = w.admin.Delete(context.WithoutCancel(t.Context()), source) })
	subject := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "cloner"}}
	must(t, w.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cloner", Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:edit"}, Subjects: subject,
	}))
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "cloner", Groups: []string{"system:authenticated"}}
	cloner, err := client.New(config, client.Options{})
	must(t, err)

	const refused = "you may not create datavolumes/source in namespace "
	w.eventually(t, "the clone to be refused for want of the right", func() error {
		err := cloner.Create(t.Context(), w.cloning("thief", source.Name))
		if err != nil && strings.Contains(err.Error(), refused+source.Name) {
			return nil
		}
		return err
	})
	must(t, w.admin.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "cloner", Namespace: source.Name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}}},
	}))
	must(t, w.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cloner", Namespace: source.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "cloner"}, Subjects: subject,
	}))
	w.eventually(t, "the clone to be admitted", func() error {
		return cloner.Create(t.Context(), w.cloning("owner", source.Name))
	})

	// A drain changes the claim's name: virt-controller may read nothing there, and the source was judged before.
	must(t, w.component(admission.ControllerServiceAccount).Patch(t.Context(), w.cloning("owner", source.Name), client.RawPatch(types.JSONPatchType, []byte(
		`[{"op":"replace","path":"/spec/dataVolumeTemplates/0/metadata/name","value":"owner-moved"},
		  {"op":"replace","path":"/spec/template/spec/volumes/0/dataVolume/name","value":"owner-moved"}]`))))
}

// cloning is a VM whose only disk is cloned from a namespace.
func (w *world) cloning(name, namespace string) *unstructured.Unstructured {
	vm := w.vm(name)
	vm.Object["spec"].(map[string]any)["dataVolumeTemplates"] = []any{map[string]any{
		"metadata": map[string]any{"name": name + "-disk"},
		"spec": map[string]any{
			"source":  map[string]any{"pvc": map[string]any{"namespace": namespace, "name": "golden"}},
			"storage": map[string]any{},
		},
	}}
	_ = unstructured.SetNestedSlice(vm.Object, []any{map[string]any{
		"name": "disk", "dataVolume": map[string]any{"name": name + "-disk"},
	}}, "spec", "template", "spec", "volumes")
	return vm
}
