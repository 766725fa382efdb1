//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const webHost, webOrigin = "vms.example.com", "https://vms.example.com"

// TestTheWebConsoleInTheCluster checks that the manifests, the image, users' tokens and roles, and virt-api's streams fit together behind
// virt-web, and that a session outlives a pod, which only a cluster shows.
func TestTheWebConsoleInTheCluster(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../../internal/web/assets/dist/index.html"); err != nil {
		const missing = "the image has no pages of the web console: `make web images` (npm) makes them"
		if !testing.Short() {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	ns := newNamespace(t)
	create(t, newVMI(ns, "machine"))
	trusted := installWeb(t)
	viewer := bearer(t, ns, "viewer", "kubevirt.io:view")
	editor := bearer(t, ns, "editor", "kubevirt.io:edit")
	nobody := bearer(t, ns, "nobody", "")
	machines := machinesOf(ns)

	seen := openWeb(t, trusted)
	seen.signsIn(viewer, "system:serviceaccount:"+ns+":viewer")
	seen.answers(http.StatusOK, "GET", machines, "")
	text := seen.answers(http.StatusForbidden, "POST", machines, halted(t, ns, "theirs"))
	if !strings.Contains(text, `:viewer\" cannot create resource \"virtualmachines\"`) {
		t.Errorf("a viewer who creates a machine is told %s; want the API server's own sentence", text)
	}
	seen.answers(http.StatusForbidden, "GET", machinesOf("kubevirt"), "")
	seen.answers(http.StatusForbidden, "GET", "/api/v1/namespaces/"+ns+"/secrets", "")
	if _, code, err := seen.stream("/apis/subresources.kubevirt.io/v1/namespaces/"+ns+"/virtualmachineinstances/machine/console", v1PlainStream, nil); err == nil || code != http.StatusForbidden {
		t.Errorf("a viewer's console: %d, %v; want 403", code, err)
	}

	writes := openWeb(t, trusted)
	writes.signsIn(editor, "system:serviceaccount:"+ns+":editor")
	writes.answers(http.StatusCreated, "POST", machines, halted(t, ns, "made"))
	writes.answers(http.StatusForbidden, "POST", machinesOf("kubevirt"), halted(t, "kubevirt", "made"))
	writes.readsTheGuest(ns, "machine")

	none := openWeb(t, trusted)
	none.signsIn(nobody, "system:serviceaccount:"+ns+":nobody")
	none.answers(http.StatusForbidden, "GET", machines, "")
	none.answers(http.StatusForbidden, "POST", "/session", `{"token":"unknown"}`)

	isGuarded(t, writes, machines)
	outlivesItsPods(t, writes, machines)
}

func machinesOf(namespace string) string {
	return "/apis/" + v1.GroupVersion.String() + "/namespaces/" + namespace + "/virtualmachines"
}

const v1PlainStream = "plain.kubevirt.io"

// installWeb applies config/web with an administrator's additions, and returns the certificate that it serves.
func installWeb(t *testing.T) *x509.CertPool {
	t.Helper()
	certificate, key := webCertificate(t)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "kubevirt", Name: name} }
	secret := make([]byte, 48)
	_, _ = rand.Read(secret) // never fails
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("virt-web"), Data: map[string]string{"origin": webOrigin}},
		&corev1.Secret{ObjectMeta: meta("virt-web-session"), Data: map[string][]byte{"key": secret}},
		&corev1.Secret{ObjectMeta: meta("virt-web-tls"), Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": certificate, "tls.key": key}},
	} {
		create(t, object)
		t.Cleanup(func() { _ = cluster.client.Delete(context.Background(), object) }) // the cluster is deleted anyway
	}
	if out, err := kubectl(t.Context(), "apply", "-k", "../../config/web"); err != nil {
		t.Fatalf("applying config/web: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := kubectl(context.Background(), "delete", "--ignore-not-found", "-k", "../../config/web"); err != nil {
			t.Errorf("deleting config/web: %v: %s", err, out)
		}
	})
	await(t, &appsv1.Deployment{ObjectMeta: meta("virt-web")}, &appsv1.DeploymentList{}, "two virt-webs that are ready", func(d *appsv1.Deployment) bool {
		return d.Status.ReadyReplicas == 2
	})
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(certificate) {
		t.Fatal("the certificate can't be read")
	}
	return trusted
}

func webCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{webHost}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &made.PublicKey, made)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// bearer returns a token of a new account with a role in its namespace.
func bearer(t *testing.T, ns, name, role string) string {
	t.Helper()
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	if role != "" {
		create(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
		})
	}
	token, err := tokenOf(t.Context(), ns, name)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func halted(t *testing.T, ns, name string) string {
	t.Helper()
	vm := newVM(newVMI(ns, name), v1.RunStrategyHalted)
	vm.SetGroupVersionKind(v1.VirtualMachineGroupVersionKind)
	text, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// webPage is a page in a browser, as the Ingress passes its requests: to any of the pods.
type webPage struct {
	t      *testing.T
	client *http.Client
	// cookie and secret are the halves of its session.
	cookie, secret string
	// taken counts connections, which go to the pods in turn.
	taken atomic.Int32
}

func openWeb(t *testing.T, trusted *x509.CertPool) *webPage {
	t.Helper()
	p := &webPage{t: t}
	p.client = &http.Client{Timeout: oneAttempt, Transport: &http.Transport{
		DialContext: p.dial, TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: webHost, NextProtos: []string{"http/1.1"}}, DisableKeepAlives: true,
	}}
	return p
}

func (p *webPage) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var pods corev1.PodList
	if err := cluster.client.List(ctx, &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-web"}); err != nil {
		return nil, err
	}
	var ready []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready = append(ready, pod.Status.PodIP)
			}
		}
	}
	if len(ready) == 0 {
		return nil, fmt.Errorf("no virt-web is ready")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ready[int(p.taken.Add(1))%len(ready)], "8443"))
}

// ask makes a request as a page makes it, with other headers in place of its own.
func (p *webPage) ask(ctx context.Context, method, target, body string, headers map[string]string) (int, string, *http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, webOrigin+target, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, "", nil, err
	}
	for name, value := range map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": webOrigin, "Cookie": p.cookie, "X-Drydock-Session": p.secret, "Content-Type": "application/json"} {
		r.Header.Set(name, value)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	response, err := p.client.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), response, err
}

// answers waits for an answer of a code: a role takes effect a moment after its binding.
func (p *webPage) answers(code int, method, target, body string) string {
	p.t.Helper()
	var text string
	eventually(p.t, fmt.Sprintf("%d for %s %s", code, method, target), func(ctx context.Context) error {
		got, said, _, err := p.ask(ctx, method, target, body, nil)
		if text = said; err == nil && got != code {
			err = fmt.Errorf("answered %d %s", got, said)
		}
		return err
	})
	return text
}

func (p *webPage) signsIn(token, as string) {
	p.t.Helper()
	code, text, response, err := p.ask(p.t.Context(), "POST", "/session", `{"token":"`+token+`"}`, nil)
	if err != nil || code != http.StatusOK || !strings.Contains(text, `"user":"`+as+`"`) {
		p.t.Fatalf("signing in as %s: %d %s, %v", as, code, text, err)
	}
	var given struct{ Secret string }
	if err := json.Unmarshal([]byte(text), &given); err != nil || given.Secret == "" {
		p.t.Fatalf("signing in as %s: %s, %v; want the page's half of the session", as, text, err)
	}
	p.secret = given.Secret
	for _, c := range response.Cookies() {
		p.cookie = c.Name + "=" + c.Value
	}
}

