package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/pagedlist"
)

// kindsAt is the discovery of what virt-api caches and lists.
var kindsAt = map[string]string{
	"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"certificates.k8s.io","versions":[{"groupVersion":"certificates.k8s.io/v1","version":"v1"}]}]}`,
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","namespaced":true},
		{"name":"secrets","kind":"Secret","namespaced":true},{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`,
	"/apis/certificates.k8s.io/v1": `{"kind":"APIResourceList","groupVersion":"certificates.k8s.io/v1",
		"resources":[{"name":"certificatesigningrequests","kind":"CertificateSigningRequest"}]}`,
}

// A tenant chooses the size of a page (package pagedlist).
func TestWhatVirtAPIListsIsBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "small"
		if r.URL.Query().Get("limit") == "100" {
			name = strings.Repeat("x", 3<<20)
		}
		w.Header().Set("Content-Type", "application/json")
		if kinds := kindsAt[r.URL.Path]; kinds != "" {
			fmt.Fprint(w, kinds)
			return
		}
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":%q}}]}`, name)
	}))
	defer server.Close()
	p := &served{config: &rest.Config{Host: server.URL}}
	p.options.serving = metricsserver.Options{Metrics: metricsserver.None, Health: metricsserver.None}
	mgr, err := p.manager()
	if err != nil {
		t.Fatal(err)
	}
	found, err := pagedlist.Collect(t.Context(), mgr.GetAPIReader(), &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) { return pod.Name, true })
	if err != nil || len(found) != 1 || found[0] != "small" {
		t.Errorf("found %.100q, %v", found, err)
	}
}

// The kubelet warns of each failed probe, so the answer must wait until it is known.
func TestReadinessIsAnsweredWhenItIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		serves, known bool
		ready         bool
		after         time.Duration
	}{
		"it comes":          {true, true, true, 2 * time.Second},
		"nothing is served": {false, true, false, time.Minute},
		"it is not known":   {true, false, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := make(chan struct{})
				p := &served{serving: make(chan struct{}), known: known}
				if test.serves {
					time.AfterFunc(time.Second, func() { close(p.serving) })
				}
				if test.known {
					time.AfterFunc(2*time.Second, func() { close(known) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begun := time.Now()
				err := p.ready(httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
				if (err == nil) != test.ready || time.Since(begun) != test.after {
					t.Errorf("it answers %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}
