package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/nodeapi"
)

// TestWhatAGuestsNodeAnswers: a refusal's message reaches the caller.
func TestWhatAGuestsNodeAnswers(t *testing.T) {
	const path = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/"
	answers := map[string]struct {
		code int
		body string
	}{
		"PUT " + path + "quiesce?holder=s1&timeout=2s": {200, `{"token":"t1","holder":"s1"}`},
		"GET " + path + "quiesce?verify=true":          {409, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"it is being migrated","code":409}`},
		"PUT " + path + "release?holder=s1":            {200, `{}`},
		"PUT " + path + "quiesce?holder=s2&timeout=2s": {500, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"GuestNotHeld","message":"the agent hangs","code":500}`},
		"PUT " + path + "quiesce?holder=s3&timeout=2s": {200, `[]`},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.Method+" "+r.URL.RequestURI()]
		if !known {
			t.Errorf("asked: %s %s", r.Method, r.URL.RequestURI())
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.code)
		fmt.Fprint(w, answer.body)
	}))
	defer server.Close()
	guests, err := NewGuests(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	if hold, err := guests.Quiesce(t.Context(), vmi, "s1", 2*time.Second); err != nil || hold.Token != "t1" || !hold.Lasts() {
		t.Errorf("held: %+v, %v", hold, err)
	}
	if hold, err := guests.Release(t.Context(), vmi, "s1"); err != nil || hold.Lasts() {
		t.Errorf("released: %+v, %v", hold, err)
	}
	if _, err := guests.Held(t.Context(), vmi, true); !apierrors.IsConflict(err) || err.Error() != "it is being migrated" {
		t.Errorf("a conflict: %v", err)
	}
	var status apierrors.APIStatus
	if _, err := guests.Quiesce(t.Context(), vmi, "s2", 2*time.Second); !errors.As(err, &status) || status.Status().Reason != nodeapi.NotHeld || err.Error() != "the agent hangs" {
		t.Errorf("a failure: %v", err)
	}
	if hold, err := guests.Quiesce(t.Context(), vmi, "s3", 2*time.Second); err == nil {
		t.Errorf("what is no hold: %+v", hold)
	}
}
