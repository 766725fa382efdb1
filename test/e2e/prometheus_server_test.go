//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// monitoringStack is a real Prometheus and a real Alertmanager on the test's machine, which every pod's own node is.
type monitoringStack struct {
	t      *testing.T
	api    string
	began  time.Time
	alerts *notifications
	folder string
	// lasting are alerts that look back for longer than a test lasts.
	lasting map[string]bool
}

// scrapeEvery is shorter than usual, so that a migration of seconds is seen.
const scrapeEvery = 5 * time.Second

// asDocumented is the configuration of docs/observability.md.
func asDocumented(t *testing.T) map[string]any {
	t.Helper()
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Without the operator\n")
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(section)
	if block == nil {
		t.Fatal("docs/observability.md has no configuration for a Prometheus without its operator")
	}
	config := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(block[1]), &config); err != nil {
		t.Fatalf("reading the configuration of docs/observability.md: %v", err)
	}
	return config
}

// apiServer is the job for kube-apiserver, which the alert about deprecated versions needs.
func (s *monitoringStack) apiServer(token string) map[string]any {
	s.t.Helper()
	at, err := url.Parse(cluster.config.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	return map[string]any{
		"job_name": "apiserver", "scheme": "https", "scrape_interval": "30s", "scrape_timeout": "30s",
		"authorization":  map[string]any{"credentials_file": s.file("apiserver-token", []byte(token))},
		"tls_config":     map[string]any{"ca_file": s.file("apiserver-ca.crt", cluster.config.CAData)},
		"static_configs": []any{map[string]any{"targets": []string{at.Host}}},
		// It has many.
		"metric_relabel_configs": []any{map[string]any{"source_labels": []string{"__name__"}, "regex": "apiserver_request_total|apiserver_requested_deprecated_apis", "action": "keep"}},
	}
}

func (s *monitoringStack) file(name string, content []byte) string {
	s.t.Helper()
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *monitoringStack) yaml(name string, content any) string {
	s.t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.file(name, text)
}

// startMonitoring starts both programs. soon are the alerts that need not wait.
func startMonitoring(t *testing.T, soon []string) *monitoringStack {
	t.Helper()
	s := &monitoringStack{t: t, began: time.Now(), folder: t.TempDir(), alerts: newNotifications(t)}
	token, err := metricsReader()
	if err != nil {
		t.Fatal(err)
	}
	var trusted corev1.ConfigMap
	eventually(t, "the authority of the metrics", func(ctx context.Context) error {
		err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "kubevirt", Name: "kubevirt-ca"}, &trusted)
		if err == nil && trusted.Data["kubevirt-metrics-certs.crt"] == "" {
			err = fmt.Errorf("it is not published")
		}
		return err
	})
	config := asDocumented(t)
	config["rule_files"] = []string{s.rules(soon)}
	config["global"] = map[string]any{"scrape_interval": scrapeEvery.String(), "scrape_timeout": scrapeEvery.String(), "evaluation_interval": scrapeEvery.String()}
	job := config["scrape_configs"].([]any)[0].(map[string]any)
	job["authorization"] = map[string]any{"credentials_file": s.file("token", []byte(token))}
	job["tls_config"].(map[string]any)["ca_file"] = s.file("ca.crt", []byte(trusted.Data["kubevirt-metrics-certs.crt"]))
	delete(job, "kubernetes_sd_configs")
	job["file_sd_configs"] = []any{map[string]any{"files": []string{s.discover()}, "refresh_interval": scrapeEvery.String()}}
	// The same pods, as somebody asks who has no token.
	stranger := maps.Clone(job)
	delete(stranger, "authorization")
	stranger["job_name"] = "stranger"
	config["scrape_configs"] = []any{job, stranger, s.apiServer(token)}

	manager := freeAddress(t)
	config["alerting"] = map[string]any{"alertmanagers": []any{map[string]any{"static_configs": []any{map[string]any{"targets": []string{manager}}}}}}
	notify := s.yaml("alertmanager.yaml", map[string]any{
		"route":     map[string]any{"receiver": "test", "group_by": []string{"..."}, "group_wait": "1s", "group_interval": "1s"},
		"receivers": []any{map[string]any{"name": "test", "webhook_configs": []any{map[string]any{"url": s.alerts.url, "send_resolved": true}}}},
	})
	// Its gossip would be with other machines.
	s.start(exec.Command("prometheus-alertmanager", "--config.file="+notify, "--storage.path="+filepath.Join(s.folder, "alertmanager"),
		"--web.listen-address="+manager, "--cluster.listen-address="))
	address := freeAddress(t)
	s.api = "http://" + address + "/api/v1/"
	s.start(exec.Command("prometheus", "--config.file="+s.yaml("prometheus.yaml", config), "--storage.tsdb.path="+filepath.Join(s.folder, "prometheus"),
		"--web.listen-address="+address))
	return s
}

