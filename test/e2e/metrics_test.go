//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestMetricsAreForHoldersOfAToken checks that the components' rights, the certificate from the kubelet, and the
// manifests' policies fit together, which only a cluster shows.
func TestMetricsAreForHoldersOfAToken(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace("kubevirt"), client.MatchingLabels{"prometheus.kubevirt.io": "true"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) < 5 {
		t.Fatalf("%d pods have metrics", len(pods.Items))
	}
	var tenant string
	eventually(t, "a token of the namespace's own account", func(ctx context.Context) (err error) {
		tenant, err = tokenOf(ctx, ns, "default")
		return err
	})
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, show := range []struct {
			token string
			want  int
		}{{"", http.StatusUnauthorized}, {"x", http.StatusUnauthorized}, {tenant, http.StatusForbidden}} {
			eventually(t, fmt.Sprintf("%s answering %d", pod.Name, show.want), func(ctx context.Context) error {
				code, page, err := getMetrics(ctx, pod, show.token)
				if err == nil && (code != show.want || strings.Contains(page, "go_goroutines")) {
					err = fmt.Errorf("it answers %d: %s", code, page)
				}
				return err
			})
		}
		eventually(t, "the metrics of "+pod.Name, func(ctx context.Context) error {
			page, err := readMetrics(ctx, pod)
			if err == nil && !strings.Contains(page, "go_goroutines") {
				err = fmt.Errorf("it says %s", page)
			}
			if err == nil {
				err = tellsOfItself(page, pod.Labels[v1.AppLabel])
			}
			return err
		})
	}
	tellNoStranger(t, ns, pods.Items)
}

// tellsOfItself checks that a component has registered its metrics and counts its requests and, if it is the
// virt-controller that leads, its queues.
func tellsOfItself(page, component string) error {
	want := map[string][]string{
		"virt-api":        {"kubevirt_virt_api_ready_status 1\n"},
		"virt-controller": {"kubevirt_virt_controller_ready_status 1\n", "kubevirt_virt_controller_leading_status "},
		"virt-handler":    {"kubevirt_virt_handler_ready_status 1\n", "kubevirt_info{"},
	}[component]
	want = append(want, `kubevirt_rest_client_requests_total{code="200"`, "kubevirt_rest_client_request_latency_seconds_bucket{")
	if strings.Contains(page, "kubevirt_virt_controller_leading_status 1\n") {
		want = append(want, `kubevirt_workqueue_adds_total{name="`, "kubevirt_configuration_emulation_enabled ")
	}
	for _, text := range want {
		if !strings.Contains(page, text) {
			return fmt.Errorf("it does not say %q but\n%s", text, page)
		}
	}
	return nil
}

// tellNoStranger asks each port of the components for metrics from a tenant's pod, in a namespace that the policies
// exclude, and then in one that they admit.
func tellNoStranger(t *testing.T, ns string, pods []corev1.Pod) {
	t.Helper()
	create(t, toolsPod(ns, "peer"))
	awaitPodRunning(t, ns, "peer")
	var script strings.Builder
	for i := range pods {
		fmt.Fprintf(&script, "printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' | nc -w 5 %s %d & ", pods[i].Status.PodIP, metricsPort(&pods[i]))
	}
	asks := script.String() + "wait"
	if out, err := inPod(t, ns, "peer", asks); err != nil || out != "" {
		t.Errorf("a pod that no policy admits is answered: %v, %s", err, out)
	}
	label := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if err := cluster.client.Patch(t.Context(), label, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"drydock.dev/reads-metrics":"true"}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all components answering a pod that policies admit", func(context.Context) error {
		out, err := inPod(t, ns, "peer", asks)
		// Each port answers plain HTTP with the hint that it speaks TLS.
		if err == nil && strings.Count(out, "400 Bad Request") != len(pods) || strings.Contains(out, "go_goroutines") {
			err = fmt.Errorf("they say %s", out)
		}
		return err
	})
	for i := range pods {
		// This machine is every pod's own node, and no policy closes the probes' port to it. A virt-controller that has
		// lost its lease on a busy machine is starting again.
		eventually(t, pods[i].Name+" to answer at the port of probes", func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pods[i].Status.PodIP, "8080")+"/metrics", nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			response.Body.Close()
			if response.StatusCode != http.StatusNotFound {
				t.Errorf("%s answers %s at the port of probes", pods[i].Name, response.Status)
			}
			return nil
		})
	}
}

func metricsPort(pod *corev1.Pod) int32 {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == "metrics" {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// getMetrics asks a component for its metrics, and verifies it by the CA that virt-api has published.
func getMetrics(ctx context.Context, pod *corev1.Pod, token string) (int, string, error) {
	var trusted corev1.ConfigMap
	if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "kubevirt", Name: "kubevirt-ca"}, &trusted); err != nil {
		return 0, "", err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(trusted.Data["kubevirt-metrics-certs.crt"])) {
		return 0, "", errors.New("the authority of the metrics is not published")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "kubevirt-prometheus-metrics.kubevirt.svc"}}
	defer transport.CloseIdleConnections()
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(metricsPort(pod))))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	return response.StatusCode, string(page), err
}

func readMetrics(ctx context.Context, pod *corev1.Pod) (string, error) {
	token, err := metricsReader()
	if err != nil {
		return "", err
	}
	code, page, err := getMetrics(ctx, pod, token)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", pod.Name, code, page)
	}
	return page, err
}

// metricsReader returns the token of an account with the role. Both stay until the cluster is deleted.
var metricsReader = sync.OnceValues(func() (string, error) {
	ctx, name := context.Background(), "e2e-metrics"
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:metrics"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
		},
	} {
		if err := cluster.client.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return "", err
		}
	}
	return tokenOf(ctx, metav1.NamespaceDefault, name)
})

func tokenOf(ctx context.Context, namespace, name string) (string, error) {
	// Longer than any run of the tests.
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 3600))}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := cluster.client.SubResource("token").Create(ctx, account, token); err != nil {
		return "", err
	}
	return token.Status.Token, nil
}
