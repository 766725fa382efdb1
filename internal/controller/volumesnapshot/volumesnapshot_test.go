package volumesnapshot

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/snapshot"
)

func TestFacts(t *testing.T) {
	taken := metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	owner := []any{map[string]any{"uid": "c1", "controller": true}}
	for name, c := range map[string]struct {
		object map[string]any
		want   snapshot.VolumeSnapshot
	}{
		"one that is ready": {
			map[string]any{"metadata": map[string]any{"uid": "u1", "ownerReferences": owner}, "status": map[string]any{
				"creationTime": "2026-11-23T12:00:00Z", "readyToUse": true, "restoreSize": "1Gi",
			}},
			snapshot.VolumeSnapshot{UID: "u1", Owner: "c1", Taken: &taken, Ready: true, Size: new(resource.MustParse("1Gi"))},
		},
		"a new one": {map[string]any{}, snapshot.VolumeSnapshot{}},
		"one that has failed": {
			map[string]any{"status": map[string]any{"error": map[string]any{"message": strings.Repeat("ä", maxError)}}},
			snapshot.VolumeSnapshot{Error: strings.Repeat("ä", maxError/2)},
		},
		"one of another form": {
			map[string]any{"status": map[string]any{"creationTime": "yesterday", "readyToUse": "yes", "restoreSize": "much", "error": "no"}},
			snapshot.VolumeSnapshot{},
		},
	} {
		if diff := cmp.Diff(c.want, facts(&unstructured.Unstructured{Object: c.object})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// without is an API server that does not serve VolumeSnapshots.
type without struct{ client.Reader }

func (without) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: version.Group, Kind: "VolumeSnapshotClass"}}
}

func TestAClusterWithoutVolumeSnapshots(t *testing.T) {
	classes, served, err := Classes(t.Context(), without{})
	if len(classes) > 0 || served || err != nil {
		t.Errorf("it has the classes %v, serves them: %v (%v)", classes, served, err)
	}
}
