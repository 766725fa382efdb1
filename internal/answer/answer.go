// Package answer writes HTTP responses of virt-api and virt-handler: objects as JSON, and errors as a Status. It owns the
// conversion of errors, and must not decide which error is returned.
package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status returns the status of an error, which the library's function does not unwrap. One without is internal (500).
func Status(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusInternalServerError
	}
	return status
}

// Error answers with the error's Status.
func Error(w http.ResponseWriter, err error) {
	status := Status(err)
	_ = JSON(w, int(status.Code), status) // a Status can always be encoded
}

// JSON answers with an object. If that can't be encoded, nothing was written.
func JSON(w http.ResponseWriter, code int, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // a caller that is gone needs no response
	return nil
}
