package api

import (
	"bytes"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/api/admission"
)

// reviews are kube-apiserver's admission requests. That single caller sends the requests of many tenants.
type reviews struct{}

type reviewHead struct {
	uid                 types.UID
	namespace, username string
}

// A namespace has one lane for users' large objects and one for components', so that a VM starts while others are
// judged.
func (reviews) lane(_ *http.Request, head []byte) string {
	review := readHead(head)
	if admission.IsComponent(review.username) {
		return "component " + review.namespace
	}
	return "user " + review.namespace
}

// kube-apiserver would report an HTTP error to the user as a failure of the webhook.
func (reviews) refuse(w http.ResponseWriter, head []byte, err error) {
	review := readHead(head)
	if review.uid == "" {
		answer.Error(w, err)
		return
	}
	status := answer.Status(err)
	if err := answer.JSON(w, http.StatusOK, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &admissionv1.AdmissionResponse{UID: review.uid, Result: &status},
	}); err != nil {
		answer.Error(w, err)
	}
}

// kube-apiserver writes these fields before the objects.
func readHead(text []byte) reviewHead {
	var head reviewHead
	decoder := json.NewDecoder(bytes.NewReader(text))
	if !enterField(decoder, "request") {
		return head
	}
	var user struct{ Username string }
	into := map[string]any{"uid": &head.uid, "namespace": &head.namespace, "userInfo": &user}
	for opening, err := decoder.Token(); err == nil && opening == json.Delim('{'); {
		var key json.Token
		if key, err = decoder.Token(); err != nil || key == "object" || key == "oldObject" || key == json.Delim('}') {
			break
		}
		name, _ := key.(string)
		target, known := into[name]
		if !known {
			target = new(json.RawMessage)
		}
		err = decoder.Decode(target)
	}
	head.username = user.Username
	return head
}

func enterField(decoder *json.Decoder, name string) bool {
	opening, err := decoder.Token()
	for err == nil && opening == json.Delim('{') {
		var key json.Token
		if key, err = decoder.Token(); err != nil || key == json.Delim('}') {
			return false
		}
		if key == name {
			return true
		}
		err = decoder.Decode(new(json.RawMessage))
	}
	return false
}

// bodies are users' requests that virt-api serves itself.
type bodies struct{}

func (bodies) lane(r *http.Request, _ []byte) string {
	if caller, known := request.UserFrom(r.Context()); known {
		return "caller " + caller.GetName()
	}
	return "caller"
}

func (bodies) refuse(w http.ResponseWriter, _ []byte, err error) { answer.Error(w, err) }
