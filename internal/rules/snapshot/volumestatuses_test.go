package snapshot

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhichVolumesASnapshotHas(t *testing.T) {
	on := func(name, claim string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim}}}
	}
	volumes := []v1.Volume{on("a", "one"), {Name: "b"}, on("c", "two"), on("d", "three"), on("e", "four")}
	drivers := map[string]string{"one": "csi", "two": "", "three": "other", "": "csi"}
	got := Statuses(volumes, drivers, []Class{{"fast", "csi", false}})
	want := []v1.VolumeSnapshotStatus{
		{Name: "a", Enabled: true},
		{Name: "b", Reason: "only volumes on PersistentVolumeClaims are snapshotted"},
		{Name: "c", Reason: "the claim two is on no CSI volume"},
		{Name: "d", Reason: "there is no VolumeSnapshotClass for the driver other of the claim three"},
		{Name: "e", Reason: "the claim four does not exist"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := Statuses(nil, drivers, nil); got != nil {
		t.Errorf("without volumes: %+v", got)
	}
}

func TestSameEnabled(t *testing.T) {
	a := []v1.VolumeSnapshotStatus{{Name: "a", Enabled: true}, {Name: "b", Reason: "why"}}
	for name, c := range map[string]struct {
		b    []v1.VolumeSnapshotStatus
		want bool
	}{
		"another reason":  {[]v1.VolumeSnapshotStatus{{Name: "a", Enabled: true}, {Name: "b", Reason: "else"}}, true},
		"another answer":  {[]v1.VolumeSnapshotStatus{{Name: "a", Enabled: true}, {Name: "b", Enabled: true}}, false},
		"another volume":  {[]v1.VolumeSnapshotStatus{{Name: "a", Enabled: true}, {Name: "c", Reason: "why"}}, false},
		"one volume less": {a[:1], false},
	} {
		if got := SameEnabled(a, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
