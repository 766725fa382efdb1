package upload

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/answer"
)

// GroupVersion is served by Tokens.
var GroupVersion = uploadv1.SchemeGroupVersion

const (
	resource = "uploadtokenrequests"
	kind     = "UploadTokenRequest"
	// maxBody bounds, in bytes, an UploadTokenRequest.
	maxBody = 1 << 20
)

var create = http.MethodPost + " /apis/" + GroupVersion.String() + "/namespaces/{namespace}/" + resource

// Tokens serves the group.
type Tokens struct {
	cluster client.Client
	keys    *keys
	now     func() time.Time
	mux     *http.ServeMux
}

// NewTokens returns Tokens. cluster must not use a cache.
func NewTokens(cluster client.Client) *Tokens {
	t := &Tokens{cluster: cluster, now: time.Now, keys: &keys{cluster: cluster, now: time.Now}, mux: http.NewServeMux()}
	t.mux.HandleFunc(create, t.create)
	t.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer.Error(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: r.Method + " " + r.URL.Path + ": an " + kind + " can only be created; nothing of it is kept",
		}})
	})
	return t
}

// Resources returns the resources for discovery.
func (*Tokens) Resources() []metav1.APIResource {
	return []metav1.APIResource{{Name: resource, SingularName: "uploadtokenrequest", Namespaced: true,
		Kind: kind, Verbs: metav1.Verbs{"create"}, ShortNames: []string{"utr", "utrs"}}}
}

// Operations returns all methods with their paths, as patterns of http.ServeMux.
func (*Tokens) Operations() []string { return []string{create} }

// ServeHTTP serves the group.
func (t *Tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.mux.ServeHTTP(w, r) }

func (t *Tokens) create(w http.ResponseWriter, r *http.Request) {
	request, err := readRequest(r)
	if err == nil {
		err = t.answer(r, request)
	}
	if err != nil {
		answer.Error(w, err)
		return
	}
	if err := answer.JSON(w, http.StatusCreated, request); err != nil {
		answer.Error(w, err)
	}
}

// The request must be for the namespace of the path.
func readRequest(r *http.Request) (*uploadv1.UploadTokenRequest, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the request's body: %v", err))
	}
	if len(text) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", maxBody))
	}
	request := &uploadv1.UploadTokenRequest{}
	if err := json.Unmarshal(text, request); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decoding the %s: %v", kind, err))
	}
	namespace := r.PathValue("namespace")
	switch {
	case request.Namespace != "" && request.Namespace != namespace:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace is %s; it must be empty or %s, as in the path",
			request.Namespace, namespace))
	case request.Spec.PvcName == "":
		return nil, apierrors.NewBadRequest("spec.pvcName: must name the PVC to upload to")
	}
	request.Namespace = namespace
	return request, nil
}

func (t *Tokens) answer(r *http.Request, request *uploadv1.UploadTokenRequest) error {
	claim, err := target(r.Context(), t.cluster, types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PvcName})
	if err != nil {
		return err
	}
	ring, err := t.keys.current(r.Context())
	if err != nil {
		return err
	}
	token, err := grant{Namespace: claim.Namespace, PVC: claim.Name, UID: claim.UID}.sign(ring, t.now())
	if err != nil {
		return err
	}
	request.TypeMeta = metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind}
	request.CreationTimestamp = metav1.NewTime(t.now())
	request.Status = uploadv1.UploadTokenRequestStatus{Token: token}
	return nil
}
