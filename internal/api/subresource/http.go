package subresource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/rules/object/listbounds"
)

// maxBody bounds, in bytes, a request's body. The largest is a whole VirtualMachine.
const maxBody = 3 << 20

// A handler's error is the response.
type handler func(http.ResponseWriter, *http.Request) error

func serve(do handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			answer.Error(w, err)
		}
	}
}

func key(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// Without a body all options have their defaults.
func readOptions[T any](r *http.Request) (*T, error) {
	options, err := readBody[T](r)
	if options == nil && err == nil {
		options = new(T)
	}
	return options, err
}

// readBody decodes the body, nil for none. An unknown field is an error, since the caller expects an effect of it.
func readBody[T any](r *http.Request) (*T, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the request's body: %v", err))
	}
	if len(text) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", maxBody))
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if tooLong, err := listbounds.Exceeded(text); tooLong != nil {
		return nil, apierrors.NewBadRequest(tooLong.Error())
	} else if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decoding the request's body: %v", err))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var body *T
	if err := decoder.Decode(&body); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decoding the request's body: %v", err))
	}
	return body, nil
}

// KubeVirt's clients read these fields.
func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	if err := answer.JSON(w, http.StatusOK, version.Get()); err != nil {
		answer.Error(w, err)
	}
}
