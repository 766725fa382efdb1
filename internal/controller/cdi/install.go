package cdi

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed crd/*.yaml
var manifests embed.FS

// These label the definitions that Drydock created.
const (
	oursLabel = "app.kubernetes.io/part-of"
	oursValue = "drydock"
)

// established bounds how long a new definition may take to be served.
const established = 30 * time.Second

// Install creates missing definitions, updates Drydock's own and waits until all are served. The client must not use
// a cache.
func Install(ctx context.Context, c client.Client) error {
	wanted, err := definitions()
	if err != nil {
		return err
	}
	for _, definition := range wanted {
		if err := install(ctx, c, definition); err != nil {
			return err
		}
	}
	for _, definition := range wanted {
		if err := awaitServed(ctx, c, definition.Name); err != nil {
			return err
		}
	}
	return nil
}

func definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(manifests, "crd/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the definitions of CDI's kinds: %w", err)
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		text, err := manifests.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", name, err)
		}
		out = append(out, definition)
	}
	return out, nil
}

// install creates the definition, or updates it if it is Drydock's.
func install(ctx context.Context, c client.Client, wanted *apiextensionsv1.CustomResourceDefinition) error {
	var existing apiextensionsv1.CustomResourceDefinition
	err := c.Get(ctx, client.ObjectKeyFromObject(wanted), &existing)
	if apierrors.IsNotFound(err) {
		err = c.Create(ctx, wanted.DeepCopy())
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("creating the definition %s: %w", wanted.Name, err)
	}
	if err != nil {
		return fmt.Errorf("reading the definition %s: %w", wanted.Name, err)
	}
	if existing.Labels[oursLabel] != oursValue || existing.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		return nil // or a user's, applied over Drydock's, which keeps the label
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&wanted.Spec)
	if equality.Semantic.DeepEqual(existing.Spec, wanted.Spec) {
		return nil
	}
	existing.Spec = wanted.Spec
	if err := c.Update(ctx, &existing); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("updating the definition %s: %w", wanted.Name, err)
	}
	return nil
}

// There is no watch for it: the API server's own caches must have the definition.
func awaitServed(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, established, true, func(ctx context.Context) (bool, error) {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &definition); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established {
				return condition.Status == apiextensionsv1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until the API server serves %s: %w", name, err)
	}
	return nil
}
