// Package podcreation creates pods of virtual machines, with the limits that their namespace requires. It reads these
// only after a refusal, since most namespaces have none. It must not decide the limits (podlimits does), nor change an
// existing pod.
package podcreation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/pod/podlimits"
)

// Create creates a pod. reader asks the API server, whose error for the last attempt is returned.
func Create(ctx context.Context, c client.Client, reader client.Reader, pod *corev1.Pod, need podlimits.Need, options ...client.CreateOption) error {
	unlimited := pod.DeepCopy()
	refusal := c.Create(ctx, pod, options...)
	if !apierrors.IsForbidden(refusal) && !apierrors.IsInvalid(refusal) || apierrors.HasStatusCause(refusal, corev1.NamespaceTerminatingCause) {
		return refusal
	}
	namespace, err := Namespace(ctx, reader, pod.Namespace)
	if err != nil {
		return fmt.Errorf("%w; %w", refusal, err)
	}
	limited, set := podlimits.Set(unlimited, namespace, need)
	if !set {
		return refusal
	}
	err = c.Create(ctx, limited, options...)
	limited.DeepCopyInto(pod)
	return err
}

// Namespace asks the API server for a namespace's requirements.
func Namespace(ctx context.Context, reader client.Reader, name string) (podlimits.Namespace, error) {
	var out podlimits.Namespace
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return out, fmt.Errorf("reading the namespace %s: %w", name, err)
	}
	var quotas corev1.ResourceQuotaList
	if err := reader.List(ctx, &quotas, client.InNamespace(name)); err != nil {
		return out, fmt.Errorf("listing the quotas of the namespace %s: %w", name, err)
	}
	var ranges corev1.LimitRangeList
	if err := reader.List(ctx, &ranges, client.InNamespace(name)); err != nil {
		return out, fmt.Errorf("listing the limit ranges of the namespace %s: %w", name, err)
	}
	return podlimits.Namespace{Labels: namespace.Labels, Quotas: quotas.Items, Ranges: ranges.Items}, nil
}
