//go:build apiserver

package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// metrics must be served with the certificate that virt-api has made for all components, to those whom the API server
// allows.
func (w *world) metrics(t *testing.T) {
	prometheus := w.prometheus(t)
	reader, tenant := w.token(t, "reader"), w.token(t, "tenant")
	elsewhere := w.token(t, "reader", "another-service")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "reader"}},
	}
	must(t, w.admin.Create(t.Context(), binding))
	t.Cleanup(func() { must(t, w.admin.Delete(context.Background(), binding)) })
	const says = "controller_runtime_reconcile_total"
	for _, test := range []struct {
		what, token string
		code        int
	}{
		{"without a token", "", http.StatusUnauthorized},
		{"with a token that nobody has", "x", http.StatusUnauthorized},
		{"with a token for another service", elsewhere, http.StatusUnauthorized},
		{"with a tenant's token", tenant, http.StatusForbidden},
		{"with the token of one who has the role", reader, http.StatusOK},
	} {
		// A token's review is cached for some seconds, and the API server sees a binding a moment later.
		w.eventually(t, test.what, func() error {
			code, body, err := prometheus(test.token)
			if err == nil && (code != test.code || strings.Contains(body, says) != (code == http.StatusOK)) {
				err = fmt.Errorf("%d: %s", code, body)
			}
			return err
		})
	}
	response, err := http.Get("http://" + w.healthAddress + "/readyz")
	must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the kubelet is told %s", response.Status)
	}
}

// prometheus reads virt-api's metrics with a token, and trusts the published CA. It mounts the Secret for virt-api as
// the kubelet does.
func (w *world) prometheus(t *testing.T) func(token string) (int, string, error) {
	t.Helper()
	roots := x509.NewCertPool()
	w.eventually(t, "the metrics' certificate", func() error {
		secret, trusted := &corev1.Secret{}, &corev1.ConfigMap{}
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: clusterconfig.Namespace, Name: certs.MetricsSecret}, secret); err != nil {
			return err
		}
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: clusterconfig.Namespace, Name: certs.TrustConfigMap}, trusted); err != nil {
			return err
		}
		if !roots.AppendCertsFromPEM([]byte(trusted.Data[certs.MetricsTrust()])) {
			return fmt.Errorf("the ConfigMap %s has no authority of the metrics", certs.TrustConfigMap)
		}
		for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if err := os.WriteFile(filepath.Join(w.certificates, name), secret.Data[name], 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: certs.MetricsName}}}
	t.Cleanup(c.CloseIdleConnections)
	return func(token string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+w.metricsAddress+"/metrics", nil)
		must(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := c.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), err
	}
}

// token creates one of a service account of the test's namespace, for the API server unless another audience is named.
func (w *world) token(t *testing.T, name string, audiences ...string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	must(t, client.IgnoreAlreadyExists(w.admin.Create(t.Context(), account)))
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	must(t, w.admin.SubResource("token").Create(t.Context(), account, token))
	return token.Status.Token
}
