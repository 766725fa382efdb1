package datavolume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/contracts/layout"
)

// A disk of the size that spec.storage asks for fits into its claim beside
// whatever share the file system takes, and not a mebibyte of the claim is more
// than that needs.
func TestTheDiskThatIsAskedForFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked := rapid.Int64Range(1, 64<<40).Draw(t, "size")
		percent := rapid.SampledFrom([]cdiv1.Percent{"0", "0.055", "0.06", "0.1", "0.5", "0.99"}).Draw(t, "overhead")
		config := ConfigOf(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: percent}}})
		dv := newDV(httpSource(), func(dv *cdiv1.DataVolume) {
			dv.Spec.Storage.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(asked, resource.BinarySI)
		})
		o := Observed{DataVolume: dv, Config: config}
		o.Claim = newClaim(o, methodImport)
		disk, fits := DiskSize(o), diskOf(o.Claim, config)
		// A size in bytes of many digits is not exact as a floating point number.
		if disk < asked || disk-asked >= mebibyte || fits < disk-mebibyte {
			t.Fatalf("asked for %d: the disk has %d, %d fit into the claim", asked, disk, fits)
		}
	})
}

func TestAClaimIsWhatTheDataVolumeAsksFor(t *testing.T) {
	block, filesystem := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	profile := &cdiv1.StorageProfile{Status: cdiv1.StorageProfileStatus{ClaimPropertySets: []cdiv1.ClaimPropertySet{
		{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: &block},
		{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &filesystem},
	}}}
	tests := map[string]struct {
		edit    func(*Observed)
		modes   []corev1.PersistentVolumeAccessMode
		mode    corev1.PersistentVolumeMode
		request string
	}{
		"nothing is known of the class": {
			func(*Observed) {}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, filesystem, "1090Mi",
		},
		"the class recommends": {
			func(o *Observed) { o.Profile = profile }, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, block, "1Gi",
		},
		"the recommendation that goes with what is asked for": {
			func(o *Observed) { o.Profile, o.DataVolume.Spec.Storage.VolumeMode = profile, &filesystem },
			[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, filesystem, "1090Mi",
		},
		"an archive is no disk, and takes what it is given": {
			func(o *Observed) { o.DataVolume.Spec.ContentType = cdiv1.DataVolumeArchive },
			[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, filesystem, "1Gi",
		},
		"a claim is taken by the letter": {
			func(o *Observed) {
				o.DataVolume.Spec.Storage, o.DataVolume.Spec.PVC = nil, &corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, VolumeMode: &filesystem,
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}},
				}
			},
			[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, filesystem, "3Gi",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: newDV(httpSource()), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil)}
			test.edit(&o)
			claim := newClaim(o, methodImport)
			if diff := cmp.Diff(test.modes, claim.Spec.AccessModes); diff != "" {
				t.Errorf("access modes differ:\n%s", diff)
			}
			size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			if *claim.Spec.VolumeMode != test.mode || size.Cmp(resource.MustParse(test.request)) != 0 || *claim.Spec.StorageClassName != "fast" {
				t.Errorf("%s, %s, class %s; want %s, %s, fast", *claim.Spec.VolumeMode, &size, *claim.Spec.StorageClassName, test.mode, test.request)
			}
		})
	}
}

func TestTheNoteOnCloningDoesNotReachTheClaim(t *testing.T) {
	dv := newDV(httpSource(), annotated(AnnCloneAllowed, "x"), annotated("mine", "kept"), annotated(AnnPopulatedFor, "disk"))
	claim := newClaim(Observed{DataVolume: dv, Config: ConfigOf(nil)}, methodImport)
	want := map[string]string{"mine": "kept", layout.AnnContentType: "kubevirt"}
	if diff := cmp.Diff(want, claim.Annotations); diff != "" {
		t.Error(diff)
	}
}

func TestTheDefaultClassForMachinesComesFirst(t *testing.T) {
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{annDefaultClass: "true"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "machines", Annotations: map[string]string{annDefaultVirtClass: "true"}}},
	}
	for _, test := range []struct {
		name *string
		n    int
		want string
	}{{nil, 3, "machines"}, {nil, 2, "default"}, {nil, 1, ""}, {new("plain"), 3, "plain"}, {new(""), 3, ""}, {new("none"), 3, ""}} {
		if got := className(Class(classes[:test.n], test.name)); got != test.want {
			t.Errorf("of the first %d classes: %q, want %q", test.n, got, test.want)
		}
	}
}
