package policyagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// apiServer serves the agent's requests: it refuses until the rights exist, answers for one pod, and sends the first
// events of watches.
type apiServer struct {
	mu      sync.Mutex
	refused int
	watched []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	if s.refused > 0 {
		s.refused--
		s.mu.Unlock()
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not yet","code":403}`)
		return
	}
	watch := r.URL.Query().Get("watch") != ""
	if watch {
		s.watched = append(s.watched, r.URL.Path)
	}
	s.mu.Unlock()
	if !watch {
		s.answer(w, resource)
		return
	}
	kind := map[string]string{"pods": "Pod", "namespaces": "Namespace", "networkpolicies": "NetworkPolicy"}[resource]
	version := map[string]string{"networkpolicies": "networking.k8s.io/v1"}[resource]
	if version == "" {
		version = "v1"
	}
	object := `"kind":"` + kind + `","apiVersion":"` + version + `","metadata":{"resourceVersion":"7"`
	fmt.Fprintf(w, `{"type":"ADDED","object":{%s,"name":"one","namespace":"shop","uid":"u1","labels":{"app":"web"},"managedFields":[{"manager":"m"}]}}}`+"\n", object)
	fmt.Fprintf(w, `{"type":"BOOKMARK","object":{%s,"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", object)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (s *apiServer) answer(w http.ResponseWriter, resource string) {
	switch resource {
	case "late":
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"late","namespace":"shop","uid":"u2"}}`)
	case "networkpolicies":
		fmt.Fprint(w, `{"kind":"NetworkPolicyList","apiVersion":"networking.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"none","code":404}`)
	}
}

func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": url}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhatAnAgentAsksTheAPIServer: it must wait for its rights, have one watch per kind, keep only the fields for
// rules, and ask for a pod that the watch has not brought yet.
func TestWhatAnAgentAsksTheAPIServer(t *testing.T) {
	s := &apiServer{refused: 3}
	server := httptest.NewServer(s)
	defer server.Close()
	changes := make(chan struct{}, 100)
	w, err := newWatches(kubeconfig(t, server.URL), func() { changes <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ready := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() { w.run(ctx, func() { close(ready) }) })
	<-ready
	<-changes
	if pods := w.Pods(); len(pods) != 1 || pods[0].Labels["app"] != "web" || pods[0].ManagedFields != nil || len(w.Namespaces()) != 1 || len(w.Policies()) != 1 {
		t.Errorf("the agent knows the pods %+v, the namespaces %v and the policies %v", pods, w.Namespaces(), w.Policies())
	}
	for uid, want := range map[string]string{"shop/one/u1": "one", "shop/late/u2": "late", "shop/one/other": "", "shop/none/u3": ""} {
		parts := strings.Split(uid, "/")
		pod, err := w.Pod(ctx, parts[0], parts[1], parts[2])
		if err != nil || (pod == nil) != (want == "") || pod != nil && pod.Name != want {
			t.Errorf("%s is %v, %v", uid, pod, err)
		}
	}
	end()
	ending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watched) != 3 {
		t.Errorf("the watches are %v, want one each of pods, namespaces and policies", s.watched)
	}
}
