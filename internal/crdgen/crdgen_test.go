package crdgen

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

const folder = "../../config/crd"

// kubectl apply keeps the whole object in an annotation, which the API server
// limits to this together with all others.
const applyLimit = 256 << 10

func TestManifestsAreWhatTheTypesSay(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(files) {
		t.Errorf("%s holds %d files, %d are generated", folder, len(entries), len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what is generated; run make generate", name)
		}
	}
}

func TestAPIServerAcceptsEveryDefinition(t *testing.T) {
	for name, definition := range definitions(t) {
		t.Run(name, func(t *testing.T) {
			apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
			definition.Status.StoredVersions = []string{"v1"}
			var internal apiextensions.CustomResourceDefinition
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, &internal, nil); err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

func TestDefinitionsFitKubectlApply(t *testing.T) {
	for name, definition := range definitions(t) {
		text, err := json.Marshal(definition)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > applyLimit*3/4 {
			t.Errorf("%s has %d bytes; the limit is %d", name, len(text), applyLimit)
		}
	}
}

func TestTemplatesKeepLabelsAndAnnotations(t *testing.T) {
	vm := definitions(t)["kubevirt.io_virtualmachines.yaml"]
	spec := vm.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	meta := spec.Properties["template"].Properties["metadata"]
	for _, property := range []string{"labels", "annotations"} {
		if meta.Properties[property].AdditionalProperties == nil {
			t.Errorf("spec.template.metadata.%s would be pruned: %+v", property, meta.Properties[property])
		}
	}
	if meta.XPreserveUnknownFields == nil || !*meta.XPreserveUnknownFields {
		t.Error("creationTimestamp: null in a template, as clients in Go write it, would be refused")
	}
}

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "kubevirt.io_*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("finding the definitions in %s: %v", folder, err)
	}
	found := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !strings.HasPrefix(string(text), header) {
			t.Errorf("%s does not say that it is generated", path)
		}
		found[filepath.Base(path)] = definition
	}
	return found
}
