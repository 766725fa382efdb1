package dashboards

import (
	"bytes"
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestTheFilesAreUpToDate(t *testing.T) {
	for _, d := range All() {
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../../config/monitoring/dashboards/" + d.Name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the dashboard %s is older than the table: run go generate ./internal/dashboards", d.Name)
		}
	}
}

// Grafana's sidecar loads ConfigMaps with this label.
func TestEachDashboardIsInTheManifests(t *testing.T) {
	text, err := os.ReadFile("../../config/monitoring/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		GeneratorOptions struct {
			Labels                map[string]string `json:"labels"`
			DisableNameSuffixHash bool              `json:"disableNameSuffixHash"`
		} `json:"generatorOptions"`
		ConfigMapGenerator []struct {
			Files []string `json:"files"`
		} `json:"configMapGenerator"`
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	options := kustomization.GeneratorOptions
	if options.Labels["grafana_dashboard"] != "1" || !options.DisableNameSuffixHash {
		t.Errorf("the ConfigMaps are made with %+v", options)
	}
	there := map[string]bool{}
	for _, configMap := range kustomization.ConfigMapGenerator {
		for _, file := range configMap.Files {
			there[file] = true
		}
	}
	for _, d := range All() {
		if file := "dashboards/" + d.Name + ".json"; !there[file] {
			t.Errorf("config/monitoring/kustomization.yaml has no ConfigMap with %s", file)
		}
	}
	if len(there) != len(All()) {
		t.Errorf("there are %d files in ConfigMaps and %d dashboards", len(there), len(All()))
	}
}
