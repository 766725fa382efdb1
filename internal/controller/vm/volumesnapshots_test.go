package vm

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type asked struct {
	client.Reader
	times int
	err   error
}

func (a *asked) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	a.times++
	if a.err == nil {
		class := unstructured.Unstructured{Object: map[string]any{"driver": "csi"}}
		class.SetName("fast")
		list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{class}
	}
	return a.err
}

func TestVolumeSnapshotClassesAreAskedForOnceInAWhile(t *testing.T) {
	began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	server, classes := &asked{err: errors.New("unreachable")}, &snapshotClasses{}
	if _, err := classes.list(t.Context(), server, began); err == nil {
		t.Error("an API server that can't be reached is taken for one without classes")
	}
	server.err = nil
	for _, step := range []struct {
		after time.Duration
		times int
	}{{0, 2}, {time.Minute - 1, 2}, {time.Minute, 3}} {
		got, err := classes.list(t.Context(), server, began.Add(step.after))
		if err != nil || len(got) != 1 || got[0].Name != "fast" || got[0].Driver != "csi" || server.times != step.times {
			t.Errorf("after %v: %+v, asked %d times, want %d (%v)", step.after, got, server.times, step.times, err)
		}
	}
}
