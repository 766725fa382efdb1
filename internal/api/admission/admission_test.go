package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

func review(t *testing.T, handler http.Handler, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	request.UID = "1"
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("answer is %s (%v)", w.Body, err)
	}
	return answer.Response
}

// The patch of a mutation must change only the fields of the rule, although Go's types would add fields to the object
// or write them differently.
func TestMutationPatchesOnlyWhatItChanges(t *testing.T) {
	handler, err := Mutating(func(r Request[v1.VirtualMachine]) {
		r.New.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{UUID: "u"}
	})
	if err != nil {
		t.Fatal(err)
	}
	// Go would write this quantity as 1Gi, the address as 10.0.2.0/24, and add a resources.
	sent := `{"spec":{"template":{"spec":{"domain":{"devices":{}},` +
		`"networks":[{"name":"default","pod":{"vmNetworkCIDR":"010.0.2.0/24"}}],` +
		`"volumes":[{"name":"a","emptyDisk":{"capacity":"1024Mi"}}]}}}}`
	response := review(t, handler, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(sent)},
	})
	const want = `[{"op":"add","path":"/spec/template/spec/domain/firmware","value":{"uuid":"u"}}]`
	if !response.Allowed || string(response.Patch) != want {
		t.Errorf("patch is %s, want %s (%+v)", response.Patch, want, response.Result)
	}
}

func TestRefusalHasAllErrorsAndTheirFields(t *testing.T) {
	spec := field.NewPath("spec")
	handler, err := Validating(func(r Request[v1.VirtualMachine]) field.ErrorList {
		if r.Operation != admissionv1.Update || r.Old.Name != "old" || r.New.Name != "new" || !r.Component() {
			t.Errorf("request is %+v", r)
		}
		return field.ErrorList{
			field.Forbidden(spec.Child("gpus"), "not supported by Drydock"),
			field.Invalid(spec.Child("cores"), 0, "must be at least 1"),
			{Type: field.ErrorTypeForbidden, BadValue: "", Detail: "about no field"},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	response := review(t, handler, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Update,
		UserInfo:  authenticationv1.UserInfo{Username: "system:serviceaccount:kubevirt:kubevirt-controller"},
		OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"old"}}`)},
		Object:    runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"new"}}`)},
	})
	want := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: "spec.gpus: not supported by Drydock; spec.cores: Invalid value: 0: must be at least 1; about no field",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Type: "FieldValueForbidden", Field: "spec.gpus", Message: "not supported by Drydock"},
			{Type: "FieldValueInvalid", Field: "spec.cores", Message: "Invalid value: 0: must be at least 1"},
			{Type: "FieldValueForbidden", Message: "about no field"},
		}},
	}
	if diff := cmp.Diff(want, response.Result); diff != "" || response.Allowed {
		t.Errorf("allowed %v\n%s", response.Allowed, diff)
	}
}

func TestAdviceComesWithWhatIsAdmitted(t *testing.T) {
	wrong := field.ErrorList{field.Required(field.NewPath("spec"), "")}
	for advised, errs := range map[bool]field.ErrorList{true: nil, false: wrong} {
		rule := func(context.Context, Request[v1.VirtualMachine]) (field.ErrorList, error) { return errs, nil }
		handler, err := ValidatingAsking(rule, func(r Request[v1.VirtualMachine]) []string { return []string{"rename " + r.New.Name} })
		if err != nil {
			t.Fatal(err)
		}
		response := review(t, handler, &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"vm"}}`)},
		})
		var want []string
		if advised {
			want = []string{"rename vm"}
		}
		if diff := cmp.Diff(want, response.Warnings); diff != "" || response.Allowed != advised {
			t.Errorf("allowed %v\n%s", response.Allowed, diff)
		}
	}
}

// TestAnObjectIsReadAsItIsStored: encoding/json takes "labels" with a long s, and "LABELS", for the labels, and the
// last of them counts. The webhook must not.
func TestAnObjectIsReadAsItIsStored(t *testing.T) {
	for _, key := range []string{"label\u017f", "LABELS"} {
		var seen map[string]string
		handler, err := Validating(func(r Request[v1.VirtualMachine]) field.ErrorList {
			seen = r.New.Spec.Template.ObjectMeta.Labels
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := `{"spec":{"template":{"metadata":{"labels":{"` + v1.NodeNameLabel + `":"x"},"` + key + `":null}}}}`
		review(t, handler, &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(sent)}})
		if seen[v1.NodeNameLabel] != "x" {
			t.Errorf("%q: the labels are %v", key, seen)
		}
	}
}

func TestWhatCannotBeReadIsABadRequest(t *testing.T) {
	handler, err := Validating(func(Request[v1.VirtualMachine]) field.ErrorList {
		t.Error("the rule was asked")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	response := review(t, handler, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Name: "vm", Namespace: "ns",
		Kind:   metav1.GroupVersionKind{Kind: "VirtualMachine"},
		Object: runtime.RawExtension{Raw: []byte(`{"spec":{"running":"yes"}}`)},
	})
	if response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("answer is %+v", response.Result)
	}
}

func TestOnlyDrydocksServiceAccountsAreComponents(t *testing.T) {
	for name, want := range map[string]bool{
		"system:serviceaccount:kubevirt:kubevirt-apiserver":  true,
		"system:serviceaccount:kubevirt:kubevirt-handler":    true,
		"system:serviceaccount:default:kubevirt-handler":     false,
		"system:serviceaccount:kubevirt:default":             false,
		"kubevirt-handler":                                   false,
		"system:serviceaccount:kubevirt:kubevirt-handler:x":  false,
		"xsystem:serviceaccount:kubevirt:kubevirt-apiserver": false,
	} {
		if got := IsComponent(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
