// Package notserved answers requests for KubeVirt kinds that Drydock does not serve: the error names the alternative.
//
// It owns the table of those groups. It must do nothing else: it reads no body and sends no request. Package
// registration registers them with kube-apiserver as long as no other component serves them. See decision 605.
package notserved

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"kubevirt.io/api/export"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// Group is an API group in all its versions.
type Group struct {
	name     string
	versions []string
	kinds    []kind
}

type kind struct {
	name, resource, singular string
	short, subresources      []string
	instead                  string
}

const (
	templates = "template.kubevirt.io"
	template  = "VirtualMachineTemplate"
)

// Exports and Templates are not served. An installation of one group of Templates serves the other.
var (
	Exports = []Group{{
		// No module has the oldest version any more, but the virtctl of KubeVirt 1.5 requests it.
		name: export.GroupName, versions: []string{"v1", "v1beta1", "v1alpha1"},
		kinds: []kind{{
			name: "VirtualMachineExport", resource: "virtualmachineexports", singular: "virtualmachineexport",
			short: []string{"vmexport", "vmexports"}, instead: layout.InsteadOfExports,
		}},
	}}
	Templates = []Group{{
		name: templates, versions: []string{"v1beta1", "v1alpha1"},
		kinds: []kind{
			{name: template, resource: "virtualmachinetemplates", singular: "virtualmachinetemplate",
				short: []string{"vmt", "vmts"}, instead: layout.InsteadOfTemplates},
			{name: template + "Request", resource: "virtualmachinetemplaterequests", singular: "virtualmachinetemplaterequest",
				short: []string{"vmtr", "vmtrs"}, instead: layout.InsteadOfTemplates},
		},
	}, {
		name: "subresources." + templates, versions: []string{"v1beta1", "v1alpha1"},
		kinds: []kind{{
			name: template, resource: "virtualmachinetemplates", subresources: []string{"process", "create"}, instead: layout.InsteadOfTemplates,
		}},
	}}
)

// GroupVersions returns the group's versions.
func (g Group) GroupVersions() []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, version := range g.versions {
		all = append(all, schema.GroupVersion{Group: g.name, Version: version})
	}
	return all
}

// Resources returns the resources for discovery. Their only verb is create, which is enough for the error: components
// that list, delete or watch every resource ignore them.
func (g Group) Resources() []metav1.APIResource {
	var all []metav1.APIResource
	for _, k := range g.kinds {
		resource := metav1.APIResource{
			Name: k.resource, SingularName: k.singular, Namespaced: true, Kind: k.name, ShortNames: k.short, Verbs: metav1.Verbs{"create"},
		}
		if len(k.subresources) == 0 {
			all = append(all, resource)
		}
		for _, sub := range k.subresources {
			resource.Name = k.resource + "/" + sub
			all = append(all, resource)
		}
	}
	return all
}

// Handler answers every request with the alternative.
func (g Group) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, version := range g.GroupVersions() {
		root := "/apis/" + version.String() + "/"
		for _, k := range g.kinds {
			for _, path := range []string{k.resource, "namespaces/{namespace}/" + k.resource} {
				mux.HandleFunc(root+path, g.refuse(k))
				mux.HandleFunc(root+path+"/{name}", g.refuse(k))
				mux.HandleFunc(root+path+"/{name}/{rest...}", g.refuse(k))
			}
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer.Error(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: r.URL.Path + " is not known",
		}})
	})
	return mux
}

func (g Group) refuse(k kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer.Error(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: fmt.Sprintf("%s: %s: %s", k.name, supported.NotSupported, k.instead),
			Details: &metav1.StatusDetails{Group: g.name, Kind: k.resource, Name: r.PathValue("name")},
		}})
	}
}
