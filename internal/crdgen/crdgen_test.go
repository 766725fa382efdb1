package crdgen

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/yaml"
)

const (
	folder    = "../../config/crd"
	cdiFolder = "../controller/cdi/crd"
)

// kubectl apply stores the whole object in an annotation, and the API server limits all annotations together to this
// size.
const applyLimit = 256 << 10

func TestManifestsAreWhatTheTypesSay(t *testing.T) {
	for folder, generate := range map[string]func() (map[string][]byte, error){folder: Files, cdiFolder: CDIFiles} {
		files, err := generate()
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
				t.Errorf("%s/%s is not what is generated; run make generate", folder, name)
			}
		}
	}
}

func TestAPIServerAcceptsEveryDefinition(t *testing.T) {
	for name, definition := range definitions(t) {
		t.Run(name, func(t *testing.T) {
			apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
			definition.Status.StoredVersions = []string{definition.Spec.Versions[0].Name}
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

// There is no conversion: an object of one version must be valid in the other.
func TestTheOlderVersionDiffersInDescriptionsAlone(t *testing.T) {
	older := 0
	for name, definition := range definitions(t) {
		versions := definition.Spec.Versions
		if len(versions) == 1 {
			continue
		}
		older++
		pairs := map[string]string{"v1": "v1alpha3", "v1beta1": "v1alpha1"}
		if len(versions) != 2 || pairs[versions[0].Name] != versions[1].Name || definition.Spec.Conversion != nil {
			t.Errorf("%s: %d versions, the first is %s", name, len(versions), versions[0].Name)
			continue
		}
		if !versions[0].Storage || versions[1].Storage || !versions[1].Served || !versions[1].Deprecated {
			t.Errorf("%s: the older version is not deprecated, or is what is stored", name)
		}
		same := versions[0].DeepCopy()
		crd.EditSchema(same.Schema.OpenAPIV3Schema, visitor(func(s *apiextensionsv1.JSONSchemaProps) { s.Description = "" }))
		same.Name, same.Storage, same.SelectableFields = versions[1].Name, false, nil
		same.Deprecated, same.DeprecationWarning = true, versions[1].DeprecationWarning
		if !equality.Semantic.DeepEqual(same, &versions[1]) {
			t.Errorf("%s: the versions differ", name)
		}
	}
	if older != 9 {
		t.Errorf("%d kinds have an older version, want 9", older)
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
	if !meta.Properties["creationTimestamp"].Nullable {
		t.Error("creationTimestamp: null in a template, as clients in Go write it, would be refused")
	}
	if meta.XPreserveUnknownFields != nil {
		t.Error("a template's metadata keep keys that nobody has judged")
	}
}

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var paths []string
	for _, pattern := range []string{folder + "/*kubevirt.io_*.yaml", cdiFolder + "/cdi.kubevirt.io_*.yaml"} {
		matches, err := filepath.Glob(pattern)
		if err != nil || len(matches) == 0 {
			t.Fatalf("finding the definitions %s: %v", pattern, err)
		}
		paths = append(paths, matches...)
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

// One unreadable object hides itself from every component.
func TestTimesAndDurationsAreWhatGoReads(t *testing.T) {
	times, durations := regexp.MustCompile(timePattern), regexp.MustCompile(durationPattern)
	for text, want := range map[string]bool{
		"2026-01-01T00:00:00Z": true, "2026-01-01T00:00:00.123456789+01:30": true,
		"2026-01-01 00:00:00": false, "2026-01-01T00:00:00": false, "2026-01-01T00:00:00+0100": false, "2026-01-01t00:00:00z": false,
		"2026-01-01": false, "": false, "2026-01-01T00:00:00Z\nx": false,
	} {
		if got := times.MatchString(text); got != want {
			t.Errorf("the pattern of times says %v of %q", got, text)
		}
		if _, err := time.Parse(time.RFC3339, text); want && err != nil {
			t.Errorf("Go does not read the time %q: %v", text, err)
		}
	}
	for text, want := range map[string]bool{
		"1h30m": true, "0": true, "-1.5s": true, "10ms": true, "3": false, "soon": false, "": false, "1d": false, "1h 2m": false,
	} {
		if got := durations.MatchString(text); got != want {
			t.Errorf("the pattern of durations says %v of %q", got, text)
		}
		if _, err := time.ParseDuration(text); want && err != nil {
			t.Errorf("Go does not read the duration %q: %v", text, err)
		}
	}
	for name, definition := range definitions(t) {
		crd.EditSchema(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, visitor(func(s *apiextensionsv1.JSONSchemaProps) {
			if s.Format == "date-time" && s.Pattern != timePattern {
				t.Errorf("%s: a time has the pattern %q", name, s.Pattern)
			}
		}))
	}
}

// visitor is called for every schema.
type visitor func(*apiextensionsv1.JSONSchemaProps)

func (v visitor) Visit(schema *apiextensionsv1.JSONSchemaProps) crd.SchemaVisitor {
	if schema != nil {
		v(schema)
	}
	return v
}
