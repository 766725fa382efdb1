package distribution

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tree(t *testing.T, files ...string) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range files {
		file := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

var inCheckout = []string{
	"go.mod", "bin/virtctl", "config/kubevirt/emulated.yaml", "examples/vm.yaml", "build/images/virt.tar",
	"build/images/virt-launcher.tar", "build/images/virt-importer.tar", "build/images/test-guest.tar", "build/images/test-tools.tar",
}

var inRelease = []string{
	"bin/virtctl", "manifests/drydock.yaml", "manifests/kubevirt-emulated.yaml", "examples/vm.yaml", "images/virt.tar",
	"images/virt-launcher.tar", "images/virt-importer.tar", "images/test-guest.tar",
}

func TestThePartsAreFoundInACheckoutAndInARelease(t *testing.T) {
	for name, c := range map[string]struct {
		files   []string
		install string
		images  int
	}{
		"in a checkout, the manifests are a folder and every image is taken": {inCheckout, "config", 5},
		"in a release, the manifests are a file":                             {inRelease, "manifests/drydock.yaml", 4},
	} {
		t.Run(name, func(t *testing.T) {
			top := tree(t, c.files...)
			parts, err := Find(filepath.Join(top, "bin"))
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(top, c.install); parts.Install != want {
				t.Errorf("Drydock is installed from %s, not %s", parts.Install, want)
			}
			if len(parts.Images) != c.images {
				t.Errorf("the images are %q, not %d", parts.Images, c.images)
			}
		})
	}
}

func TestAllThatIsMissingIsNamedAtOnceWithWhatToDo(t *testing.T) {
	for remedy, files := range map[string][]string{"make it with: make build images": inCheckout, "unpack the release archive again": inRelease} {
		files = slices.DeleteFunc(slices.Clone(files), func(name string) bool {
			return strings.HasSuffix(name, "virtctl") || strings.HasSuffix(name, "virt.tar")
		})
		_, err := Find(filepath.Join(tree(t, files...), "bin"))
		if err == nil {
			t.Fatal("nothing is said about what is missing")
		}
		for _, want := range []string{"bin/virtctl, ", "images/virt.tar is missing", remedy} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
}
