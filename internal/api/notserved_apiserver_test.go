//go:build apiserver

package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// notServed writes, as users, to KubeVirt's kinds that are not served.
func (w *world) notServed(t *testing.T) {
	exports := func(version string) string {
		return "/apis/export.kubevirt.io/" + version + "/namespaces/" + w.namespace + "/virtualmachineexports"
	}
	templates := "/apis/template.kubevirt.io/v1alpha1/namespaces/" + w.namespace + "/virtualmachinetemplates"
	process := "/apis/subresources.template.kubevirt.io/v1alpha1/namespaces/" + w.namespace + "/virtualmachinetemplates/variant/process"
	for path, want := range map[string]string{
		exports("v1"): layout.InsteadOfExports, exports("v1beta1"): layout.InsteadOfExports, exports("v1alpha1"): layout.InsteadOfExports,
		strings.Replace(templates, "v1alpha1", "v1beta1", 1): layout.InsteadOfTemplates,
		strings.Replace(process, "v1alpha1", "v1beta1", 1):   layout.InsteadOfTemplates,
		templates: layout.InsteadOfTemplates, templates + "requests": layout.InsteadOfTemplates, process: layout.InsteadOfTemplates,
	} {
		path = strings.Replace(path, "templatesrequests", "templaterequests", 1)
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			w.isRefused(t, w.config, method, path, want)
		}
	}
	w.isRefused(t, w.config, http.MethodDelete, exports("v1")+"/copy", layout.InsteadOfExports)

	editor := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "exporter", Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "exporter"}},
	}
	must(t, w.admin.Create(t.Context(), editor))
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "exporter"}
	w.isRefused(t, config, http.MethodPost, exports("v1beta1"), layout.InsteadOfExports)

	w.nothingOfThemIsListed(t)
	w.definitionsAreServed(t, templates, process)
}

func (w *world) isRefused(t *testing.T, config *rest.Config, method, path, instead string) {
	t.Helper()
	w.eventually(t, method+" "+path+" to be refused", func() error {
		_, err := callAs(t.Context(), config, method, path, "{}")
		if !apierrors.IsMethodNotSupported(err) || !strings.HasSuffix(err.Error(), instead) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
}

// nothingOfThemIsListed reads discovery as a namespace's deletion or backup does, and deletes a namespace.
func (w *world) nothingOfThemIsListed(t *testing.T) {
	known, err := discovery.NewDiscoveryClientForConfig(w.config)
	must(t, err)
	lists, err := known.ServerPreferredNamespacedResources()
	must(t, err)
	for _, list := range lists {
		of := strings.HasPrefix(list.GroupVersion, "export.kubevirt.io/") || strings.Contains(list.GroupVersion, "template.kubevirt.io/")
		for _, resource := range list.APIResources {
			if of && (len(resource.Verbs) != 1 || len(resource.Categories) > 0) {
				t.Errorf("%s of %s has the verbs %v and the categories %v", resource.Name, list.GroupVersion, resource.Verbs, resource.Categories)
			}
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "api-test-gone-"}}
	must(t, w.admin.Create(t.Context(), ns))
	must(t, w.admin.Delete(t.Context(), ns))
	w.eventually(t, "the namespace to go", func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%+v): %w", ns.Status, err)
		}
		return nil
	})
}

// definitionsAreServed installs a definition of a refused group, which must be served, and removes it.
func (w *world) definitionsAreServed(t *testing.T, templates, process string) {
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "virtualmachinetemplates.template.kubevirt.io",
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"}},
		"spec": map[string]any{
			"group": "template.kubevirt.io", "scope": "Namespaced",
			"names": map[string]any{"plural": "virtualmachinetemplates", "kind": "VirtualMachineTemplate"},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
	must(t, w.admin.Create(t.Context(), definition))
	t.Cleanup(func() {
		if err := w.admin.Delete(context.Background(), definition); client.IgnoreNotFound(err) != nil {
			t.Errorf("removing the definition: %v", err)
		}
	})
	w.eventually(t, "the definition to be served", func() error {
		_, err := w.call(http.MethodPost, templates, `{"apiVersion":"template.kubevirt.io/v1alpha1","kind":"VirtualMachineTemplate","metadata":{"name":"variant"}}`)
		return err
	})
	w.eventually(t, "the subresources to be nobody's", func() error {
		// This is kube-apiserver's own answer.
		if _, err := w.call(http.MethodPost, process, "{}"); !strings.Contains(fmt.Sprint(err), "404 page not found") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	must(t, w.admin.Delete(t.Context(), definition))
	w.isRefused(t, w.config, http.MethodPost, templates, layout.InsteadOfTemplates)
	w.isRefused(t, w.config, http.MethodPost, process, layout.InsteadOfTemplates)
}
