package subresource

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// Nested lists, each within its bound, must not be decoded either.
func TestABodyHasOnlySoManyValues(t *testing.T) {
	term := `{"matchExpressions":[` + strings.TrimSuffix(strings.Repeat(`{},`, 500), ",") + `]}`
	terms := strings.TrimSuffix(strings.Repeat(term+",", 1900), ",")
	body := `{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` +
		terms + `]}}}}}}}`
	if len(body) > maxBody {
		t.Fatalf("the body has %d bytes", len(body))
	}
	_, err := readBody[v1.VirtualMachine](httptest.NewRequest(http.MethodPut, "/", strings.NewReader(body)))
	if err == nil || !strings.Contains(err.Error(), "may have 40000") {
		t.Errorf("it is answered %v", err)
	}
}
