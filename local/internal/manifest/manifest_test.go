package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const mixed = `# a comment
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: ns}
spec: {template: {spec: {
  initContainers: [{name: probe, image: "a/launcher:1"}],
  containers: [{name: api, image: "a/virt:1"}, {name: other, image: "b/foreign:1"}]}}}
---
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.a}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: ns}
`

func names(objects []*unstructured.Unstructured) []string {
	var out []string
	for _, o := range objects {
		out = append(out, Name(o))
	}
	return out
}

func TestNamespacesAndDefinitionsComeFirst(t *testing.T) {
	objects, err := Parse(mixed)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Namespace ns", "CustomResourceDefinition things.a", "Deployment ns/api", "ConfigMap ns/b"}
	if got := names(objects); !slices.Equal(got, want) {
		t.Errorf("the order is %q, not %q", got, want)
	}
}

func TestAManifestThatHoldsSomethingElseIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"an object without a name": "kind: ConfigMap\napiVersion: v1\nmetadata: {}\n",
		"an object without a kind": "apiVersion: v1\nmetadata: {name: a}\n",
		"text that is no YAML":     "{a",
	} {
		if objects, err := Parse(text); err == nil {
			t.Errorf("%s is taken for %q", name, names(objects))
		}
	}
}

func TestAFolderIsBuiltByKustomize(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"all.yaml":           mixed,
		"kustomization.yaml": "resources: [all.yaml]\nnamePrefix: x-\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(objects); !slices.Contains(got, "ConfigMap x-ns/x-b") && !slices.Contains(got, "ConfigMap ns/x-b") {
		t.Errorf("the kustomization had no effect: %q", got)
	}
	if _, err := Read(filepath.Join(dir, "nothing")); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("the error does not name the folder that is missing: %v", err)
	}
}

func TestPodsAreMarkedWithTheContentOfTheirOwnImages(t *testing.T) {
	mark := func(digests map[string]string) string {
		objects, err := Parse(mixed)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if err := MarkImages(o, func(image string) string { return digests[image] }); err != nil {
				t.Fatal(err)
			}
		}
		value, _, err := unstructured.NestedString(objects[2].Object, "spec", "template", "metadata", "annotations", ImagesAnnotation)
		if err != nil {
			t.Fatal(err)
		}
		if _, marked, _ := unstructured.NestedFieldNoCopy(objects[3].Object, "spec"); marked {
			t.Error("an object without pods is marked")
		}
		return value
	}
	for name, c := range map[string]struct {
		digests map[string]string
		want    string
	}{
		"both loaded images count":               {map[string]string{"a/launcher:1": "222", "a/virt:1": "111"}, "111-222"},
		"an image that is not used counts not":   {map[string]string{"a/virt:1": "111", "a/importer:1": "333"}, "111"},
		"without a loaded image nothing is said": {nil, ""},
	} {
		if got := mark(c.digests); got != c.want {
			t.Errorf("%s: the mark is %q, not %q", name, got, c.want)
		}
	}
}

func TestAVariableOfAnInitContainerIsSetOnce(t *testing.T) {
	objects, err := Parse(mixed)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"kvm", "tcg", ""} {
		if err := SetEnv(objects[2], "probe", "ACCEL", value); err != nil {
			t.Fatal(err)
		}
		containers, _, err := unstructured.NestedSlice(objects[2].Object, "spec", "template", "spec", "initContainers")
		if err != nil {
			t.Fatal(err)
		}
		env, _ := containers[0].(map[string]any)["env"].([]any)
		if len(env) != 1 || env[0].(map[string]any)["value"] != value {
			t.Errorf("the environment is %v, not ACCEL=%q", env, value)
		}
	}
	if err := SetEnv(objects[2], "api", "ACCEL", "kvm"); err == nil || !strings.Contains(err.Error(), "no init container api") {
		t.Errorf("an init container that is not there: %v", err)
	}
}
