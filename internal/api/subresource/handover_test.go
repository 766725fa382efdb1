package subresource

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// nodes are virt-handlers, of which one has the guest.
type nodes struct {
	home  string
	asked []string
}

func (n *nodes) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked = append(n.asked, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("uid"))
	answered := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("done"))}
	if r.URL.Hostname() != nodecert.DNSName(n.home) {
		answered.StatusCode = http.StatusConflict
		answered.Header.Set(nodeapi.AwayHeader, "true")
		answered.Body = io.NopCloser(strings.NewReader(`{"kind": "Status", "code": 409, "reason": "Conflict", "message": "the guest has left"}`))
	}
	return answered, nil
}

// changing is a cluster whose only VMI changes after a second.
type changing struct {
	Cluster
	since   time.Time
	was, is *v1.VirtualMachineInstance
}

func (c *changing) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	vmi := c.was
	if time.Since(c.since) >= time.Second {
		vmi = c.is
	}
	if vmi == nil {
		return apierrors.NewNotFound(v1.Resource("virtualmachineinstances"), key.Name)
	}
	vmi.DeepCopyInto(into.(*v1.VirtualMachineInstance))
	return nil
}

// at is a VMI that runs.
func at(uid types.UID, node string) *v1.VirtualMachineInstance {
	vmi := instance(v1.Running)
	vmi.Namespace, vmi.Name, vmi.UID, vmi.Status.NodeName = "lab", "web", uid, node
	return vmi
}

// TestARequestFollowsTheGuest: virt-handler at the source no longer has the guest, and the VMI does not show it yet.
func TestARequestFollowsTheGuest(t *testing.T) {
	ended := at("a", "source")
	ended.Status.Phase = v1.Succeeded
	for name, c := range map[string]struct {
		// becomes is the VMI after a second; nil for none.
		becomes *v1.VirtualMachineInstance
		code    int
		says    string
		within  time.Duration
	}{
		"to where it is":                            {at("a", "target"), http.StatusOK, "done", 2 * time.Second},
		"which has ended":                           {ended, http.StatusConflict, "VMI is not running", 2 * time.Second},
		"which is gone":                             {nil, http.StatusNotFound, "not found", 2 * time.Second},
		"which is another one":                      {at("b", "target"), http.StatusConflict, "the guest has left", 2 * time.Second},
		"which stays away, but no longer than that": {at("a", "source"), http.StatusConflict, "the guest has left", handoverPatience + time.Second},
	} {
		for _, verb := range []string{"console", "pause"} {
			synctest.Test(t, func(t *testing.T) {
				cluster := &changing{since: time.Now(), was: at("a", "source"), is: c.becomes}
				behind := &nodes{home: "target"}
				method := http.MethodGet
				if verb == "pause" {
					method = http.MethodPut
				}
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), method, Root+"v1/namespaces/lab/virtualmachineinstances/web/"+verb, strings.NewReader(""))
				began := time.Now()
				New(cluster, behind, Maintenance{}).ServeHTTP(w, r)
				if took := time.Since(began); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || took > c.within || w.Header().Get(nodeapi.AwayHeader) != "" {
					t.Errorf("%s of a guest %s: %d %q after %v, want %d %q", verb, name, w.Code, w.Body, took, c.code, c.says)
				}
				if want := method + " /v1/namespaces/lab/virtualmachineinstances/web/" + verb + " a"; behind.asked[len(behind.asked)-1] != want {
					t.Errorf("virt-handler was asked %q, want %q", behind.asked, want)
				}
			})
		}
	}
}
