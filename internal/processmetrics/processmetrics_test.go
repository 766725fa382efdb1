package processmetrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // it measures queues, as in the components
	_ "sigs.k8s.io/controller-runtime/pkg/controller"      // it would, without the other
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/metrictable/tabletest"
)

func TestRequestsAreCountedByTheirResult(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	r := newRequests()
	r.count(config)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(request)
		if err == nil {
			response.Body.Close()
		}
	}
	ask(http.MethodGet, "/api/v1/namespaces/shop/pods?watch=true")
	ask(http.MethodGet, "/api/v1/namespaces/shop/pods")
	ask(http.MethodGet, "/api/v1/namespaces/shop/pods")
	ask(http.MethodPost, "/api/v1/namespaces/shop/pods")
	ask(http.MethodPut, "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/status")
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	ask(http.MethodDelete, "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web")
	want := tabletest.Page(strings.ReplaceAll(`
kubevirt_rest_client_requests_total{code="200",host="HOST",method="GET",resource="pods",verb="LIST"} 2
kubevirt_rest_client_requests_total{code="200",host="HOST",method="GET",resource="pods",verb="WATCH"} 1
kubevirt_rest_client_requests_total{code="200",host="HOST",method="PUT",resource="virtualmachineinstances",verb="UPDATE"} 1
kubevirt_rest_client_requests_total{code="409",host="HOST",method="POST",resource="pods",verb="CREATE"} 1
kubevirt_rest_client_requests_total{code="<error>",host="HOST",method="DELETE",resource="virtualmachineinstances",verb="DELETE"} 1
`, "HOST", host))
	if err := testutil.CollectAndCompare(r.total, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestWhatARequestIsAbout(t *testing.T) {
	for request, want := range map[string]string{
		"GET /api/v1/nodes":                               "nodes LIST",
		"GET /api/v1/nodes/node1":                         "nodes GET",
		"GET /api/v1/namespaces":                          "namespaces LIST",
		"GET /api/v1/namespaces/shop":                     "namespaces GET",
		"GET /apis/apps/v1/namespaces/a/deployments/b":    "deployments GET",
		"GET /apis/apps/v1/deployments?watch=%7Bvalue%7D": "deployments WATCH",
		"PATCH /api/v1/nodes/node1/status":                "nodes PATCH",
		"GET /apis/apps/v1":                               "none none",
		"GET /healthz":                                    "none none",
		"GET /":                                           "none none",
	} {
		method, target, _ := strings.Cut(request, " ")
		u, err := url.Parse("https://server" + target)
		if err != nil {
			t.Fatal(err)
		}
		if resource, verb := operation(method, u); resource+" "+verb != want {
			t.Errorf("%s is %s %s, not %s", request, resource, verb, want)
		}
	}
}

func TestLatenciesAreByTemplateAndBounded(t *testing.T) {
	r := newRequests()
	for i := range maxURLs + 50 {
		r.latency.Observe(t.Context(), http.MethodGet, url.URL{Scheme: "https", Host: "server", Path: fmt.Sprintf("/api/v1/kind%d/{name}", i)}, time.Second)
	}
	if n := testutil.CollectAndCount(r.latency.histogram); n != maxURLs+1 {
		t.Errorf("there are %d URLs", n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# HELP kubevirt_rest_client_rate_limiter_duration_seconds %s\n# TYPE kubevirt_rest_client_rate_limiter_duration_seconds histogram\n",
		metrictable.Get("kubevirt_rest_client_rate_limiter_duration_seconds").Help)
	const labels = `url="https://server/api/v1/nodes/%7Bname%7D",verb="GET"`
	for _, bucket := range []string{"0.001 0", "0.002 0", "0.004 1", "0.008 1", "0.016 1", "0.032 1", "0.064 1", "0.128 1", "0.256 1", "0.512 1", "+Inf 1"} {
		limit, n, _ := strings.Cut(bucket, " ")
		fmt.Fprintf(&b, "kubevirt_rest_client_rate_limiter_duration_seconds_bucket{%s,le=%q} %s\n", labels, limit, n)
	}
	fmt.Fprintf(&b, "kubevirt_rest_client_rate_limiter_duration_seconds_sum{%s} 0.003\nkubevirt_rest_client_rate_limiter_duration_seconds_count{%[1]s} 1\n", labels)
	r.limited.Observe(t.Context(), http.MethodGet, url.URL{Scheme: "https", Host: "server", Path: "/api/v1/nodes/{name}"}, 3*time.Millisecond)
	if err := testutil.CollectAndCompare(r.limited.histogram, strings.NewReader(b.String())); err != nil {
		t.Error(err)
	}
}

func second(g prometheus.Gatherer, r prometheus.Registerer) *kubernetes {
	return &kubernetes{Gatherer: g, Registerer: r, queues: prometheus.NewRegistry()}
}

// The queues' metrics are in one of two registries, with other labels.
func TestQueuesHaveKubeVirtsNames(t *testing.T) {
	registry, empty := prometheus.NewRegistry(), prometheus.NewRegistry()
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "Depth."}, []string{"name", "controller", "priority"})
	adds := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_adds_total", Help: "Adds."}, []string{"name", "controller"})
	unknown := prometheus.NewGauge(prometheus.GaugeOpts{Name: "workqueue_weather", Help: "Not KubeVirt's."})
	registry.MustRegister(depth, adds, unknown)
	depth.WithLabelValues("vm", "vm", "").Set(2)
	depth.WithLabelValues("vm", "vm", "-100").Set(3)
	depth.WithLabelValues("vmi", "vmi", "").Set(1)
	adds.WithLabelValues("vm", "vm").Add(7)
	want := tabletest.Page(`
kubevirt_workqueue_adds_total{name="vm"} 7
kubevirt_workqueue_depth{name="vm"} 5
kubevirt_workqueue_depth{name="vmi"} 1
`)
	var names []string
	for _, name := range metrictable.Names(metrictable.Process) {
		if strings.HasPrefix(name, theirs) {
			names = append(names, name)
		}
	}
	for where, c := range map[string]struct {
		from, other *prometheus.Registry
		families    int
	}{
		"controller-runtime's": {registry, empty, 5}, "Kubernetes'": {empty, registry, 2},
	} {
		queues := queuesOf(c.from, second(c.other, c.other))
		if err := testutil.GatherAndCompare(queues, strings.NewReader(want), names...); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		families, err := queues.Gather()
		if err != nil || len(families) != c.families || !slices.IsSortedFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) }) {
			t.Errorf("%s: all families: %v, %v", where, families, err)
		}
	}
	failing := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
	if _, err := queuesOf(failing, second(empty, empty)).Gather(); err == nil {
		t.Error("an error is lost")
	}
	if families, err := queuesOf(registry, second(failing, empty)).Gather(); err != nil || len(families) != 5 {
		t.Errorf("with the other registry broken: %v, %v", families, err)
	}
}

