package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// metricsPort is where each component serves its metrics.
const metricsPort = 8080

// Metrics reads what one of the components' pods says to Prometheus.
func (c *Cluster) Metrics(ctx context.Context, pod string) (string, error) {
	page, err := c.Page(ctx, pod, metricsPort, "metrics", nil)
	return string(page), err
}

// Page reads a page of one of the components' pods, through the API server.
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

// Sum adds the samples of a metric whose labels contain a text.
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
