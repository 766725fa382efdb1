package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/local/internal/deploy"
	"drydock.dev/local/internal/render"
)

// ApplyNetworks installs the API of secondary networks.
func (b *Cluster) ApplyNetworks(ctx context.Context) error {
	return b.applyAll(ctx, "the networks beside the pods'", render.Networks())
}

// ApplyPolicies installs the policy agents' RBAC objects.
func (b *Cluster) ApplyPolicies(ctx context.Context) error {
	return b.applyAll(ctx, "the agents of network policies", render.Policies())
}

// AwaitNetworks waits until secondary networks can be made.
func (b *Cluster) AwaitNetworks(ctx context.Context) error {
	definitions := b.dynamic.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: resources["CustomResourceDefinition"],
	})
	var answer error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var definition *unstructured.Unstructured
		if definition, answer = definitions.Get(ctx, render.NetworksDefinition, metav1.GetOptions{}); answer != nil {
			return false, nil
		}
		works, _, err := deploy.State(definition)
		return works, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the API of networks beside the pods': %w", errors.Join(err, answer))
	}
	return nil
}