// TestOnlyQueuesAreReadFromKubernetesRegistry, which has much else: it is read as a whole only until a queue is in it.
func TestOnlyQueuesAreReadFromKubernetesRegistry(t *testing.T) {
	whole := 0
	gatherer := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		whole++
		return legacyregistry.DefaultGatherer.Gather()
	})
	queues := queuesOf(prometheus.NewRegistry(), second(gatherer, legacyregistry.Registerer()))
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](), workqueue.TypedRateLimitingQueueConfig[string]{Name: "vm"})
	defer queue.ShutDown()
	before := 0.0
	for i := range 4 {
		queue.Add(fmt.Sprint(i))
		families, err := queues.Gather()
		if err != nil || whole != 1 || len(families) != 7 {
			t.Fatalf("scrape %d: %d families, %v; the registry was read %d times", i, len(families), err, whole)
		}
		n := addsOf(families, "vm")
		if n < 1 || i > 0 && n != before+1 {
			t.Errorf("scrape %d: %v were added, before %v", i, n, before)
		}
		before = n
	}
}

func addsOf(families []*dto.MetricFamily, queue string) float64 {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kubevirt_workqueue_adds_total" && m.GetLabel()[0].GetValue() == queue {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func TestTheTableHasTheProcessMetrics(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](), workqueue.TypedRateLimitingQueueConfig[string]{Name: "vm"})
	defer queue.ShutDown()
	queue.AddRateLimited("web")
	item, _ := queue.Get()
	queue.Done(item)
	families, err := Queues(ctrlmetrics.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	r := newRequests()
	found := prometheus.NewRegistry()
	found.MustRegister(r.total, r.latency.histogram, r.limited.histogram)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), theirs) {
			continue
		}
		found.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: f.GetName(), Help: f.GetHelp()}))
		if len(f.GetMetric()) != 1 || f.GetMetric()[0].GetLabel()[0].GetValue() != "vm" || strings.ToLower(f.GetType().String()) != string(metrictable.Get(f.GetName()).Type) {
			t.Errorf("the queue has %s", f)
		}
	}
	tabletest.Compare(t, metrictable.Process, found)
}
