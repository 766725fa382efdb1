package validate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Each file of testdata/refused has a wrong manifest, a line of dashes and admission's errors, one per line, all at
// once.
func TestWrongManifestsAreRefused(t *testing.T) {
	paths, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil || len(paths) < 20 {
		t.Fatalf("found %d wrong manifests (%v), want at least 20", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			manifest, want, found := strings.Cut(string(text), "\n---\n")
			if !found {
				t.Fatal("the file has no line of dashes before the errors")
			}
			got := strings.Join(judge(t, manifest), "\n") + "\n"
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(manifest+"\n---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
			// Errors that were found in a map must be in the same order each time.
			for range 20 {
				if again := strings.Join(judge(t, manifest), "\n") + "\n"; again != got {
					t.Fatalf("the answers differ from time to time:\n%s\nand\n%s", got, again)
				}
			}
		})
	}
}

// judge returns the errors of a manifest of any kind.
func judge(t *testing.T, manifest string) []string {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		t.Fatal(err)
	}
	settings := clusterconfig.FromKubeVirt(nil)
	settings.HostDisk, settings.DownwardMetrics = true, true
	var errs field.ErrorList
	switch kind.Kind {
	case "VirtualMachine":
		errs = VM(parse[v1.VirtualMachine](t, manifest), nil, settings)
	case "VirtualMachineInstanceReplicaSet":
		errs = ReplicaSet(parse[v1.VirtualMachineInstanceReplicaSet](t, manifest), nil, settings)
	case "VirtualMachineInstanceMigration":
		errs = Migration(parse[v1.VirtualMachineInstanceMigration](t, manifest), false, nil, nil)
	case "MigrationPolicy":
		errs = MigrationPolicy(parse[migrationsv1alpha1.MigrationPolicy](t, manifest), nil)
	case "DataVolume":
		errs = DataVolume(parse[cdiv1.DataVolume](t, manifest), nil)
	case "KubeVirt":
		errs = KubeVirt(parse[v1.KubeVirt](t, manifest), nil)
	default:
		t.Fatalf("the manifest is of kind %q", kind.Kind)
	}
	lines := make([]string, 0, len(errs))
	for _, err := range errs {
		lines = append(lines, err.Field+": "+admission.Sentence(err))
	}
	return lines
}

func parse[T any](t *testing.T, manifest string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Fatal(err)
	}
	return object
}

func decode(manifest []byte) (*v1.VirtualMachine, error) {
	vm := &v1.VirtualMachine{}
	return vm, yaml.Unmarshal(manifest, vm)
}

// A clone from another namespace needs the note from defaulting that its creator may read that very source.
func TestACloneNeedsTheNoteOfItsSource(t *testing.T) {
	for note, refused := range map[string]bool{"": true, "pvc/golden/another": true, "pvc/golden/image": false} {
		dv := parse[cdiv1.DataVolume](t, `
metadata: {name: disk, namespace: mine}
spec:
  source:
    pvc: {namespace: golden, name: image}
  storage: {}
`)
		dv.Annotations = map[string]string{datavolume.AnnCloneAllowed: note}
		errs := DataVolume(dv, nil)
		if told := strings.Contains(text(errs), CloneForbidden("golden")); told != refused || len(errs) > 0 != refused {
			t.Errorf("with the note %q the errors are %v", note, errs)
		}
	}
}
