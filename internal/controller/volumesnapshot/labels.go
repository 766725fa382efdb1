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

	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/snapshot"
)

const labeled = "true"

// Labeled lists, in order, the claims that a VolumeGroupSnapshot would select.
func Labeled(ctx context.Context, reader client.Reader, namespace, label string) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	names, err = pagedlist.Collect(ctx, reader, list, func(claim *metav1.PartialObjectMetadata) (string, bool) {
		return claim.Name, true
	}, client.InNamespace(namespace), client.MatchingLabels{label: labeled})
	if err != nil {
		return nil, fmt.Errorf("listing the claims of the namespace %s with the label %s: %w", namespace, label, err)
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
