package commontypes

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

var update = flag.Bool("update", false, "write the golden file")

// The bundle as text, one object per line: a diff shows the effect of a changed table on users.
func TestTheBundle(t *testing.T) {
	var text strings.Builder
	for _, object := range Instancetypes() {
		line(t, &text, object, object.Spec)
	}
	for _, object := range Preferences() {
		line(t, &text, object, object.Spec)
	}
	golden := filepath.Join("testdata", "bundle.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")); diff != "" {
		t.Errorf("the bundle has changed; run the test with -update, and say so in the release notes:\n%s", diff)
	}
}

func line(t *testing.T, out *strings.Builder, object metav1.Object, spec any) {
	t.Helper()
	encoded, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(object.GetLabels())) {
		labels = append(labels, strings.TrimPrefix(key, prefix)+"="+object.GetLabels()[key])
	}
	fmt.Fprintf(out, "%s (%s) %s %s\n", object.GetName(), object.GetAnnotations()[displayAnnotation], strings.Join(labels, ","), encoded)
}

// Every object must be valid, and every name unique.
func TestObjectsAreValid(t *testing.T) {
	names := map[string]bool{}
	check := func(kind string, object metav1.Object) {
		name := object.GetName()
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s %q: %v", kind, name, problems)
		}
		if names[kind+name] {
			t.Errorf("%s %s is there twice", kind, name)
		}
		names[kind+name] = true
		for key, value := range object.GetLabels() {
			if problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(problems) > 0 {
				t.Errorf("%s %s: label %s=%q: %v", kind, name, key, value, problems)
			}
		}
	}
	for _, object := range Instancetypes() {
		check("instance type", object)
	}
	for _, object := range Preferences() {
		check("preference", object)
	}
}

// A caller's change of an object must not appear in the next caller's.
func TestEachCallMakesNewObjects(t *testing.T) {
	first := Preferences()[0]
	first.Spec.Devices.PreferredDiskBus, first.Labels["x"] = "sata", "y"
	second := Preferences()[0]
	if second.Spec.Devices.PreferredDiskBus != "virtio" || second.Labels["x"] != "" {
		t.Errorf("%+v", second)
	}
}
