package web

import (
	"net/http"
	"net/url"
	"os"
	pathpkg "path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	vms      = "/apis/kubevirt.io/v1/namespaces/lab/virtualmachines"
	vmi      = "/apis/subresources.kubevirt.io/v1/namespaces/lab/virtualmachineinstances/one"
	machine  = "/apis/subresources.kubevirt.io/v1/namespaces/lab/virtualmachines/one"
	reviews  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	longName = "/api/v1/nodes/"
)

func TestWhatPasses(t *testing.T) {
	for request, want := range map[string]call{
		"GET " + vms: {path: vms, answer: jsonAnswer},
		"GET /apis/kubevirt.io/v1/virtualmachines?limit=500&continue=a%2Bb": {path: "/apis/kubevirt.io/v1/virtualmachines", query: "continue=a%2Bb&limit=500", answer: jsonAnswer},
		"GET " + vms + "/one.two":                               {path: vms + "/one.two", answer: jsonAnswer},
		"POST " + vms + "?dryRun=All":                           {path: vms, query: "dryRun=All", answer: jsonAnswer},
		"PUT " + vms + "/one?dryRun=All":                        {path: vms + "/one", query: "dryRun=All", answer: jsonAnswer},
		"DELETE " + vms + "/one":                                {path: vms + "/one", answer: jsonAnswer},
		"UPGRADE " + vms + "?watch=true":                        {path: vms, query: "watch=true", answer: watchAnswer},
		"GET /api/v1/namespaces":                                {path: "/api/v1/namespaces", answer: jsonAnswer},
		"GET /api/v1/namespaces/lab":                            {path: "/api/v1/namespaces/lab", answer: jsonAnswer},
		"GET /api/v1/namespaces/lab/persistentvolumeclaims":     {path: "/api/v1/namespaces/lab/persistentvolumeclaims", answer: jsonAnswer},
		"UPGRADE /api/v1/events?watch=true&fieldSelector=a%3Db": {path: "/api/v1/events", query: "fieldSelector=a%3Db&watch=true", answer: watchAnswer},
		"POST " + reviews:                                       {path: reviews, answer: jsonAnswer},
		"PUT " + vmi + "/pause":                                 {path: vmi + "/pause", answer: jsonAnswer},
		"UPGRADE " + vmi + "/vnc":                               {path: vmi + "/vnc", answer: streamAnswer},
		"POST /apis/clone.kubevirt.io/v1beta1/namespaces/lab/virtualmachineclones": {path: "/apis/clone.kubevirt.io/v1beta1/namespaces/lab/virtualmachineclones", answer: jsonAnswer},
		"GET /apis/cdi.kubevirt.io/v1beta1/namespaces/lab/datasources":             {path: "/apis/cdi.kubevirt.io/v1beta1/namespaces/lab/datasources", answer: jsonAnswer},
		"POST " + machine + "/maintenance":                                         {path: machine + "/maintenance", answer: jsonAnswer},
		"GET " + vmi + "/vnc/screenshot":                                           {path: vmi + "/vnc/screenshot", answer: pngAnswer},
		"UPGRADE " + vmi + "/console":                                              {path: vmi + "/console", answer: streamAnswer},
		"GET " + vmi + "/console":                                                  {path: vmi + "/console", answer: jsonAnswer},
	} {
		method, target, upgrade := parts(request)
		want.method = method
		if got, err := judge(method, target, upgrade); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", request, got, err, want)
		}
	}
}

func parts(text string) (method, target string, upgrade bool) {
	method, target, _ = strings.Cut(text, " ")
	if method == "UPGRADE" {
		return http.MethodGet, target, true
	}
	return method, target, false
}

