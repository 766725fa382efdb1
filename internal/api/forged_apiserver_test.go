//go:build apiserver

package api

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// A tenant's pod knows every name and sends kube-apiserver's reviews. It must move no guest, and learn nothing: only
// kube-apiserver's own calls count.
func (w *world) forgedReviews(t *testing.T) {
	vmi, pod := w.guestOn(t, "forged", v1.EvictionStrategyLiveMigrate)
	maintained := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "asks", Labels: map[string]string{layout.MaintenanceForLabel: vmi.Name},
	}}
	forged := map[string]string{
		validateEviction:  w.review(t, "pods", "eviction", pod.Name, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod.Name}}),
		mutateMaintenance: w.review(t, "pods", "", maintained.Name, maintained),
	}
	for hook, review := range forged {
		for name, call := range w.forgers(t) {
			code, body := call(webhookPath(hook), review)
			if code != http.StatusUnauthorized && code != http.StatusForbidden || strings.Contains(body, string(vmi.UID)) {
				t.Errorf("%s: %s is answered %d: %s", hook, name, code, body)
			}
			// Earlier versions served them here.
			if code, body := call(hook, review); code < http.StatusBadRequest {
				t.Errorf("%s without its API: %s is answered %d: %s", hook, name, code, body)
			}
		}
	}
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
	if vmi.Status.EvacuationNodeName != "" {
		t.Fatalf("the VMI is marked for node %q", vmi.Status.EvacuationNodeName)
	}
	if err := w.evict(t, pod, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction is answered %v", err)
	}
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
	if vmi.Status.EvacuationNodeName != w.node.name {
		t.Errorf("after an eviction the VMI is marked for node %q", vmi.Status.EvacuationNodeName)
	}
}

// review returns kube-apiserver's review of an object that its administrator creates.
func (w *world) review(t *testing.T, resource, subresource, name string, object any) string {
	t.Helper()
	raw, err := json.Marshal(object)
	must(t, err)
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Namespace: w.namespace, Name: name, Operation: admissionv1.Create, SubResource: subresource,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{user.SystemPrivilegedGroup}},
			Object:   runtime.RawExtension{Raw: raw},
		},
	})
	must(t, err)
	return string(text)
}

// forgers returns the ways of a tenant's pod to send a review to virt-api, and one that only an administrator has.
func (w *world) forgers(t *testing.T) map[string]func(path, body string) (int, string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}}
	token := &authenticationv1.TokenRequest{}
	must(t, w.admin.SubResource("token").Create(t.Context(), account, token))
	tenant := rest.AnonymousClientConfig(w.config)
	tenant.BearerToken = token.Status.Token
	direct := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(portOf(w.address)))
	unverified := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	through := func(config *rest.Config) *http.Client {
		c, err := rest.HTTPClientFor(config)
		must(t, err)
		return c
	}
	send := func(c *http.Client, host string, header ...string) func(path, body string) (int, string) {
		return func(path, body string) (int, string) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, host+path, strings.NewReader(body))
			must(t, err)
			request.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				request.Header.Set(header[i], header[i+1])
			}
			response, err := c.Do(request)
			must(t, err)
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			must(t, err)
			return response.StatusCode, string(answer)
		}
	}
	return map[string]func(path, body string) (int, string){
		"a pod without a word":                         send(unverified, direct),
		"a pod that says it is kube-apiserver":         send(unverified, direct, "X-Remote-User", user.APIServerUser, "X-Remote-Group", user.SystemPrivilegedGroup),
		"a pod with its token":                         send(unverified, direct, "Authorization", "Bearer "+tenant.BearerToken),
		"a pod by kube-apiserver":                      send(through(tenant), w.config.Host),
		"a pod by kube-apiserver, which says it is it": send(through(tenant), w.config.Host, "X-Remote-User", user.APIServerUser),
		"an administrator by kube-apiserver":           send(through(w.config), w.config.Host),
	}
}
