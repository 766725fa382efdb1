package notserved

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exportv1 "kubevirt.io/api/export/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/yaml"
)

var all = slices.Concat(Exports, Templates)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestWhoWritesToAKindIsToldWhatToDoInstead(t *testing.T) {
	const (
		export   = "VirtualMachineExport: not supported by Drydock: copy a disk with a DataVolume whose source is its claim; to take one out of the cluster, read the claim in a pod"
		instead  = "not supported by Drydock: write the machine's manifest with 'virtctl create vm', and keep the variants with kustomize or Helm"
		template = "VirtualMachineTemplate: " + instead
		request  = "VirtualMachineTemplateRequest: " + instead
	)
	for path, want := range map[string]string{
		"GET /apis/export.kubevirt.io/v1/virtualmachineexports":                                                                "405 " + export,
		"POST /apis/export.kubevirt.io/v1/namespaces/mine/virtualmachineexports":                                               "405 " + export,
		"POST /apis/export.kubevirt.io/v1beta1/namespaces/mine/virtualmachineexports":                                          "405 " + export,
		"GET /apis/export.kubevirt.io/v1alpha1/namespaces/mine/virtualmachineexports/copy":                                     "405 " + export,
		"DELETE /apis/export.kubevirt.io/v1beta1/namespaces/mine/virtualmachineexports/copy":                                   "405 " + export,
		"PATCH /apis/export.kubevirt.io/v1beta1/namespaces/mine/virtualmachineexports/copy/status":                             "405 " + export,
		"POST /apis/template.kubevirt.io/v1alpha1/namespaces/mine/virtualmachinetemplates":                                     "405 " + template,
		"POST /apis/template.kubevirt.io/v1beta1/namespaces/mine/virtualmachinetemplates":                                      "405 " + template,
		"POST /apis/subresources.template.kubevirt.io/v1beta1/namespaces/mine/virtualmachinetemplates/variant/process":         "405 " + template,
		"POST /apis/template.kubevirt.io/v1alpha1/namespaces/mine/virtualmachinetemplaterequests":                              "405 " + request,
		"POST /apis/subresources.template.kubevirt.io/v1alpha1/namespaces/mine/virtualmachinetemplates/variant/process":        "405 " + template,
		"GET /apis/export.kubevirt.io/v1/namespaces/mine/others":                                                               "404 /apis/export.kubevirt.io/v1/namespaces/mine/others is not known",
		"GET /apis/export.kubevirt.io/v2/virtualmachineexports":                                                                "404 /apis/export.kubevirt.io/v2/virtualmachineexports is not known",
		"POST /apis/subresources.template.kubevirt.io/v1alpha1/namespaces/mine/virtualmachinetemplaterequests/variant/process": "404 /apis/subresources.template.kubevirt.io/v1alpha1/namespaces/mine/virtualmachinetemplaterequests/variant/process is not known",
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, g := range all {
			if !strings.HasPrefix(path, "/apis/"+g.name+"/") {
				continue
			}
			answer := httptest.NewRecorder()
			g.Handler().ServeHTTP(answer, httptest.NewRequest(method, path, unread{t}))
			var status metav1.Status
			if err := yaml.Unmarshal(answer.Body.Bytes(), &status); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			code, message, _ := strings.Cut(want, " ")
			if status.Kind != "Status" || status.Status != metav1.StatusFailure || http.StatusText(int(status.Code)) != http.StatusText(answer.Code) ||
				status.Message != message || !strings.HasPrefix(answer.Result().Status, code) {
				t.Errorf("%s %s: %d %+v; want %s", method, path, answer.Code, status, want)
			}
			if code == "405" && !apierrors.IsMethodNotSupported(&apierrors.StatusError{ErrStatus: status}) {
				t.Errorf("%s %s: the reason is %s", method, path, status.Reason)
			}
		}
	}
}

// The namespace controller, the garbage collector and backup tools look for kinds that can be listed and deleted.
func TestNobodyListsDeletesOrWatchesThem(t *testing.T) {
	for _, g := range all {
		resources := g.Resources()
		if len(resources) == 0 {
			t.Errorf("%s has nothing to be called", g.name)
		}
		for _, r := range resources {
			if !slices.Equal(r.Verbs, metav1.Verbs{"create"}) || len(r.Categories) > 0 || !r.Namespaced {
				t.Errorf("%s of %s: verbs %v, categories %v", r.Name, g.name, r.Verbs, r.Categories)
			}
		}
	}
}

// Clients of KubeVirt's modules ask for these versions.
func TestTheVersionsOfKubeVirtsModulesAreAnswered(t *testing.T) {
	var answered []schema.GroupVersion
	for _, g := range all {
		answered = append(answered, g.GroupVersions()...)
	}
	for _, version := range []schema.GroupVersion{exportv1.SchemeGroupVersion, exportv1beta1.SchemeGroupVersion} {
		if !slices.Contains(answered, version) {
			t.Errorf("%s has no answer", version)
		}
	}
}
