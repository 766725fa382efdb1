//go:build apiserver

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const olderVersion = "kubevirt.io/v1alpha3"

var errNotThere = errors.New("it is not there")

// olderVersions uses clients that know only the deprecated versions.
func (w *world) olderVersions(t *testing.T) {
	old := w.vm("old")
	old.SetAPIVersion(olderVersion)
	must(t, w.admin.Create(t.Context(), old))
	if old.GetAPIVersion() != olderVersion {
		t.Errorf("the answer is of %s", old.GetAPIVersion())
	}
	if machine, _, _ := unstructured.NestedString(old.Object, "spec", "template", "spec", "domain", "machine", "type"); machine == "" {
		t.Error("the webhook that completes VMs was not asked")
	}
	same := &v1.VirtualMachine{}
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(old), same))
	if same.UID != old.GetUID() {
		t.Error("kubevirt.io/v1 shows another object")
	}

	wrong := w.vm("wrong-old")
	wrong.SetAPIVersion(olderVersion)
	must(t, unstructured.SetNestedSlice(wrong.Object, []any{map[string]any{"name": "nowhere"}}, "spec", "template", "spec", "domain", "devices", "disks"))
	if err := w.admin.Create(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "spec.template.spec.domain.devices.disks[0].name") {
		t.Errorf("a wrong VM: %v", err)
	}

	start := strings.Replace(w.subresource("virtualmachines", "old", "start"), "/v1/", "/v1alpha3/", 1)
	w.eventually(t, "start by subresources.kubevirt.io/v1alpha3", func() error {
		_, err := w.call(http.MethodPut, start, "{}")
		return err
	})
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(old), same))
	if strategy, err := same.RunStrategy(); err != nil || strategy != v1.RunStrategyAlways {
		t.Errorf("after the start the run strategy is %s (%v)", strategy, err)
	}
	must(t, w.admin.Delete(t.Context(), old))
}

// The policies of the current version must refuse objects in the deprecated one.
func (w *world) olderVersionsAreJudged(t *testing.T) {
	for _, file := range []string{"snapshot-policy.yaml", "clone-policy.yaml"} {
		for _, object := range manifests(t, "../../config/rbac/"+file) {
			w.apply(object)
		}
	}
	ask := func(group, version, kind, of string) (*unstructured.Unstructured, error) {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"source": map[string]any{"apiGroup": v1.GroupVersion.Group, "kind": of, "name": "old"},
		}}}
		o.SetAPIVersion(group + "/" + version)
		o.SetKind(kind)
		o.SetNamespace(w.namespace)
		o.SetGenerateName("old-")
		return o, w.admin.Create(t.Context(), o)
	}
	const kind = "VirtualMachineSnapshot"
	current := snapshotv1.SchemeGroupVersion
	snapshot, err := ask(current.Group, "v1alpha1", kind, "VirtualMachine")
	must(t, err)
	same := &unstructured.Unstructured{}
	same.SetAPIVersion(current.String())
	same.SetKind(kind)
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(snapshot), same))
	if same.GetUID() != snapshot.GetUID() || !equality.Semantic.DeepEqual(same.Object["spec"], snapshot.Object["spec"]) {
		t.Errorf("%s shows %v", current, same)
	}
	for group, kind := range map[string]string{current.Group: kind, clonev1.SchemeGroupVersion.Group: "VirtualMachineClone"} {
		refuses := func(version string) error {
			_, err := ask(group, version, kind, "Pod")
			if says := fmt.Sprint(err); !strings.Contains(says, "spec.source: ") || !strings.Contains(says, " is of a VirtualMachine") {
				return fmt.Errorf("a %s of a Pod: %s", kind, says)
			}
			return nil
		}
		w.eventually(t, "the policy is in force", func() error { return refuses(current.Version) })
		if err := refuses("v1alpha1"); err != nil {
			t.Errorf("v1alpha1: %v", err)
		}
	}
}

// fractions are quantities that are numbers, as in YAML without quotes.
func (w *world) fractions(t *testing.T) {
	requests := []string{"spec", "template", "spec", "domain", "resources", "requests"}
	vm := w.vm("fraction")
	must(t, unstructured.SetNestedField(vm.Object, 2.2, append(requests, "cpu")...))
	must(t, w.admin.Create(t.Context(), vm, client.FieldValidation(metav1.FieldValidationStrict)))
	read := &v1.VirtualMachine{}
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vm), read))
	if cpu := read.Spec.Template.Spec.Domain.Resources.Requests.Cpu(); cpu.MilliValue() != 2200 {
		t.Errorf("the request is %s CPUs", cpu)
	}

	// The schema accepts values that are no quantities; virt-api must refuse them.
	for name, value := range map[string]any{"object": map[string]any{"a": "b"}, "boolean": true, "list": []any{"1"}, "word": "much"} {
		wrong := w.vm("fraction-" + name)
		must(t, unstructured.SetNestedField(wrong.Object, value, append(requests, "cpu")...))
		if err := w.admin.Create(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "decoding VirtualMachine "+w.namespace+"/"+wrong.GetName()) {
			t.Errorf("CPUs that are a %s: %v", name, err)
		}
	}
}

// openAPI checks virt-api's part of the cluster's documents.
func (w *world) openAPI(t *testing.T) {
	for _, version := range []string{"v1", "v1alpha3"} {
		path := "/apis/subresources.kubevirt.io/" + version + "/namespaces/{namespace}/virtualmachines/{name}/start"
		for _, document := range []string{"/openapi/v2", "/openapi/v3/apis/subresources.kubevirt.io/" + version} {
			w.eventually(t, document+" to have "+path, func() error {
				text, err := w.call(http.MethodGet, document, "")
				if err != nil {
					return err
				}
				var read struct {
					Paths map[string]struct {
						Put *struct {
							OperationID string `json:"operationId"`
						} `json:"put"`
					} `json:"paths"`
				}
				if err := json.Unmarshal([]byte(text), &read); err != nil {
					return err
				}
				if put := read.Paths[path].Put; put == nil || put.OperationID == "" {
					return errNotThere
				}
				return nil
			})
		}
	}
}
