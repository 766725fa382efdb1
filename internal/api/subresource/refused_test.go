package subresource

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// knownToKubeVirt are the subresources of KubeVirt v1.9, as its client calls them.
var knownToKubeVirt = map[string][]string{
	"PUT virtualmachines":          {"start", "stop", "restart", "migrate", "addvolume", "removevolume", "memorydump", "removememorydump", "evacuate/cancel"},
	"GET virtualmachines":          {"expand-spec", "objectgraph", "portforward/22", "portforward/22/tcp"},
	"PUT virtualmachineinstances":  {"pause", "unpause", "freeze", "unfreeze", "reset", "softreboot", "addvolume", "removevolume", "evacuate/cancel", "backup", "redefine-checkpoint", "sev/setupsession", "sev/injectlaunchsecret"},
	"GET virtualmachineinstances":  {"console", "vnc", "vnc/screenshot", "usbredir", "vsock", "portforward/22", "portforward/22/tcp", "guestosinfo", "userlist", "filesystemlist", "objectgraph", "sev/fetchcertchain", "sev/querylaunchmeasurement"},
	"GET cluster":                  {"version", "healthz", "guestfs", "start-cluster-profiler", "stop-cluster-profiler", "dump-cluster-profiler"},
	"PUT namespaces/lab (cluster)": {"expand-vm-spec"},
}

func pathTo(resource, verb string) string {
	root := Root + GroupVersions[0].Version + "/"
	switch resource {
	case "cluster":
		return root + verb
	case "namespaces/lab (cluster)":
		return root + "namespaces/lab/" + verb
	}
	return root + "namespaces/lab/" + resource + "/vm-cirros/" + verb
}

// Every subresource of KubeVirt's must be served, or refused with a sentence that names an alternative.
func TestEverySubresourceOfKubeVirtIsServedOrRefusedInWords(t *testing.T) {
	server := New(nil, nil, Maintenance{})
	served, refused := 0, 0
	for what, verbs := range knownToKubeVirt {
		method, resource, _ := strings.Cut(what, " ")
		for _, verb := range verbs {
			r := httptest.NewRequest(method, pathTo(resource, verb), nil)
			_, pattern := server.mux.Handler(r)
			if pattern == "/" {
				t.Errorf("%s %s of %s is unknown: serve it, or say in refusedVerbs what to do instead", method, verb, resource)
				continue
			}
			if !isRefused(pattern) {
				served++
				continue
			}
			refused++
			answer := httptest.NewRecorder()
			server.ServeHTTP(answer, r)
			var status metav1.Status
			if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
				t.Fatal(err)
			}
			prefix := method + " " + r.URL.Path + ": not supported by Drydock: "
			if instead, found := strings.CutPrefix(status.Message, prefix); !found || len(instead) < 20 || answer.Code != http.StatusNotFound {
				t.Errorf("%s %s of %s is answered with %d %q", method, verb, resource, answer.Code, status.Message)
			}
		}
	}
	t.Logf("%d subresources of KubeVirt are served, %d refused", served, refused)
	if refused != len(refusedVerbs) {
		t.Errorf("%d of %d refused verbs are KubeVirt's", refused, len(refusedVerbs))
	}
}

func isRefused(pattern string) bool {
	for _, verb := range refusedVerbs {
		if pattern == verb.method+" "+Root+GroupVersions[0].Version+"/"+verb.path {
			return true
		}
	}
	return false
}

// Discovery must list no refused subresource.
func TestDiscoveryKeepsSilentAboutRefusedVerbs(t *testing.T) {
	for _, resource := range New(nil, nil, Maintenance{}).Resources() {
		for _, verb := range refusedVerbs {
			if strings.HasSuffix(verb.path, "/"+resource.Name) || verb.path == resource.Name {
				t.Errorf("discovery has %s", resource.Name)
			}
		}
	}
}

func TestKubeVirtsVirtctlIsToldTheImageOfGuestfs(t *testing.T) {
	answer := httptest.NewRecorder()
	New(nil, nil, Maintenance{Image: "example.com/tools:1"}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, pathTo("cluster", "guestfs"), nil))
	var info struct{ GsImage string }
	if err := json.Unmarshal(answer.Body.Bytes(), &info); err != nil || info.GsImage != "example.com/tools:1" || answer.Code != http.StatusOK {
		t.Errorf("%d %s (%v)", answer.Code, answer.Body, err)
	}
}

func TestWhatNobodyKnowsIsRefused(t *testing.T) {
	answer := httptest.NewRecorder()
	New(nil, nil, Maintenance{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, pathTo("virtualmachines", "dance"), nil))
	if answer.Code != http.StatusNotFound || !strings.Contains(answer.Body.String(), "/dance: not supported by Drydock") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
