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

// reviews are the requests by which kube-apiserver has objects judged. Many tenants' come from the one caller.
type reviews struct{}

// reviewHead is what the beginning of a review says of the rest.
type reviewHead struct {
	uid                 types.UID
	namespace, username string
}

// lane has the large objects of a namespace take turns, and those of Drydock's components there by themselves: a VM starts
// while its namespace's other VMs are judged.
func (reviews) lane(_ *http.Request, head []byte) string {
	review := readHead(head)
	if admission.IsComponent(review.username) {
		return "component " + review.namespace
	}
	return "user " + review.namespace
}

// refuse answers with a review: an HTTP error would be told to the user as a fault of the webhook.
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

// readHead reads as much of a review's beginning as there is. kube-apiserver writes what it is about before the objects.
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

// enterField reads an object as far as the value of a field.
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

// bodies are the requests of users that virt-api serves itself.
type bodies struct{}

// lane has the large bodies of one user take turns.
func (bodies) lane(r *http.Request, _ []byte) string {
	if caller, known := request.UserFrom(r.Context()); known {
		return "caller " + caller.GetName()
	}
	return "caller"
}

func (bodies) refuse(w http.ResponseWriter, _ []byte, err error) { answer.Error(w, err) }
