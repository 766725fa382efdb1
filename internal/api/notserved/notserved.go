// Package notserved answers for kinds of KubeVirt's that Drydock does not serve: whoever writes to one is told what to
// do instead, and not that the server could not find the requested resource.
//
// It owns the table of those groups. It must not do anything but answer: it reads no body and asks nobody. Package
// registration keeps kube-apiserver knowing of them, as long as nobody else serves them. See decision 605.
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
	"drydock.dev/drydock/internal/rules/supported"
)

// Group is an API group in all its versions.
type Group struct {
	name     string
	versions []string
	kinds    []kind
}

// kind is a resource as clients know it.
type kind struct {
	name, resource, singular string
	short, subresources      []string
	instead                  string
}

const (
	templates = "template.kubevirt.io"
	template  = "VirtualMachineTemplate"
)

// Exports and Templates are the groups. Those of Templates belong together: who installs the one serves the other.
var (
	Exports = []Group{{
		// The oldest version is in no module any more; the virtctl of KubeVirt 1.5 asks for it.
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

// GroupVersions are the group's versions.
func (g Group) GroupVersions() []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, version := range g.versions {
		all = append(all, schema.GroupVersion{Group: g.name, Version: version})
	}
	return all
}

// Resources are what discovery tells about. The one verb is that by which something is asked for: what lists, deletes or
// watches whatever can be (namespaces that go, the garbage collector, tools for backups) leaves these kinds alone.
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

// Handler answers any request for a kind of the group with what to do instead.
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
