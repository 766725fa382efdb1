package volumeclaim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func persistent(name string, readOnly, hotpluggable bool) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly},
		Hotpluggable:                      hotpluggable,
	}}
}

func ephemeral(name string) v1.VolumeSource {
	return v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}

func dataVolume(name string) v1.VolumeSource {
	return v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name}}
}

func TestTheClaimOfAVolume(t *testing.T) {
	for name, c := range map[string]struct {
		source        v1.VolumeSource
		claim         Claim
		disk, written string
		nameless      bool
	}{
		"a claim":                               {source: persistent("data", false, false), claim: Claim{Name: "data"}, disk: "data", written: "data"},
		"a claim that is plugged":               {source: persistent("data", false, true), claim: Claim{Name: "data"}, disk: "data", written: "data"},
		"a claim for reading only":              {source: persistent("data", true, false), claim: Claim{Name: "data", ReadOnly: true}, disk: "data", written: ""},
		"a DataVolume's claim has its name":     {source: dataVolume("root"), claim: Claim{Name: "root"}, disk: "root", written: "root"},
		"a claim below an overlay":              {source: ephemeral("golden"), claim: Claim{Name: "golden", ReadOnly: true, Backing: true}, disk: "", written: ""},
		"an overlay that names nothing":         {source: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, claim: Claim{}, disk: "", written: ""},
		"a file of the node is no claim":        {source: v1.VolumeSource{HostDisk: &v1.HostDisk{Path: "/disk.img"}}, claim: Claim{}, disk: "", written: ""},
		"an image of a registry is no claim":    {source: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "disk"}}, claim: Claim{}, disk: "", written: ""},
		"an empty disk is no claim":             {source: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}, claim: Claim{}, disk: "", written: ""},
		"a claim without a name is one":         {source: persistent("", false, false), nameless: true},
		"a volume of no kind that is known":     {source: v1.VolumeSource{}, claim: Claim{}, disk: "", written: ""},
		"of two sources the first of the API's": {source: v1.VolumeSource{PersistentVolumeClaim: persistent("data", false, false).PersistentVolumeClaim, DataVolume: dataVolume("root").DataVolume}, claim: Claim{Name: "data"}, disk: "data", written: "data"},
	} {
		got, ok := Of(&c.source)
		if diff := cmp.Diff(c.claim, got); diff != "" || ok != (c.claim != Claim{} || c.nameless) {
			t.Errorf("%s: on a claim: %v %s", name, ok, diff)
		}
		if Name(&c.source) != c.claim.Name {
			t.Errorf("%s: named %q", name, Name(&c.source))
		}
		if disk, written := Disk(&c.source), Written(&c.source); disk != c.disk || written != c.written {
			t.Errorf("%s: the disk is on %q and writes to %q, want %q and %q", name, disk, written, c.disk, c.written)
		}
	}
}

func TestNames(t *testing.T) {
	for name, c := range map[string]struct {
		sources []v1.VolumeSource
		want    []string
	}{
		"no volume":                   {nil, nil},
		"none on a claim":             {[]v1.VolumeSource{{}, {EmptyDisk: &v1.EmptyDiskSource{}}}, nil},
		"in the order of the volumes": {[]v1.VolumeSource{dataVolume("z"), persistent("a", true, false), ephemeral("m")}, []string{"z", "a", "m"}},
		"each once":                   {[]v1.VolumeSource{dataVolume("a"), ephemeral("b"), persistent("a", false, true)}, []string{"a", "b"}},
	} {
		var volumes []v1.Volume
		for _, s := range c.sources {
			volumes = append(volumes, v1.Volume{VolumeSource: s})
		}
		if diff := cmp.Diff(c.want, Names(volumes)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestUsedBy(t *testing.T) {
	told := func(names ...string) v1.VirtualMachineInstanceStatus {
		status := v1.VirtualMachineInstanceStatus{VolumeStatus: []v1.VolumeStatus{{Name: "no-claim"}}}
		for _, name := range names {
			status.VolumeStatus = append(status.VolumeStatus, v1.VolumeStatus{PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: name}})
		}
		return status
	}
	of := func(sources ...v1.VolumeSource) (spec v1.VirtualMachineInstanceSpec) {
		for _, source := range sources {
			spec.Volumes = append(spec.Volumes, v1.Volume{VolumeSource: source})
		}
		return spec
	}
	for name, c := range map[string]struct {
		vmi            v1.VirtualMachineInstance
		used, inStatus []string
	}{
		"no volumes":                     {v1.VirtualMachineInstance{}, nil, nil},
		"not started":                    {v1.VirtualMachineInstance{Spec: of(dataVolume("a"), ephemeral("b"))}, []string{"a", "b"}, nil},
		"running":                        {v1.VirtualMachineInstance{Spec: of(dataVolume("a")), Status: told("a")}, []string{"a"}, []string{"a"}},
		"a volume on its way out":        {v1.VirtualMachineInstance{Spec: of(dataVolume("a")), Status: told("a", "gone")}, []string{"a", "gone"}, []string{"a", "gone"}},
		"a volume of the name elsewhere": {v1.VirtualMachineInstance{Spec: of(dataVolume("new")), Status: told("old")}, []string{"new", "old"}, []string{"old"}},
	} {
		if diff := cmp.Diff(c.used, UsedBy(&c.vmi)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(c.inStatus, InStatus(&c.vmi)); diff != "" {
			t.Errorf("%s: in its status: %s", name, diff)
		}
	}
}

func TestNamed(t *testing.T) {
	volumes := []v1.Volume{{Name: "root"}, {Name: "data"}}
	if v := Named(volumes, "data"); v != &volumes[1] {
		t.Errorf("data is %v, not the list's own", v)
	}
	if v := Named(volumes, "dat"); v != nil {
		t.Errorf("dat is %v", v)
	}
}

func TestInfo(t *testing.T) {
	if got := Info("gone", nil); got.ClaimName != "gone" || got.AccessModes != nil {
		t.Errorf("of a claim that does not exist: %+v", got)
	}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	for key, values := range map[string]map[string]bool{
		AnnPreallocation: {"true": true, "false": false},
		"user.custom.annotation/storage.preallocation":    {"true": true},
		"mine/storage.thick-provisioned":                  {"true": true, "yes": false},
		"storage.preallocation":                           {"true": false},
		"cdi.kubevirt.io/storage.preallocation.requested": {"true": false},
	} {
		for value, want := range values {
			claim.Annotations = map[string]string{key: value}
			if got := Info("c", claim); got.Preallocated != want || len(got.AccessModes) != 1 {
				t.Errorf("%s=%s: %+v", key, value, got)
			}
		}
	}
}
