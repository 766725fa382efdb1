package metrictable

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

type upstream struct {
	kind, metricType string
	// labels are known of metrics, not of rules.
	labels []string
}

// theirs reads KubeVirt's names: name, metric or rule, type, and a metric's labels.
func theirs(t *testing.T) map[string]upstream {
	t.Helper()
	text, err := os.ReadFile("testdata/kubevirt-1.9.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]upstream{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			t.Fatalf("the line %q has not three words", line)
		}
		all[fields[0]] = upstream{kind: fields[1], metricType: fields[2], labels: fields[3:]}
	}
	if len(all) != 161 {
		t.Fatalf("KubeVirt has %d names, not 161", len(all))
	}
	return all
}

func TestTheTableHasEachOfKubeVirtsNamesOnce(t *testing.T) {
	all, seen := theirs(t), map[string]int{}
	for _, m := range Served() {
		seen[m.Name]++
		their, known := all[m.Name]
		switch {
		case known && string(m.Type) != their.metricType:
			t.Errorf("%s is a %s here and a %s in KubeVirt", m.Name, m.Type, their.metricType)
		case !known && !strings.HasPrefix(m.Name, "drydock_"):
			t.Errorf("%s is neither KubeVirt's name nor begins with drydock_", m.Name)
		}
	}
	for _, m := range NotServed() {
		seen[m.Name]++
		if all[m.Name].kind != "metric" {
			t.Errorf("%s is not served, and is no metric of KubeVirt's", m.Name)
		}
		if !strings.HasSuffix(m.Why, ".") {
			t.Errorf("%s: why it is not served is no sentence: %q", m.Name, m.Why)
		}
	}
	for name, their := range all {
		if seen[name] == 0 && their.kind == "metric" { // the rules are in package ruletable
			t.Errorf("the table does not have KubeVirt's %s", name)
		}
	}
	for name, n := range seen {
		if n > 1 {
			t.Errorf("%s is in the table %d times", name, n)
		}
	}
}

// ourLabels are those that KubeVirt does not have.
var ourLabels = map[string][]string{"kubevirt_vm_info": {"run_strategy"}}

func TestTheLabelsAreKubeVirts(t *testing.T) {
	all := theirs(t)
	for _, m := range Served() {
		their := all[m.Name]
		if their.kind != "metric" {
			continue
		}
		want, got := append(slices.Clone(their.labels), ourLabels[m.Name]...), slices.Clone(m.Labels)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the labels %v, and KubeVirt's %v", m.Name, got, want)
		}
	}
}

func TestEachServedMetricIsDescribed(t *testing.T) {
	for _, m := range Served() {
		if m.By == "" || !strings.HasSuffix(m.Help, ".") || m.Type != Gauge && m.Type != Counter && m.Type != Histogram {
			t.Errorf("%s: by %q, type %q, help %q", m.Name, m.By, m.Type, m.Help)
		}
		if !slices.Contains(Names(m.By), m.Name) {
			t.Errorf("%s is not among those of %s", m.Name, m.By)
		}
	}
}

func TestThePageHasTheTables(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := InPage(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		t.Error("docs/metrics.md is older than the table: run go generate ./internal/metrictable")
	}
	if _, err := InPage([]byte("# Metrics\n")); err == nil {
		t.Error("a page without a place for the tables is accepted")
	}
}

func TestASeriesHasTheTablesTypeAndLabels(t *testing.T) {
	const want = "# HELP kubevirt_vmi_vcpu_delay_seconds_total Time for which a virtual CPU's thread could have run and had no CPU.\n" +
		"# TYPE kubevirt_vmi_vcpu_delay_seconds_total counter\n" +
		"kubevirt_vmi_vcpu_delay_seconds_total{id=\"0\",name=\"web\",namespace=\"shop\",node=\"node1\"} 1.5\n"
	s := Of("kubevirt_vmi_vcpu_delay_seconds_total")
	if err := testutil.CollectAndCompare(fixed{s.At(1.5, "node1", "shop", "web", "0")}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

type fixed struct{ prometheus.Metric }

func (f fixed) Describe(out chan<- *prometheus.Desc) { out <- f.Desc() }

func (f fixed) Collect(out chan<- prometheus.Metric) { out <- f.Metric }
