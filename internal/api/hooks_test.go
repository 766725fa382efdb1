package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// authorizer answers every question about a right with the same word.
type authorizer struct {
	client.Client
	allowed bool
}

func (a authorizer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	object.(*authorizationv1.SubjectAccessReview).Status.Allowed = a.allowed
	return nil
}

const vmThatClones = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"vm","namespace":"mine"},"spec":{
	"runStrategy":"Halted",
	"dataVolumeTemplates":[{"metadata":{"name":"disk"},"spec":{"source":{"pvc":{"namespace":"theirs","name":"secret"}},"storage":{}}}],
	"template":{"spec":{"domain":{"memory":{"guest":"64Mi"},"devices":{}},"volumes":[{"name":"disk","dataVolume":{"name":"disk"}}]}}}}`

// Where CDI serves DataVolumes, it judges whoever makes one, and of a VM's templates
// that is virt-controller.
func TestTheRightToCloneIsAskedWhoeverServesDataVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		cdi     corev1.ConditionStatus
		allowed bool
	}{
		"Drydock serves, without the right": {corev1.ConditionTrue, false},
		"Drydock serves, with the right":    {corev1.ConditionTrue, true},
		"CDI serves, without the right":     {corev1.ConditionFalse, false},
		"CDI serves, with the right":        {corev1.ConditionFalse, true},
	} {
		t.Run(name, func(t *testing.T) {
			settings := &clusterconfig.Current{}
			settings.Set(&v1.KubeVirt{Status: v1.KubeVirtStatus{Conditions: []v1.KubeVirtCondition{
				{Type: clusterconfig.ConditionDataVolumes, Status: c.cdi},
			}}})
			served, err := webhooks(settings, authorizer{allowed: c.allowed})
			must(t, err)
			response := ask(t, served[validateVM], vmThatClones)
			if response.Allowed != c.allowed {
				t.Fatalf("the answer is %+v", response)
			}
			if !c.allowed && !strings.Contains(response.Result.Message, "you may not create datavolumes/source in namespace theirs") {
				t.Errorf("refused with %q", response.Result.Message)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Who makes a type or a preference is told of its annotations as who makes a VMI is.
func TestWebhooksTellWhichAnnotationsHaveNoEffect(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{})
	must(t, err)
	const told = "annotations[kubevirt.io/memfd] has no effect: nothing here needs a guest's memory to be a memfd"
	for path, object := range map[string]string{
		mutateVMI:                 `{"metadata":{"annotations":{"kubevirt.io/memfd":"false"}}}`,
		validateType:              `{"spec":{"cpu":{"guest":1},"memory":{"guest":"1Gi"},"annotations":{"kubevirt.io/memfd":"false"}}}`,
		validateClusterPreference: `{"spec":{"annotations":{"kubevirt.io/memfd":"false"}}}`,
	} {
		response := ask(t, served[path], object)
		if !response.Allowed || len(response.Warnings) != 1 || !strings.HasSuffix(response.Warnings[0], told) {
			t.Errorf("%s: allowed %v, warnings %q", path, response.Allowed, response.Warnings)
		}
	}
}

// ask has a webhook judge an object that a tenant creates.
func ask(t *testing.T, webhook http.Handler, object string) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Namespace: "mine", Name: "vm", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: "tenant"}, Object: runtime.RawExtension{Raw: []byte(object)},
	}})
	must(t, err)
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	webhook.ServeHTTP(answer, request)
	var review admissionv1.AdmissionReview
	must(t, json.Unmarshal(answer.Body.Bytes(), &review))
	if review.Response == nil {
		t.Fatalf("the answer is %s", answer.Body)
	}
	return review.Response
}
