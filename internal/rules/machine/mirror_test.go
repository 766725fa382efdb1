package machine

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestDisksThatMoveWithTheGuest(t *testing.T) {
	const pinned = "registry/disk@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	image := func(reference string) v1.VolumeSource {
		return v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: reference}}
	}
	claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
	hard, drive := v1.DiskDevice{Disk: &v1.DiskTarget{}}, v1.DiskDevice{CDRom: &v1.CDRomTarget{}}
	const top, whole, stays = "top", "whole", ""
	for name, test := range map[string]struct {
		source v1.VolumeSource
		as     v1.DiskDevice
		want   string
	}{
		"an image by its digest: what was written": {image(pinned), hard, top},
		"an image by its tag: all of it":           {image("registry/disk:latest"), hard, whole},
		"an image that is only read":               {image(pinned), drive, stays},
		"an empty disk":                            {v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}, hard, whole},
		"what was written over a claim":            {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{PersistentVolumeClaim: &claim}}, hard, top},
		"a claim": {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: claim}}, hard, stays},
		"what Drydock makes, on a bus whose disks can be written to": {v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{}}, hard, whole},
		"what Drydock makes, and the guest only reads": {v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{}},
			v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}, stays},
		"what Drydock makes, in a drive": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, drive, stays},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: "root", VolumeSource: test.source}}}
			if got := Mirrors(&v1.VirtualMachineInstance{Spec: *spec}); len(got) != 0 {
				t.Errorf("a volume without a disk moves: %+v", got)
			}
			spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: test.as}}
			want := []Mirror{{Volume: "root", Node: "n-root", Copy: "m-root", Whole: test.want == whole}}
			if test.want == stays {
				want = nil
			}
			if got := Mirrors(&v1.VirtualMachineInstance{Spec: *spec}); !slices.Equal(got, want) {
				t.Errorf("%+v moves, want %+v", got, want)
			}
		})
	}
}

// TestADiskThatChangesItsClaimMoves: only the disks in the VMI's status that can move must be listed.
func TestADiskThatChangesItsClaimMoves(t *testing.T) {
	claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}
	onClaim := func(hot bool) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: claim, Hotpluggable: hot}}
	}
	for name, test := range map[string]struct {
		source v1.VolumeSource
		listed string
		want   bool
	}{
		"a claim":                  {onClaim(false), "root", true},
		"a DataVolume":             {v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "a"}}, "root", true},
		"another is listed":        {onClaim(false), "data", false},
		"one that is plugged":      {onClaim(true), "root", true},
		"another plugged one":      {onClaim(true), "data", false},
		"one that is in no claim":  {v1.VolumeSource{HostDisk: &v1.HostDisk{}}, "root", false},
		"a claim below an overlay": {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{PersistentVolumeClaim: &claim}}, "data", false},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: test.source}}
			vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
			vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: test.listed}}
			want := []Mirror{{Volume: "root", Node: "n-root", Copy: "m-root", Slice: "ms-root", Whole: true, Plugged: Hotpluggable(&vmi.Spec.Volumes[0])}}
			if got := slices.ContainsFunc(Mirrors(vmi), func(m Mirror) bool { return m == want[0] }); got != test.want {
				t.Errorf("%+v move", Mirrors(vmi))
			}
		})
	}
	if !IsMirrorCopy("ms-root") || !IsMirrorSlice("ms-root") || IsMirrorSlice("m-root") || !IsMirrorCopy("m-root") {
		t.Error("the nodes of copies are not known by their names")
	}
}

func TestNamesOfMirrors(t *testing.T) {
	long := strings.Repeat("v", 63)
	spec := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: long, VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}}}}
	spec.Domain.Devices.Disks = []v1.Disk{{Name: long}}
	m := Mirrors(&v1.VirtualMachineInstance{Spec: *spec})[0]
	if m.Node != NodeName(long) || len(m.Copy) > maxNodeName || m.Copy == m.Node || !IsMirrorCopy(m.Copy) || IsMirrorCopy(m.Node) {
		t.Errorf("the nodes are %q and %q", m.Node, m.Copy)
	}
	if job := m.Job("4d5e"); job != "mirror-4d5e-"+long || !IsMirrorJob(job) || IsMirrorJob("commit-4d5e") {
		t.Errorf("the job is %q", job)
	}
}
