package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	clonev1alpha1 "kubevirt.io/api/clone/v1alpha1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	pluginv1 "kubevirt.io/api/plugin/v1alpha1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1alpha1 "kubevirt.io/api/snapshot/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	forkliftv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/forklift/v1beta1"
	"sigs.k8s.io/yaml"
)

const migrating = "docs/migrating-from-kubevirt.md"

// The page must list each kind of KubeVirt and CDI that Drydock does not define, or its version, and no other.
func TestKindsThatAreNotServedAreOnThePageAboutMigrating(t *testing.T) {
	named := notServed(t)
	served := servedKinds(t)
	kinds := map[string]bool{}
	for kind := range served {
		kinds[kind.Kind] = true
	}
	missing := 0
	for _, kind := range upstreamKinds(t) {
		if served[kind] {
			continue
		}
		missing++
		if version := kind.GroupVersion().String(); !named[kind.Kind] && !named[version] {
			t.Errorf("%s of %s has no definition in config/crd; %s does not say so below \"What is not served\"", kind.Kind, version, migrating)
		}
	}
	for name := range named {
		if kinds[name] {
			t.Errorf("%s says that %s is not served, and it has a definition", migrating, name)
		}
	}
	if missing < 10 || len(served) < 15 {
		t.Errorf("only %d kinds are missing, and %d are served: the test looks in the wrong place", missing, len(served))
	}
}

// TestTheFrontPageLinksWhatDiffers checks that the front page's first words, which say that Drydock works like
// KubeVirt, link the page about the differences.
func TestTheFrontPageLinksWhatDiffers(t *testing.T) {
	introduction, _, _ := strings.Cut(readText(t, "README.md"), "\n## ")
	if !strings.Contains(introduction, "]("+migrating+")") {
		t.Errorf("the first words of README.md do not link %s", migrating)
	}
	if strings.Contains(introduction, "unchanged") {
		t.Errorf("README.md says that something works unchanged; %s lists what does not", migrating)
	}
}

func notServed(t *testing.T) map[string]bool {
	t.Helper()
	_, section, found := strings.Cut(readText(t, migrating), "\n## What is not served\n")
	if !found {
		t.Fatalf("%s has no section \"What is not served\"", migrating)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \|`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			named[name[1]] = true
		}
	}
	return named
}

func servedKinds(t *testing.T) map[schema.GroupVersionKind]bool {
	t.Helper()
	served := map[schema.GroupVersionKind]bool{}
	for _, folder := range []string{"config/crd", "internal/controller/cdi/crd"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*kubevirt.io_*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal(text, &crd); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, version := range crd.Spec.Versions {
				if version.Served {
					served[schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}] = true
				}
			}
		}
	}
	return served
}

func upstreamKinds(t *testing.T) []schema.GroupVersionKind {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, instancetypev1.AddToScheme, migrationsv1.AddToScheme, poolv1.AddToScheme, exportv1.AddToScheme,
		backupv1.AddToScheme, pluginv1.AddToScheme, snapshotv1alpha1.AddToScheme, snapshotv1.AddToScheme,
		clonev1alpha1.AddToScheme, clonev1.AddToScheme, cdiv1.AddToScheme, forkliftv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []schema.GroupVersionKind
	for kind := range scheme.AllKnownTypes() {
		// A kind with a list is an object of its own; one without a group is Kubernetes'.
		if kind.Group != "" && scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind+"List")) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