func TestWhatDoesNotPass(t *testing.T) {
	for request, why := range map[string]string{
		"GET /api/v1/secrets":                                                               "Secrets",
		"GET /api/v1/namespaces/lab/secrets":                                                "Secrets",
		"GET /api/v1/namespaces/lab/secrets/one":                                            "Secrets",
		"GET /api/v1/namespaces/lab/configmaps":                                             "a kind that is not in the table",
		"GET /apis/apps/v1/namespaces/lab/deployments":                                      "another group",
		"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings":                       "rights",
		"GET /api/v1/namespaces/lab/pods":                                                   "a kind that may have secret content",
		"POST /api/v1/namespaces/lab/events":                                                "a write of a kind that is read",
		"DELETE /api/v1/nodes/one":                                                          "a write of a kind that is read",
		"GET " + reviews:                                                                    "a read of a kind that is created",
		"DELETE " + vms:                                                                     "a deletion of many",
		"POST " + vms + "/one":                                                              "a creation under a name",
		"PUT " + vms:                                                                        "an update without a name",
		"POST /apis/kubevirt.io/v1/virtualmachines":                                         "a creation outside of a namespace",
		"GET /apis/kubevirt.io/v1/virtualmachines/one":                                      "an object of a namespace outside of one",
		"GET /api/v1/namespaces/lab/nodes":                                                  "an object of the cluster in a namespace",
		"GET " + vms + "/one/status":                                                        "a subresource of the kind",
		"PUT " + vms + "/one/status":                                                        "a subresource of the kind",
		"GET /api/v1/namespaces/lab/pods/one/log":                                           "a subresource of a pod",
		"GET /api/v1/nodes/one/proxy/metrics":                                               "a proxy",
		"POST /api/v1/namespaces/lab/pods/one/exec":                                         "a subresource of a pod",
		"POST /api/v1/namespaces/lab/serviceaccounts/default/token":                         "a token",
		"PATCH " + vms + "/one":                                                             "a patch, which no page makes",
		"PUT " + vmi + "/freeze":                                                            "a verb that the pages don't use",
		"PUT " + vmi + "/softreboot":                                                        "a verb that the pages don't use",
		"PUT " + machine + "/evacuate/cancel":                                               "a verb that the pages don't use",
		"GET " + vmi + "/guestosinfo":                                                       "a verb that the pages don't use",
		"POST /apis/kubevirt.io/v1/namespaces/lab/virtualmachineinstances":                  "a VMI without a VM, which no page makes",
		"PUT /api/v1/namespaces/lab/persistentvolumeclaims/one":                             "a change of a claim",
		"DELETE /api/v1/namespaces/lab/persistentvolumeclaims/one":                          "the end of a claim",
		"PUT /apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes/one": "a change of an instance type",
		"POST /apis/cdi.kubevirt.io/v1beta1/namespaces/lab/datasources":                     "a write of a kind that is read",
		"GET /version":                                                                      "discovery, which no page makes",
		"GET /apis":                                                                         "discovery, which no page makes",
		"GET " + vms + "/one?resourceVersion=1":                                             "a key that the pages don't use",
		"PUT " + vmi + "/quiesce":                                                           "a verb of components",
		"GET " + vmi + "/portforward/22":                                                    "a verb that the pages don't use",
		"GET " + vmi + "/pause":                                                             "a verb by another method",
		"PUT " + machine + "/start/more":                                                    "more than a verb",
		"GET " + vms + "?watch=true":                                                        "a watch without a WebSocket",
		"GET " + vms + "?watch=false":                                                       "a watch that is none",
		"UPGRADE " + vms:                                                                    "a list by WebSocket",
		"UPGRADE " + vms + "?watch=1":                                                       "a watch in other words",
		"UPGRADE " + vmi + "/vnc/screenshot":                                                "an answer by WebSocket",
		"UPGRADE " + vms + "/one?watch=true":                                                "a watch of one object",
		"GET " + vms + "?limit=1&limit=2":                                                   "a key twice",
		"GET " + vms + "?pretty=true":                                                       "a key that is not in the table",
		"PUT " + vmi + "/pause?command=x":                                                   "a key that is not in the table",
		"GET " + vms + "?limit=%zz":                                                         "a bad escape",
		"GET " + vms + "?limit=1;continue=x":                                                "a separator of old",
		"GET /apis/kubevirt.io/v1/namespaces/lab/../kube-system/secrets":                    "dots",
		"GET /api/v1/namespaces/lab/pods/..":                                                "dots",
		"GET /api/v1/namespaces/lab/pods/.":                                                 "a dot",
		"GET /api/v1//secrets":                                                              "an empty element",
		"GET /api/v1/pods/":                                                                 "an empty element",
		"GET /api/v1/namespaces/lab/pods%2f..%2fsecrets":                                    "an escaped slash",
		"GET /api/v1/namespaces/lab/pods/%2e%2e":                                            "escaped dots",
		"GET /api/v1/namespaces/lab/pods\\secrets":                                          "a backslash",
		"GET /api/v1/namespaces/lab/pods;x=1":                                               "a parameter of a path",
		"GET /API/v1/pods":                                                                  "another case",
		"GET http://elsewhere/api/v1/pods":                                                  "another host",
		"GET *":                                                                             "no path",
		"GET ":                                                                              "no path",
		"GET /":                                                                             "no element",
		"GET /metrics":                                                                      "a path that is not in the table",
		"GET /healthz":                                                                      "a path that is not in the table",
		"GET /openapi/v3":                                                                   "a path that is not in the table",
		"GET /apis/apps/v1":                                                                 "discovery of another group",
		"POST /version":                                                                     "discovery by another method",
		"HEAD " + vms:                                                                       "a method that pages don't use",
		"CONNECT " + vms:                                                                    "a method that pages don't use",
		"OPTIONS " + vms:                                                                    "a method that pages don't use",
		"GET " + longName + strings.Repeat("a", maxName+1):                                  "a name that is too long",
		"GET /api/v1/nodes/" + strings.Repeat("a/", maxPath):                                "a path that is too long",
		"GET " + vms + "?labelSelector=" + strings.Repeat("a", maxQuery):                    "a query that is too long",
	} {
		method, target, upgrade := parts(request)
		if got, err := judge(method, target, upgrade); err == nil {
			t.Errorf("%s passes, though it is %s: %+v", request, why, got)
		}
	}
}

