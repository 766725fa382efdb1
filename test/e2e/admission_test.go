//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestWrongManifestsAreRefusedByTheCluster sends wrong manifests through the real API server. The answer must
// name every wrong field and the allowed values. Only here do the CRD schema and the webhook both judge.
func TestWrongManifestsAreRefusedByTheCluster(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	paths, err := filepath.Glob("../../internal/api/validate/testdata/refused/*.yaml")
	if err != nil || len(paths) < 20 {
		t.Fatalf("found %d wrong manifests (%v), want at least 20", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			manifest, want, _ := strings.Cut(string(text), "\n---\n")
			data, err := yaml.YAMLToJSON([]byte(manifest))
			if err != nil {
				t.Fatal(err)
			}
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			if obj.GetAPIVersion() == "" {
				obj.SetAPIVersion(v1.SchemeGroupVersion.String())
			}
			if obj.GetKind() != "MigrationPolicy" { // it belongs to no namespace
				obj.SetNamespace(ns)
			}
			if obj.GetName() == "" {
				obj.SetName("wrong")
			}
			err = cluster.client.Create(t.Context(), obj)
			if err == nil {
				t.Fatal("the cluster took it")
			}
			missed := fieldsMissing(err.Error(), want)
			// The CRD schema refuses before admission, and sees only some errors.
			bySchema := !strings.Contains(err.Error(), "denied the request")
			if bySchema && len(missed) < strings.Count(want, "\n") {
				return
			}
			if len(missed) > 0 {
				t.Errorf("the answer does not name %v; it is: %v", missed, err)
			}
		})
	}
}

func fieldsMissing(answer, want string) []string {
	var missed []string
	for line := range strings.Lines(want) {
		if field, _, _ := strings.Cut(line, ":"); !strings.Contains(answer, field) {
			missed = append(missed, field)
		}
	}
	return missed
}
