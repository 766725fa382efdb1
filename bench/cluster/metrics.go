package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	metricsPort = "metrics"
	// The certificate has this name, and the ConfigMap its authority.
	metricsName                         = "kubevirt-prometheus-metrics." + Namespace + ".svc"
	metricsTrust, metricsAuthoritiesKey = "kubevirt-ca", "kubevirt-metrics-certs.crt"
	metricsReader                       = "bench-metrics"
)

// Metrics reads the metrics of a component's pod at its address: the API server's proxy would not pass on the
// token.
func (c *Cluster) Metrics(ctx context.Context, name string) (string, error) {
	var pod corev1.Pod
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &pod); err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	token, err := c.metricsToken(ctx)
	if err != nil {
		return "", err
	}
	var trusted corev1.ConfigMap
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: metricsTrust}, &trusted); err != nil {
		return "", fmt.Errorf("reading the metrics' authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(trusted.Data[metricsAuthoritiesKey])) {
		return "", fmt.Errorf("the ConfigMap %s has no certificate in %s", metricsTrust, metricsAuthoritiesKey)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: metricsName}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+metricsAddress(&pod)+"/metrics", nil)
	if err != nil {
		return "", fmt.Errorf("asking %s for its metrics: %w", name, err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", fmt.Errorf("asking %s for its metrics: %w", name, err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("reading the metrics of %s: %w", name, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("reading the metrics of %s: %s: %s", name, response.Status, page)
	}
	return string(page), nil
}

func metricsAddress(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == metricsPort {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port.ContainerPort)))
			}
		}
	}
	return pod.Status.PodIP
}

// metricsToken returns a token of metricsReader, which it creates if needed.
func (c *Cluster) metricsToken(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: metricsReader}}
	for _, object := range []client.Object{account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: metricsReader},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: metricsReader}},
	}} {
		if err := c.Client.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return "", fmt.Errorf("making the account that reads metrics: %w", err)
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := c.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return "", fmt.Errorf("asking for a token of the account that reads metrics: %w", err)
	}
	return token.Status.Token, nil
}

// Page reads a page through the API server.
func (c *Cluster) Page(ctx context.Context, pod string, port int, path string, query map[string]string) ([]byte, error) {
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	page, err := clientset.CoreV1().Pods(Namespace).ProxyGet("http", pod, strconv.Itoa(port), path, query).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading /%s of %s: %w", path, pod, err)
	}
	return page, nil
}

// Sum adds the samples whose labels contain a text.
func Sum(page, metric, labels string) float64 {
	total := 0.0
	for line := range strings.Lines(page) {
		name, rest, _ := strings.Cut(line, " ")
		if name != metric && !strings.HasPrefix(name, metric+"{") || !strings.Contains(name, labels) {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
			total += value
		}
	}
	return total
}
