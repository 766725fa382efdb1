package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// Large reviews wait for each other, small ones pass beside one of them, and who does not wait any longer leaves.
func TestLargeReviewsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judged, release := 0, make(chan struct{})
		hook := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			judged++
			<-release
		}))
		send := func(ctx context.Context, length int64) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			r.ContentLength = length
			w := httptest.NewRecorder()
			go hook.ServeHTTP(w, r)
			synctest.Wait()
			return w
		}
		impatient, leave := context.WithCancel(t.Context())
		send(t.Context(), longestReview)
		send(t.Context(), 100)
		send(t.Context(), 100<<20) // which is read no further than the longest
		if judged != 3 {
			t.Errorf("%d are judged, want 3", judged)
		}
		left := send(impatient, -1)
		send(t.Context(), longestReview)
		if judged != 3 {
			t.Errorf("%d are judged beside each other, want 3", judged)
		}
		leave()
		synctest.Wait()
		if left.Code != http.StatusGatewayTimeout {
			t.Errorf("who has left is answered %d", left.Code)
		}
		close(release)
		synctest.Wait()
		if judged != 4 {
			t.Errorf("%d were judged, want 4", judged)
		}
	})
}

// costOfAByte is how much a webhook may allocate for each byte that a review counts for; a part of that is in use at one
// time. reviewsAtATime of them, 640 MiB, fit into virt-api's limit in config/deploy/api.yaml.
const costOfAByte = 40

// What reviews need together stays within virt-api's limit, whatever tenants send.
func TestWhatAReviewCosts(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{})
	must(t, err)
	for name, value := range map[string]string{
		"long texts":    `{"key":"` + strings.Repeat("k", 600) + `","operator":"Exists"}`,
		"short texts":   `{"key":"` + strings.Repeat("k", 4) + `","operator":"Exists"}`,
		"empty objects": `{}`,
	} {
		vm := `{"metadata":{"name":"vm"},"spec":{"runStrategy":"Halted","template":{"spec":{"domain":{"devices":{}},"tolerations":[` +
			strings.TrimSuffix(strings.Repeat(value+",", 2000), ",") + `]}}}}`
		if !json.Valid([]byte(vm)) {
			t.Fatal("no JSON")
		}
		for _, path := range []string{mutateVM, validateVM} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ask(t, served[path], vm)
			runtime.ReadMemStats(&after)
			cost := float64(after.TotalAlloc-before.TotalAlloc) / float64(sizeOf(int64(len(vm))))
			t.Logf("%s of %s, %d KiB: %.1f bytes are allocated for each that it counts for", path, name, len(vm)>>10, cost)
			if cost > costOfAByte {
				t.Errorf("%s of %s: %.1f bytes are allocated for each", path, name, cost)
			}
		}
	}
}
