// Package manifest reads Kubernetes objects from manifests and kustomize folders, sorts them for applying, and
// annotates pods with their images' contents. It must talk to no cluster.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ImagesAnnotation on a pod template has the digests of its images.
const ImagesAnnotation = "drydock.dev/images"

// Read reads a manifest or a kustomize folder.
func Read(path string) ([]*unstructured.Unstructured, error) {
	text, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	objects, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return objects, nil
}

func load(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return "", err
	}
	text, err := built.AsYaml()
	return string(text), err
}

// Parse returns the objects of a manifest, with namespaces and CRDs first, because other objects
// need them.
func Parse(text string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) == 0 {
			continue // a document of comments
		}
		if object.GetKind() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("an object has no kind or no name: %.200v", object.Object)
		}
		objects = append(objects, object)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(rank(a.GetKind()), rank(b.GetKind()))
	})
	return objects, nil
}

func rank(kind string) int {
	switch kind {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	}
	return 2
}

// Name returns kind, namespace and name for messages.
func Name(object *unstructured.Unstructured) string {
	name := object.GetName()
	if ns := object.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return object.GetKind() + " " + name
}

// MarkImages annotates the pod template of a Deployment or DaemonSet with its images' digests, if any, so that pods
// restart when an image of the same name has new content.
func MarkImages(object *unstructured.Unstructured, digest func(image string) string) error {
	if kind := object.GetKind(); kind != "Deployment" && kind != "DaemonSet" {
		return nil
	}
	var digests []string
	for _, field := range []string{"initContainers", "containers"} {
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", field)
		if err != nil {
			return fmt.Errorf("reading %s of %s: %w", field, Name(object), err)
		}
		for _, container := range containers {
			fields, _ := container.(map[string]any)
			image, _ := fields["image"].(string)
			if d := digest(image); d != "" {
				digests = append(digests, d)
			}
		}
	}
	if len(digests) == 0 {
		return nil
	}
	slices.Sort(digests)
	value := strings.Join(slices.Compact(digests), "-")
	err := unstructured.SetNestedField(object.Object, value, "spec", "template", "metadata", "annotations", ImagesAnnotation)
	if err != nil {
		return fmt.Errorf("marking the images of %s: %w", Name(object), err)
	}
	return nil
}

// SetEnv sets an environment variable in an init container of an object's pods.
func SetEnv(object *unstructured.Unstructured, container, variable, value string) error {
	path := []string{"spec", "template", "spec", "initContainers"}
	containers, _, err := unstructured.NestedSlice(object.Object, path...)
	if err != nil {
		return fmt.Errorf("reading the init containers of %s: %w", Name(object), err)
	}
	for _, item := range containers {
		fields, _ := item.(map[string]any)
		if fields["name"] != container {
			continue
		}
		env, _ := fields["env"].([]any)
		env = slices.DeleteFunc(env, func(e any) bool {
			entry, _ := e.(map[string]any)
			return entry["name"] == variable
		})
		fields["env"] = append(env, map[string]any{"name": variable, "value": value})
		return unstructured.SetNestedSlice(object.Object, containers, path...)
	}
	return fmt.Errorf("setting %s of %s: it has no init container %s", variable, Name(object), container)
}
