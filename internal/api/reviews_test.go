package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/listbounds"
)

func TestWhatTheBeginningOfAReviewSays(t *testing.T) {
	whole, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Namespace: "shop", Name: "vm", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: "tenant", Groups: []string{"a"}},
		Object:   kruntime.RawExtension{Raw: []byte(`{"uid":"2","namespace":"other","userInfo":{"username":"x"}}`)},
	}})
	must(t, err)
	all := reviewHead{uid: "1", namespace: "shop", username: "tenant"}
	for text, want := range map[string]reviewHead{
		string(whole): all,
		string(whole[:strings.Index(string(whole), `"object"`)+20]):             all,
		`{"request":{"uid":"1","namespace":"shop","userInfo":{"username":"tena`: {uid: "1", namespace: "shop"},
		`{"request":{"object":{"uid":"2"},"uid":"1"}}`:                          {},
		`{"request":{}}`: {}, `{"request":7}`: {}, `{"kind":"AdmissionReview"}`: {}, `[]`: {}, ``: {}, `{"request":{"uid":7,"namespace":"shop"}}`: {},
	} {
		if got := readHead([]byte(text)); got != want {
			t.Errorf("%s says %+v, want %+v", text, got, want)
		}
	}
}

// repeated returns a list's content.
func repeated(value string, n int) string {
	return strings.TrimSuffix(strings.Repeat(value+",", n), ",")
}

// withSpec returns a VM whose guest's spec has these additional fields.
func withSpec(fields string) string {
	return `{"metadata":{"name":"vm"},"spec":{"runStrategy":"Halted","template":{"spec":{"domain":{"devices":{}},` + fields + `}}}}`
}

// costly has VMs of the greatest sizes, whose review needs the most memory.
func costly() map[string]string {
	node := func(term string, n int) string {
		return withSpec(`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` + repeated(term, n) + `]}}}`)
	}
	pods := func(term string, n int) string {
		return withSpec(`"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[` + repeated(term, n) + `]}}`)
	}
	expressions := func(n int) string { return `{"matchExpressions":[` + repeated(`{}`, n) + `]}` }
	annotations := strings.Builder{}
	for i := range listbounds.Values - 20 {
		fmt.Fprintf(&annotations, `"a%d":"",`, i)
	}
	return map[string]string{
		"the reviewer's lists in lists":     node(expressions(500), 2000),
		"as many lists in lists as may be":  node(expressions(500), listbounds.Values/502),
		"long lists in lists":               node(expressions(2000), listbounds.Values/2010),
		"selectors of pods":                 pods(`{"weight":1,"podAffinityTerm":{"labelSelector":`+expressions(500)+`}}`, listbounds.Values/510),
		"long selectors of pods":            pods(`{"weight":1,"podAffinityTerm":{"labelSelector":`+expressions(2000)+`}}`, listbounds.Values/2010),
		"terms without anything":            pods(`{}`, 2000),
		"disks without anything":            `{"metadata":{"name":"vm"},"spec":{"template":{"spec":{"domain":{"devices":{"disks":[` + repeated(`{}`, 256) + `]}}}}}}`,
		"templates without anything":        `{"metadata":{"name":"vm"},"spec":{"dataVolumeTemplates":[` + repeated(`{}`, 256) + `],"template":{"spec":{"domain":{"devices":{}}}}}}`,
		"annotations":                       `{"metadata":{"name":"vm","annotations":{` + strings.TrimSuffix(annotations.String(), ",") + `}},"spec":{"template":{"spec":{"domain":{"devices":{}}}}}}`,
		"tolerations with long texts":       withSpec(`"tolerations":[` + repeated(`{"key":"`+strings.Repeat("k", 1500)+`","operator":"Exists"}`, 2000) + `]`),
		"tolerations without anything":      withSpec(`"tolerations":[` + repeated(`{}`, 2000) + `]`),
		"one long text":                     withSpec(`"nodeSelector":{"a":"` + strings.Repeat("k", 3<<20) + `"}`),
		"a text that JSON writes longer":    withSpec(`"nodeSelector":{"a":"` + strings.Repeat("<", 3<<20) + `"}`),
		"a text of characters to be quoted": withSpec(`"nodeSelector":{"a":"` + strings.Repeat(`\u0001`, 500_000) + `"}`),
	}
}

// All reviews together must stay within virt-api's limit, whatever tenants send.
func TestWhatAReviewCosts(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{}, nil)
	must(t, err)
	for name, vm := range costly() {
		if !json.Valid([]byte(vm)) {
			t.Fatalf("%s: no JSON", name)
		}
		for _, path := range []string{mutateVM, validateVM} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			response := ask(t, served[path], vm)
			runtime.ReadMemStats(&after)
			cost, counted := int64(after.TotalAlloc-before.TotalAlloc), costOf([]byte(vm))
			t.Logf("%s of %s, %d KiB: %d KiB are allocated, and it counts for %d KiB; allowed: %v", path, name, len(vm)>>10, cost>>10, counted>>10, response.Allowed)
			if cost > counted {
				t.Errorf("%s of %s: %d KiB are allocated, and it counts for %d KiB", path, name, cost>>10, counted>>10)
			}
			if tooMany := listbounds.Count([]byte(vm)) > listbounds.Values; tooMany && (response.Allowed || response.Result.Code != http.StatusUnprocessableEntity) {
				t.Errorf("%s of %s: answered %+v", path, name, response)
			}
		}
	}
}

// An object with thousands of errors must get a bounded number of them.
func TestOnlySoManyErrorsAreTold(t *testing.T) {
	served, err := webhooks(&clusterconfig.Current{}, authorizer{}, nil)
	must(t, err)
	response := ask(t, served[validateVM], costly()["terms without anything"])
	if response.Allowed || len(response.Result.Details.Causes) != 100 || !strings.HasSuffix(response.Result.Message, "; and 3900 more") {
		t.Errorf("%d causes, and the message ends in %q", len(response.Result.Details.Causes), response.Result.Message[max(0, len(response.Result.Message)-80):])
	}
}
