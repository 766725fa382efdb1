package api

import (
	"bytes"
	"context"
	"encoding/json"
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
			body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
				UID: "1", Namespace: "mine", Name: "vm", Operation: admissionv1.Create,
				UserInfo: authenticationv1.UserInfo{Username: "tenant"}, Object: runtime.RawExtension{Raw: []byte(vmThatClones)},
			}})
			must(t, err)
			request := httptest.NewRequest("POST", validateVM, bytes.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			served[validateVM].ServeHTTP(answer, request)
			var review admissionv1.AdmissionReview
			must(t, json.Unmarshal(answer.Body.Bytes(), &review))
			if review.Response == nil || review.Response.Allowed != c.allowed {
				t.Fatalf("the answer is %s", answer.Body)
			}
			if !c.allowed && !strings.Contains(review.Response.Result.Message, "you may not create datavolumes/source in namespace theirs") {
				t.Errorf("refused with %q", review.Response.Result.Message)
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
