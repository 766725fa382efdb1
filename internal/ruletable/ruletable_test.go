package ruletable

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/metrictable"
)

// lines reads data about KubeVirt, one name with its properties a line.
func lines(t *testing.T, path string) [][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for line := range strings.Lines(string(text)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

func TestTheTableHasEachOfKubeVirtsAlerts(t *testing.T) {
	theirs := lines(t, "testdata/kubevirt-1.9.0-alerts.txt")
	if len(theirs) != 38 {
		t.Fatalf("KubeVirt has %d alerts, not 38", len(theirs))
	}
	var ours [][]string
	missing := map[string]bool{}
	for _, m := range MissingAlerts() {
		missing[m.Name] = true
	}
	for _, a := range Alerts() {
		ours = append(ours, []string{a.Name, string(a.Severity), string(a.Impact)})
	}
	same := func(one []string) func([]string) bool {
		return func(other []string) bool { return slices.Equal(one, other) }
	}
	for _, their := range theirs {
		if served := slices.ContainsFunc(ours, same(their)); served == missing[their[0]] {
			t.Errorf("KubeVirt's alert %v must be in one of the two lists, with its severity and impact", their)
		}
	}
	for _, our := range ours {
		known := slices.ContainsFunc(theirs, same(our))
		if own := strings.HasPrefix(our[0], "Drydock"); own == known {
			t.Errorf("the alert %v is neither KubeVirt's nor begins with Drydock", our)
		}
	}
	if len(missing) > 6 {
		t.Errorf("%d alerts are missing: only those of virt-operator may be", len(missing))
	}
}

func TestTheTablesHaveEachOfKubeVirtsRecordingRules(t *testing.T) {
	found := map[string]int{}
	for _, m := range metrictable.Served() {
		found[m.Name]++
	}
	for _, m := range MissingRecordings() {
		found[m.Name]++
	}
	recorded := map[string]bool{}
	for _, r := range Recordings() {
		if !recorded[r.Name] { // a name may have several rules, with other labels
			found[r.Name]++
		}
		recorded[r.Name] = true
	}
	rules := map[string]bool{}
	for _, their := range lines(t, "../metrictable/testdata/kubevirt-1.9.0.txt") {
		if their[1] == "rule" {
			rules[their[0]] = true
		}
	}
	if len(rules) != 56 {
		t.Errorf("KubeVirt has %d names of recording rules, not 56", len(rules))
	}
	for name := range rules {
		if found[name] != 1 {
			t.Errorf("KubeVirt's recording rule %s is %d times in the tables of metrics and of rules", name, found[name])
		}
	}
	for name := range recorded {
		if !rules[name] && name != "kubevirt_allocatable_nodes_count" { // a dashboard of kubevirt/monitoring asks for it
			t.Errorf("the recording rule %s is none of KubeVirt's", name)
		}
	}
	for _, m := range MissingRecordings() {
		if !rules[m.Name] {
			t.Errorf("%s is missing, and KubeVirt does not have it", m.Name)
		}
	}
}

func TestTextsAreSentences(t *testing.T) {
	sentence := func(of, text string) {
		t.Helper()
		if !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q is no sentence", of, text)
		}
	}
	for _, a := range Alerts() {
		sentence(a.Name, a.Summary)
		if a.Description != "" {
			sentence(a.Name, a.Description)
		}
		if a.For%time.Minute != 0 {
			t.Errorf("%s: %s are no whole minutes", a.Name, a.For)
		}
	}
	for _, r := range Recordings() {
		sentence(r.Name, r.Help)
	}
	for _, m := range append(MissingAlerts(), MissingRecordings()...) {
		sentence(m.Name, m.Why)
	}
}

func TestWhatIsGeneratedIsUpToDate(t *testing.T) {
	index, err := os.ReadFile("../../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(index) != Index() {
		t.Error("docs/runbooks/README.md is older than the table: run go generate ./internal/ruletable")
	}
	text, err := os.ReadFile("../../config/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.Marshal(map[string]any{"groups": Groups()})
	if err != nil {
		t.Fatal(err)
	}
	if _, rules, _ := strings.Cut(string(text), "\n"); rules != string(want) {
		t.Error("config/monitoring/rules.yaml is older than the table: run go generate ./internal/ruletable")
	}
}

func TestEachAlertHasItsPage(t *testing.T) {
	pages := map[string]bool{}
	found, err := filepath.Glob("../../" + Runbooks + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range found {
		pages[filepath.Base(page)] = true
	}
	delete(pages, "README.md")
	alerts := map[string]bool{}
	for _, a := range Alerts() {
		alerts[filepath.Base(Page(a.Name))] = true
	}
	for page := range alerts {
		if !pages[page] {
			t.Errorf("the alert of the page %s/%s has none", Runbooks, page)
			continue
		}
		text, err := os.ReadFile("../../" + Runbooks + "/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, heading := range []string{"# " + strings.TrimSuffix(page, ".md") + "\n", "\n## How to look\n", "\n## How to mend\n"} {
			if !strings.Contains(string(text), heading) {
				t.Errorf("%s/%s lacks the heading %q", Runbooks, page, strings.TrimSpace(heading))
			}
		}
	}
	for page := range pages {
		if !alerts[page] {
			t.Errorf("the page %s/%s is of no alert", Runbooks, page)
		}
	}
}

func TestDurationsAreWrittenAsPrometheusReadsThem(t *testing.T) {
	for want, d := range map[string]time.Duration{"1m": time.Minute, "90m": 90 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour} {
		if got := forText(d); got != want {
			t.Errorf("%s is written as %s", want, got)
		}
	}
}