// start runs a program until the test's end.
func (s *monitoringStack) start(program *exec.Cmd) {
	s.t.Helper()
	var said transcript
	program.Stdout, program.Stderr = &said, &said
	if err := program.Start(); err != nil {
		s.t.Fatalf("starting %s, of the package that hack/prerequisites long installs: %v", filepath.Base(program.Path), err)
	}
	s.t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		_ = program.Wait()
		if s.t.Failed() {
			text := said.String()
			s.t.Logf("%s has said:\n%s", filepath.Base(program.Path), text[max(0, len(text)-4000):])
		}
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// discover keeps a file for Prometheus's file_sd_configs up to date until the test ends. Discovery by EndpointSlices, which
// Debian's Prometheus lacks, would find the same. The documented configuration selects the targets and gives them their labels.
func (s *monitoringStack) discover() string {
	s.t.Helper()
	path := filepath.Join(s.folder, "targets.json")
	write := func(ctx context.Context) error {
		targets, err := endpoints(ctx)
		if err != nil {
			return err
		}
		text, err := json.Marshal(targets)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path))
	}
	if err := write(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(scrapeEvery / 2)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// While the API server does not answer, the targets stay, as with Prometheus's own discovery.
				_ = write(ctx)
			}
		}
	})
	s.t.Cleanup(func() {
		cancel()
		writing.Wait()
	})
	return path
}

// targetGroup is one of a file of file_sd_configs.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// endpoints returns Drydock's, with the labels of Prometheus's discovery.
func endpoints(ctx context.Context) ([]targetGroup, error) {
	var slices discoveryv1.EndpointSliceList
	if err := cluster.client.List(ctx, &slices, client.InNamespace("kubevirt")); err != nil {
		return nil, fmt.Errorf("listing the endpoints of Drydock: %w", err)
	}
	containers, err := containersOfPorts(ctx)
	if err != nil {
		return nil, err
	}
	groups := []targetGroup{}
	const meta = "__meta_kubernetes_"
	for _, slice := range slices.Items {
		for _, port := range slice.Ports {
			for _, endpoint := range slice.Endpoints {
				labels := map[string]string{
					meta + "namespace": slice.Namespace, meta + "service_name": slice.Labels[discoveryv1.LabelServiceName], meta + "endpointslice_port_name": *port.Name,
				}
				if pod := endpoint.TargetRef; pod != nil {
					labels[meta+"pod_name"], labels[meta+"pod_container_name"] = pod.Name, containers[pod.Name+":"+*port.Name]
				}
				groups = append(groups, targetGroup{[]string{net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port)))}, labels})
			}
		}
	}
	return groups, nil
}

// containersOfPorts returns the containers of Drydock's pods by "POD:PORT".
func containersOfPorts(ctx context.Context) (map[string]string, error) {
	var pods corev1.PodList
	if err := cluster.client.List(ctx, &pods, client.InNamespace("kubevirt")); err != nil {
		return nil, fmt.Errorf("listing the pods of Drydock: %w", err)
	}
	containers := map[string]string{}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Spec.Containers {
			for _, port := range c.Ports {
				containers[pods.Items[i].Name+":"+port.Name] = c.Name
			}
		}
	}
	return containers, nil
}

const shippedRules = "../../config/monitoring/rules.yaml"

