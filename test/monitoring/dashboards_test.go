package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/dashboards"
)

const folder = "../../config/monitoring/dashboards"

// page is the part of a dashboard that Grafana asks Prometheus about.
type page struct {
	UID        string
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []panel
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, LegendFormat string }
}

func (p panel) covers(other panel) bool {
	a, b := p.GridPos, other.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func pages(t *testing.T) map[string]page {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]page{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p page
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = p
	}
	if len(all) != len(dashboards.All()) || len(all) != 4 {
		t.Fatalf("there are %d dashboards", len(all))
	}
	return all
}

// filled replaces Grafana's variables by values.
func filled(expr string, variables set) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", "5m")
	return regexp.MustCompile(`\$([a-z]+)`).ReplaceAllStringFunc(expr, func(variable string) string {
		if variables[variable[1:]] {
			return "value"
		}
		return variable
	})
}

func TestEachQueryOfADashboardIsAnswered(t *testing.T) {
	known, err := everything()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range pages(t) {
		variables := set{}
		for _, v := range p.Templating.List {
			if v.Type == "query" {
				checkVariable(t, known, name, filled(v.Query.(map[string]any)["query"].(string), variables))
			}
			variables[v.Name] = true
		}
		queries := 0
		for _, panel := range p.Panels {
			queries += len(panel.Targets)
			panel.check(t, name, known, variables)
		}
		if queries < 10 {
			t.Errorf("%s has only %d queries: the test looks in the wrong place", name, queries)
		}
	}
}

var legend = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

func (p panel) check(t *testing.T, name string, known served, variables set) {
	t.Helper()
	if p.Type != "row" && len(p.Targets) == 0 {
		t.Errorf("%s, %q: it asks for nothing", name, p.Title)
	}
	for _, target := range p.Targets {
		expr := filled(target.Expr, variables)
		has, err := known.check(expr)
		if err != nil {
			t.Errorf("%s, %q: %v", name, p.Title, err)
		}
		for _, match := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
			if !has[match[1]] {
				t.Errorf("%s, %q: the legend has the label %s, which %s has not", name, p.Title, match[1], expr)
			}
		}
		if strings.Contains(expr, "$") {
			t.Errorf("%s, %q: a variable of %s is not one of the dashboard", name, p.Title, expr)
		}
	}
}

func checkVariable(t *testing.T, known served, name, query string) {
	t.Helper()
	parts := regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`).FindStringSubmatch(query)
	if parts == nil {
		t.Fatalf("%s: %q is no query of a variable", name, query)
	}
	if has, err := known.check(parts[1]); err != nil || !has[parts[2]] {
		t.Errorf("%s: %s has no label %s: %v", name, parts[1], parts[2], err)
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	for name, p := range pages(t) {
		ids := map[int]bool{}
		for i, one := range p.Panels {
			if ids[one.ID] {
				t.Errorf("%s: two panels have the number %d", name, one.ID)
			}
			ids[one.ID] = true
			if one.GridPos.X+one.GridPos.W > 24 {
				t.Errorf("%s, %q: it is beyond the page", name, one.Title)
			}
			if slices.ContainsFunc(p.Panels[:i], one.covers) {
				t.Errorf("%s, %q: it covers another one", name, one.Title)
			}
		}
	}
}

func TestQueriesOfRunbooksAreAnswered(t *testing.T) {
	known, err := everything()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks, found := regexp.MustCompile("(?s)```promql\n(.*?)```"), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
			for query := range strings.Lines(block[1]) {
				found++
				if _, err := known.check(strings.TrimSpace(query)); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(file), query, err)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d queries found: the test looks in the wrong place", found)
	}
}

// ofProcesses begin the names of metrics that the client library of Prometheus serves for each Go program.
var ofProcesses = regexp.MustCompile("^(go|process)_")

// TestTheDashboardsOfKubeVirtAreAnswered compares the metrics and labels that they ask for, as data, with those that are served.
// In test/e2e a real Prometheus is asked for them.
func TestTheDashboardsOfKubeVirtAreAnswered(t *testing.T) {
	known, err := everything()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/kubevirt-monitoring.txt")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		asked++
		dashboard, metric, labels := fields[0], fields[1], fields[2:]
		has, served := known[metric]
		if ofProcesses.MatchString(metric) {
			has, served = targets, true
		}
		if !served {
			t.Errorf("%s asks for %s, which is not served", dashboard, metric)
			continue
		}
		for _, name := range labels {
			if !has[name] {
				t.Errorf("%s asks for the label %s of %s, which has only %v", dashboard, name, metric, has)
			}
		}
	}
	if asked < 50 {
		t.Errorf("only %d metrics are asked for: the test looks in the wrong place", asked)
	}
}