// unasked are the kinds whose pages are not written yet. A kind that no page asks for would only be of use to somebody else.
var unasked = []string{
	clones + " virtualmachineclones",
	volumes + " datasources",
}

// The pages have their kinds in one file.
func TestTheTableHasTheKindsOfThePages(t *testing.T) {
	text, err := os.ReadFile("../../web/src/kube/paths.ts")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, found := range regexp.MustCompile(`kind\('([^']*)', '([^']*)', '([^']*)'`).FindAllStringSubmatch(string(text), -1) {
		asked = append(asked, strings.TrimPrefix(found[1]+"/"+found[2], "/")+" "+found[3])
	}
	var passing []string
	for _, k := range kinds {
		if k.groupVersion != authorization {
			passing = append(passing, k.groupVersion+" "+k.name)
		}
	}
	for _, one := range asked {
		if !slices.Contains(passing, one) {
			t.Errorf("the pages ask for %s, which does not pass", one)
		}
	}
	for _, one := range passing {
		if !slices.Contains(asked, one) && !slices.Contains(unasked, one) {
			t.Errorf("%s pass, which no page asks for", one)
		}
	}
	if len(asked) == 0 {
		t.Error("the pages ask for nothing: the test reads another file")
	}
}

// No row may open a kind with secret content, or one that changes rights.
func TestTheTableOpensNothingSecret(t *testing.T) {
	for _, k := range kinds {
		group, _, _ := strings.Cut(k.groupVersion, "/")
		if k.name == "secrets" || k.name == "configmaps" || k.name == "serviceaccounts" || strings.Contains(group, "rbac") || group == "certificates.k8s.io" {
			t.Errorf("%s of %s are in the table", k.name, k.groupVersion)
		}
		for _, v := range k.verbs {
			if _, known := verbsKeys[v]; !known {
				t.Errorf("%s of %s: the verb %s has no keys", k.name, k.groupVersion, v)
			}
		}
	}
}

// What is sent is read by the API server as it was judged: judged again, it is the same call.
func checkJudgement(t *testing.T, method, target string, upgrade bool) {
	t.Helper()
	got, err := judge(method, target, upgrade)
	if err != nil {
		return
	}
	path, _, _ := strings.Cut(target, "?")
	if got.path != path || got.method != method {
		t.Errorf("%q became %+v", target, got)
	}
	if parsed, err := url.ParseRequestURI(got.path); err != nil || parsed.Path != got.path || pathpkg.Clean(got.path) != got.path {
		t.Errorf("%q is no clean path: %v", got.path, err)
	}
	again := got.path
	if got.query != "" {
		again += "?" + got.query
	}
	if repeated, err := judge(method, again, upgrade); err != nil || repeated != got {
		t.Errorf("%q: judged again it is %+v, %v; it was %+v", target, repeated, err, got)
	}
}

// Paths and queries are put together of parts that a careless parser reads in two ways.
func TestWhatIsSentIsWhatWasJudged(t *testing.T) {
	pieces := []string{"api", "v1", "apis", "kubevirt.io", "namespaces", "lab", "virtualmachines", "secrets", "nodes", "pods", "one.two",
		"..", ".", "", "%2e%2e", "%2f", "a%2fb", "x;y", "watch", "a b", "A"}
	queries := []string{"", "?", "?watch=true", "?limit=1", "?limit=%31", "?limit=1&limit=2", "?%6cimit=1", "?fieldSelector=a%3Db%2Cc%3Dd", "?limit=1#f", "?limit=+"}
	passed := 0
	for _, prefix := range []string{"/", "/api/v1/", "/api/v1/namespaces/lab/", "/apis/kubevirt.io/v1/", "/apis/kubevirt.io/v1/namespaces/lab/", "//", ""} {
		for _, first := range pieces {
			for _, second := range append(pieces, "\x00") {
				for _, query := range queries {
					target := prefix + first
					if second != "\x00" {
						target += "/" + second
					}
					for _, upgrade := range []bool{false, true} {
						checkJudgement(t, http.MethodGet, target+query, upgrade)
						if _, err := judge(http.MethodGet, target+query, upgrade); err == nil {
							passed++
						}
					}
				}
			}
		}
	}
	if passed < 50 {
		t.Errorf("only %d of them pass: the test looks at refusals only", passed)
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("GET", vms+"?limit=1", false)
	f.Add("GET", vmi+"/console", true)
	f.Add("GET", "/api/v1/namespaces/lab/pods/%2e%2e/secrets", false)
	f.Fuzz(checkJudgement)
}
