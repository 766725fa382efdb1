package volumesnapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/snapshot"
)

// labeled is the value of the label by which a VolumeGroupSnapshot selects claims.
const labeled = "true"

// Labeled lists the claims that a VolumeGroupSnapshot with this label would select, in order.
func Labeled(ctx context.Context, reader client.Reader, namespace, label string) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{label: labeled}); err != nil {
		return nil, fmt.Errorf("listing the claims of the namespace %s with the label %s: %w", namespace, label, err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// Label adds and removes the label of claims. Claims that do not exist are skipped.
func Label(ctx context.Context, c client.Client, namespace string, l *snapshot.Labels) error {
	write := func(name string, value any) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{l.Key: value}}})
		if err != nil {
			return fmt.Errorf("writing the label %s as JSON: %w", l.Key, err)
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := c.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("changing the label %s of the claim %s/%s: %w", l.Key, namespace, name, err)
		}
		return nil
	}
	for _, name := range l.Put {
		if err := write(name, labeled); err != nil {
			return err
		}
	}
	for _, name := range l.Take {
		if err := write(name, nil); err != nil {
			return err
		}
	}
	return nil
}