// rules returns the shipped file with another `for` for some alerts, and with nothing else changed.
func (s *monitoringStack) rules(soon []string) string {
	s.t.Helper()
	if out, err := exec.Command("promtool", "check", "rules", shippedRules).CombinedOutput(); err != nil {
		s.t.Fatalf("promtool refuses the shipped rules: %v\n%s", err, out)
	}
	text, err := os.ReadFile(shippedRules)
	if err != nil {
		s.t.Fatal(err)
	}
	var file struct {
		Groups []map[string]any `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		s.t.Fatal(err)
	}
	changed := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group["rules"].([]any) {
			if r := rule.(map[string]any); r["for"] != nil && slices.Contains(soon, fmt.Sprint(r["alert"])) {
				r["for"] = (2 * scrapeEvery).String()
				changed[fmt.Sprint(r["alert"])] = true
			}
		}
	}
	if len(changed) != len(soon) {
		s.t.Fatalf("of the alerts %q only those with a wait are %v", soon, changed)
	}
	return s.yaml("rules.yaml", file)
}

func (s *monitoringStack) ask(ctx context.Context, path string, query url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// value is a series and its value now.
type value struct {
	Metric map[string]string
	Value  [2]any
}

func (v value) number() float64 {
	n, err := strconv.ParseFloat(fmt.Sprint(v.Value[1]), 64)
	if err != nil {
		panic(err) // Prometheus sends numbers
	}
	return n
}

func (s *monitoringStack) query(ctx context.Context, expr string) ([]value, error) {
	return s.queryAt(ctx, expr, float64(time.Now().Unix()))
}

func (s *monitoringStack) queryAt(ctx context.Context, expr string, at float64) ([]value, error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := s.ask(ctx, "query", url.Values{"query": {expr}, "time": {strconv.FormatFloat(at, 'f', 0, 64)}}, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var values []value
	if data.ResultType != "vector" {
		return nil, nil
	}
	return values, json.Unmarshal(data.Result, &values)
}

type scrapeTarget struct {
	Health, LastError string
	Labels            map[string]string
}

func (s *monitoringStack) targets(ctx context.Context) (map[string][]scrapeTarget, error) {
	var data struct{ ActiveTargets []scrapeTarget }
	err := s.ask(ctx, "targets", nil, &data)
	of := map[string][]scrapeTarget{}
	for _, target := range data.ActiveTargets {
		of[target.Labels["job"]] = append(of[target.Labels["job"]], target)
	}
	return of, err
}

// notifications are those that Alertmanager has sent.
type notifications struct {
	url string

	mu  sync.Mutex
	all []notification
}

type notification struct {
	Status string
	Labels map[string]string
}

func (n notification) String() string { return n.Status + " " + fmt.Sprint(n.Labels) }

func newNotifications(t *testing.T) *notifications {
	t.Helper()
	n := &notifications{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var message struct{ Alerts []notification }
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(body)).Decode(&message)
		}
		if err != nil {
			t.Errorf("reading what Alertmanager sends: %v", err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, message.Alerts...)
	}))
	t.Cleanup(server.Close)
	n.url = server.URL
	return n
}

func (n *notifications) list() []notification {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// await waits until Alertmanager has said that an alert with these labels has a status.
func (n *notifications) await(t *testing.T, status string, labels map[string]string) {
	t.Helper()
	// The expression of an alert may look back for minutes.
	eventuallyWithin(t, 2*patience, fmt.Sprintf("the alert %v to be %s", labels, status), func(context.Context) error {
		for _, one := range n.list() {
			matches := one.Status == status
			for name, value := range labels {
				matches = matches && one.Labels[name] == value
			}
			if matches {
				return nil
			}
		}
		return fmt.Errorf("Alertmanager has sent %v", n.list())
	})
}

// fires waits for an alert with pairs of label and value.
func (s *monitoringStack) fires(t *testing.T, alert string, pairs ...string) {
	t.Helper()
	labels := map[string]string{"alertname": alert}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	s.alerts.await(t, "firing", labels)
}

// allEnd waits until no alert is active, and until Alertmanager has said so of each that it had sent.
func (s *monitoringStack) allEnd(t *testing.T) {
	for _, one := range s.alerts.list() {
		if !s.lasting[one.Labels["alertname"]] {
			s.alerts.await(t, "resolved", one.Labels)
		}
	}
	eventuallyWithin(t, 2*patience, "the end of all alerts", func(ctx context.Context) error {
		active, err := s.query(ctx, `ALERTS{alertstate="firing"}`)
		active = slices.DeleteFunc(active, func(v value) bool { return s.lasting[v.Metric["alertname"]] })
		if err == nil && len(active) > 0 {
			err = fmt.Errorf("%v are active", active)
		}
		return err
	})
	names := map[string]int{}
	for _, one := range s.alerts.list() {
		if one.Status == "firing" {
			names[one.Labels["alertname"]]++
		}
	}
	t.Logf("figure alerts: %d alerts fired and ended: %v", len(names), names)
}
