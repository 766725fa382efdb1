package metrics

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// docs/metrics.md is compared with the served metrics.
func TestTheDocumentationNamesEachMetric(t *testing.T) {
	text, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan *prometheus.Desc, 100)
	NewCollector("node1", nil).Describe(served)
	NewMigrations("node1").Describe(served)
	close(served)
	for desc := range served {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())
		if name == nil {
			t.Fatalf("%s has no name", desc)
		}
		if !strings.Contains(string(text), "`"+name[1]+"`") {
			t.Errorf("docs/metrics.md does not tell of %s", name[1])
		}
	}
}
