package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnErrorBecomesItsStatus(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		code    int32
		reason  metav1.StatusReason
		message string
	}{
		"a Status": {apierrors.NewBadRequest("no such field"), http.StatusBadRequest, metav1.StatusReasonBadRequest, "no such field"},
		"a Status that is wrapped": {fmt.Errorf("starting vm: %w", apierrors.NewBadRequest("no such field")),
			http.StatusBadRequest, metav1.StatusReasonBadRequest, "no such field"},
		"no Status": {errors.New("the disk is on fire"), http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"Internal error occurred: the disk is on fire"},
		"a Status without a code": {&apierrors.StatusError{ErrStatus: metav1.Status{Message: "odd"}}, http.StatusInternalServerError, "", "odd"},
		"a Status that tells of success": {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK}},
			http.StatusInternalServerError, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()

			Error(w, test.err)

			var got metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			want := metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: test.code, Reason: test.reason, Message: test.message,
			}
			got.Details = nil // each error has details of its own
			if got != want || w.Code != int(test.code) || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("answered %d %q %+v, want %+v", w.Code, w.Header().Get("Content-Type"), got, want)
			}
		})
	}
}
