package volumesnapshot

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/drydock/internal/rules/snapshot"
)

// fields is an object's fields, as YAML would have them.
type fields = map[string]any

func object(f fields) *unstructured.Unstructured {
	if f == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: f}
}

func TestGroupFacts(t *testing.T) {
	taken := metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	ours := fields{"uid": "g1", "annotations": fields{snapshot.TokenAnnotation: "t1"}, "ownerReferences": []any{fields{"uid": "c1", "controller": true}}}
	known := snapshot.Group{Owner: "c1", Token: "t1"}
	spec := fields{"driver": "csi", "volumeGroupSnapshotRef": fields{"uid": "g1"}}
	pairs := []any{fields{"volumeHandle": "v1", "snapshotHandle": "s1"}, fields{"volumeHandle": "v2", "snapshotHandle": "s2"}}
	cuts := []snapshot.GroupCut{{Handle: "v1"}, {Handle: "v2"}}
	with := func(change func(*snapshot.Group)) snapshot.Group {
		g := known
		change(&g)
		return g
	}
	for name, c := range map[string]struct {
		group, content fields
		want           snapshot.Group
		snapshots      []string
	}{
		"a new one": {fields{"metadata": ours}, nil, known, nil},
		"one that is taken, of v1beta1": {fields{"metadata": ours}, fields{"spec": spec, "status": fields{"creationTime": "2026-11-23T12:00:00Z", "volumeSnapshotHandlePairList": pairs}},
			with(func(g *snapshot.Group) { g.Driver, g.Taken, g.Cuts = "csi", &taken, cuts }), []string{"s1", "s2"}},
		"of v1": {fields{"metadata": ours}, fields{"spec": spec, "status": fields{"creationTime": "2026-11-23T12:00:00Z", "volumeSnapshotInfoList": pairs}},
			with(func(g *snapshot.Group) { g.Driver, g.Taken, g.Cuts = "csi", &taken, cuts }), []string{"s1", "s2"}},
		"one without volumes": {fields{"metadata": ours}, fields{"spec": spec, "status": fields{"creationTime": "2026-11-23T12:00:00Z"}},
			with(func(g *snapshot.Group) { g.Driver = "csi" }), nil},
		"one whose user says that it is taken": {fields{"metadata": ours, "status": fields{"creationTime": "2026-11-23T12:00:00Z", "readyToUse": true}}, nil, known, nil},
		"one that is bound to another's content": {fields{"metadata": ours}, fields{"spec": fields{"driver": "csi", "volumeGroupSnapshotRef": fields{"uid": "g2"}},
			"status": fields{"creationTime": "2026-11-23T12:00:00Z", "volumeSnapshotHandlePairList": pairs}}, known, nil},
		"one without a UID": {fields{}, fields{"spec": fields{"driver": "csi"}, "status": fields{"creationTime": "2026-11-23T12:00:00Z", "volumeSnapshotHandlePairList": pairs}}, snapshot.Group{}, nil},
		"one that has failed": {fields{"metadata": ours, "status": fields{"error": fields{"message": "no"}}}, fields{"spec": spec, "status": fields{"error": fields{"message": "not that"}}},
			with(func(g *snapshot.Group) { g.Driver, g.Error = "csi", "no" }), nil},
		"one whose content has": {fields{"metadata": ours}, fields{"spec": spec, "status": fields{"error": fields{"message": "no"}}},
			with(func(g *snapshot.Group) { g.Driver, g.Error = "csi", "no" }), nil},
		"one that is being deleted": {fields{"metadata": fields{"deletionTimestamp": "2026-11-23T12:00:00Z"}}, nil, snapshot.Group{Ends: true}, nil},
		"one of another form": {fields{"metadata": ours}, fields{"spec": spec, "status": fields{"creationTime": "2026-11-23T12:00:00Z", "volumeSnapshotHandlePairList": []any{"x", fields{"volumeHandle": int64(1)}}}},
			with(func(g *snapshot.Group) {
				g.Driver, g.Taken, g.Cuts = "csi", &taken, []snapshot.GroupCut{{}, {}}
			}), []string{"", ""}},
	} {
		got, snapshots := groupFacts(object(c.group), object(c.content))
		if diff := cmp.Diff(&c.want, got); diff != "" || !slices.Equal(snapshots, c.snapshots) {
			t.Errorf("%s: snapshots %q, %s", name, snapshots, diff)
		}
	}
}

func TestBoundSnapshot(t *testing.T) {
	member := object(fields{"metadata": fields{"uid": "u1"}})
	content := func(uid, driver string) *unstructured.Unstructured {
		return object(fields{"spec": fields{"driver": driver, "volumeSnapshotRef": fields{"uid": uid}}, "status": fields{"snapshotHandle": "s1"}})
	}
	for name, c := range map[string]struct {
		member, content *unstructured.Unstructured
		want            string
	}{
		"its own":              {member, content("u1", "csi"), "s1"},
		"another one's":        {member, content("u2", "csi"), ""},
		"of another driver":    {member, content("u1", "other"), ""},
		"nobody's":             {object(fields{}), content("", "csi"), ""},
		"one without a handle": {member, object(fields{"spec": fields{"driver": "csi", "volumeSnapshotRef": fields{"uid": "u1"}}}), ""},
	} {
		if got := boundSnapshot(c.member, c.content, "csi"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