func (p *webPage) stream(target, protocol string, headers http.Header) (*websocket.Conn, int, error) {
	dialer := websocket.Dialer{
		NetDialContext: p.dial, TLSClientConfig: p.client.Transport.(*http.Transport).TLSClientConfig.Clone(),
		Subprotocols: []string{protocol, "drydock.session." + p.secret}, HandshakeTimeout: oneAttempt,
	}
	sent := http.Header{"Origin": {webOrigin}, "Cookie": {p.cookie}, "Sec-Fetch-Site": {"same-origin"}}
	for name, values := range headers {
		sent[name] = values
	}
	ws, response, err := dialer.DialContext(p.t.Context(), "wss://"+webHost+target, sent)
	if err == nil {
		p.t.Cleanup(func() { _ = ws.Close() }) // the test is over
	}
	code := 0
	if response != nil {
		code = response.StatusCode
	}
	return ws, code, err
}

// readsTheGuest awaits the guest's own words at its console.
func (p *webPage) readsTheGuest(ns, name string) {
	p.t.Helper()
	awaitVMI(p.t, ns, name, "running", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.Phase == v1.Running })
	target := "/apis/subresources.kubevirt.io/v1/namespaces/" + ns + "/virtualmachineinstances/" + name + "/console"
	eventually(p.t, "the guest's words at the console of "+name, func(context.Context) error {
		ws, code, err := p.stream(target, v1PlainStream, nil)
		if err != nil {
			return fmt.Errorf("answered %d: %w", code, err)
		}
		defer func() { _ = ws.Close() }()
		if err := ws.SetReadDeadline(time.Now().Add(oneAttempt)); err != nil {
			return err
		}
		var said strings.Builder
		for !strings.Contains(said.String(), "drydock guest ready") {
			_, text, err := ws.ReadMessage()
			if err != nil {
				return fmt.Errorf("it said %q: %w", &said, err)
			}
			said.Write(text)
		}
		return nil
	})
}

// isGuarded asks as other pages, and by other names.
func isGuarded(t *testing.T, p *webPage, target string) {
	t.Helper()
	for what, test := range map[string]struct {
		headers map[string]string
		code    int
	}{
		"another page":          {map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"a name beside it":      {map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"a rebound name":        {map[string]string{"Host": "evil.example"}, http.StatusMisdirectedRequest},
		"a forwarded name":      {map[string]string{"Host": "evil.example", "X-Forwarded-Host": webHost}, http.StatusMisdirectedRequest},
		"a cookie alone":        {map[string]string{"X-Drydock-Session": ""}, http.StatusUnauthorized},
		"a page of nobody":      {map[string]string{"X-Drydock-Session": "cluster"}, http.StatusUnauthorized},
		"no cookie":             {map[string]string{"Cookie": ""}, http.StatusUnauthorized},
		"a bearer token alone":  {map[string]string{"Cookie": "", "Authorization": "Bearer x"}, http.StatusUnauthorized},
		"somebody in our place": {map[string]string{"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters"}, http.StatusOK},
	} {
		code, text, _, err := p.ask(t.Context(), "GET", target, "", test.headers)
		if err != nil || code != test.code {
			t.Errorf("%s: answered %d %s, %v; want %d", what, code, text, err, test.code)
		}
	}
	if _, code, err := p.stream(target+"?watch=true", "watch.drydock.dev", http.Header{"Origin": {"https://evil.example"}}); err == nil || code != http.StatusForbidden {
		t.Errorf("another page's watch: %d, %v; want 403", code, err)
	}
}

// outlivesItsPods deletes each pod while a watch is open: the watch ends, and the same session goes on.
func outlivesItsPods(t *testing.T, p *webPage, target string) {
	t.Helper()
	ws, code, err := p.stream(target+"?watch=true", "watch.drydock.dev", nil)
	if err != nil {
		t.Fatalf("a watch: %d, %v", code, err)
	}
	if _, _, err := ws.ReadMessage(); err != nil {
		t.Fatalf("the watch ended: %v", err)
	}
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: "virt-web"}); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if err := cluster.client.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			break
		}
	}
	p.answers(http.StatusOK, "GET", target, "")
	p.answers(http.StatusOK, "GET", "/session", "")
}
