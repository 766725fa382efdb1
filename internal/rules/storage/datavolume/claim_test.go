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
	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// A disk of the size in spec.storage must fit into its claim whatever share the file system takes, and the claim must
// be less than a mebibyte larger than needed.
func TestTheDiskThatIsAskedForFits(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		asked := rapid.Int64Range(1, 64<<40).Draw(t, "size")
		percent := rapid.SampledFrom([]cdiv1.Percent{"0", "0.055", "0.06", "0.1", "0.5", "0.99"}).Draw(t, "overhead")
		config := ConfigOf(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: percent}}})
		dv := newDV(httpSource(), func(dv *cdiv1.DataVolume) {
			dv.Spec.Storage.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(asked, resource.BinarySI)
		})
		o := Observed{DataVolume: dv, Config: config}
		o.Claim = newClaim(o, methodImport)
		disk, fits := DiskSize(o), diskOf(o.Claim, config)
		// A floating point number can't hold a size in bytes with many digits exactly.
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
		"the ways of access that are asked for stay, and the class says the mode": {
			func(o *Observed) {
				o.Profile = profile.DeepCopy()
				o.Profile.Status.ClaimPropertySets[0].AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}
				o.DataVolume.Spec.Storage.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			},
			[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, block, "1Gi",
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
	dv := newDV(httpSource(), annotated(AnnCloneAllowed, "x"), annotated("mine", "kept"), annotated(AnnPopulatedFor, "disk"),
		annotated(layout.AnnContentType, "archive"))
	claim := newClaim(Observed{DataVolume: dv, Config: ConfigOf(nil)}, methodImport)
	want := map[string]string{"mine": "kept", layout.AnnContentType: "kubevirt"}
	if diff := cmp.Diff(want, claim.Annotations); diff != "" {
		t.Error(diff)
	}
}

// Only a worker allocates each block.
func TestAPreallocatedClaimSaysSo(t *testing.T) {
	preallocated := func(dv *cdiv1.DataVolume) { dv.Spec.Preallocation = new(true) }
	sparse := func(dv *cdiv1.DataVolume) { dv.Spec.Preallocation = new(false) }
	everywhere := ConfigOf(nil)
	everywhere.Preallocate = true
	for name, c := range map[string]struct {
		o    Observed
		how  method
		want bool
	}{
		"asked":              {Observed{DataVolume: newDV(httpSource(), preallocated), Config: ConfigOf(nil)}, methodImport, true},
		"not asked":          {Observed{DataVolume: newDV(httpSource()), Config: ConfigOf(nil)}, methodImport, false},
		"by the cluster":     {Observed{DataVolume: newDV(httpSource()), Config: everywhere}, methodImport, true},
		"except for this":    {Observed{DataVolume: newDV(httpSource(), sparse), Config: everywhere}, methodImport, false},
		"the driver's clone": {Observed{DataVolume: newDV(cloneOf("ns", "source"), preallocated), Config: ConfigOf(nil)}, methodClone, false},
	} {
		info := volumeclaim.Info("disk", newClaim(c.o, c.how))
		if info.Preallocated != c.want {
			t.Errorf("%s: %v", name, info.Preallocated)
		}
	}
}

func TestTheDefaultClassForMachinesComesFirst(t *testing.T) {
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{annDefaultClass: "true"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "machines", Annotations: map[string]string{AnnDefaultVirtClass: "true"}}},
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

func mebibytes(count int64) int64 { return count << 20 }

func TestASizeThatIsLeftOpenIsTheSources(t *testing.T) {
	file, device := corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	claim := func(mode corev1.PersistentVolumeMode, asked, has string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.VolumeMode = &mode
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asked)}
		if has != "" {
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
		}
		return c
	}
	for name, test := range map[string]struct {
		asked   string
		mode    corev1.PersistentVolumeMode
		source  *corev1.PersistentVolumeClaim
		restore int64
		want    int64
	}{
		// Of 2048 MiB a file system leaves 94 %.
		"the disk of a file system, as a device":     {"", device, claim(file, "2Gi", ""), 0, mebibytes(1925)},
		"the disk of a file system, in one":          {"", file, claim(file, "2Gi", ""), 0, mebibytes(2048)},
		"a device":                                   {"", device, claim(device, "2Gi", ""), 0, mebibytes(2048)},
		"a device that is larger than was asked for": {"", device, claim(device, "2Gi", "3Gi"), 0, mebibytes(3072)},
		"a device, in a file system":                 {"", file, claim(device, "2Gi", ""), 0, mebibytes(2179)},
		"what is asked for goes before the source":   {"1Gi", device, claim(device, "2Gi", ""), 0, mebibytes(1024)},
		"a snapshot":                                 {"", file, nil, mebibytes(5120), mebibytes(5120)},
		"what is asked for goes before the snapshot": {"1Gi", device, nil, mebibytes(512), mebibytes(1024)},
		"nothing is asked for, and nothing is known": {"", device, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dv := newDV(cloneOf("ns", "image"), func(dv *cdiv1.DataVolume) {
				dv.Spec.Storage.VolumeMode, dv.Spec.Storage.Resources.Requests = &test.mode, nil
				if test.asked != "" {
					dv.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(test.asked)}
				}
			})
			o := Observed{DataVolume: dv, Config: ConfigOf(nil), Source: Source{Claim: test.source, RestoreSize: test.restore}}
			size := newClaim(o, methodCopy).Spec.Resources.Requests[corev1.ResourceStorage]
			if size.Value() != test.want {
				t.Errorf("the claim asks for %d, want %d", size.Value(), test.want)
			}
		})
	}
}

func TestOtherRequestsOfAClaimStay(t *testing.T) {
	dv := newDV(httpSource(), func(dv *cdiv1.DataVolume) { dv.Spec.Storage.Resources.Requests["iops"] = resource.MustParse("5") })
	requests := newClaim(Observed{DataVolume: dv, Config: ConfigOf(nil)}, methodImport).Spec.Resources.Requests
	if iops := requests["iops"]; iops.Value() != 5 || len(requests) != 2 {
		t.Errorf("the claim asks for %v, want 5 iops beside its size", requests)
	}
}

func TestHowLargeTheDiskIs(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	asked := func(size string) *cdiv1.DataVolume {
		return newDV(httpSource(), func(dv *cdiv1.DataVolume) {
			dv.Spec.Storage.Resources.Requests = corev1.ResourceList{}
			if size != "" {
				dv.Spec.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
			}
		})
	}
	byTheLetter := newDV(httpSource(), func(dv *cdiv1.DataVolume) {
		dv.Spec.Storage, dv.Spec.PVC = nil, claim.Spec.DeepCopy()
	})
	for name, test := range map[string]struct {
		dv   *cdiv1.DataVolume
		want int64
	}{
		"as asked for":                   {asked("1Gi"), mebibytes(1024)},
		"to the next mebibyte":           {asked("1073741825"), mebibytes(1025)},
		"as much as fits":                {asked(""), mebibytes(1925)},
		"as much as fits, by the letter": {byTheLetter, mebibytes(1925)},
	} {
		if got := DiskSize(Observed{DataVolume: test.dv, Claim: claim, Config: ConfigOf(nil)}); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestOnlyAWholeRecommendationCounts(t *testing.T) {
	file, device := corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	many := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	alone := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	both := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}
	for name, test := range map[string]struct {
		spec, status []cdiv1.ClaimPropertySet
		mode         *corev1.PersistentVolumeMode
		modes        []corev1.PersistentVolumeAccessMode
		want         cdiv1.ClaimPropertySet
	}{
		"one without a mode":               {nil, []cdiv1.ClaimPropertySet{{AccessModes: many}}, nil, nil, cdiv1.ClaimPropertySet{AccessModes: once, VolumeMode: &file}},
		"one without ways of access":       {nil, []cdiv1.ClaimPropertySet{{VolumeMode: &device}}, nil, nil, cdiv1.ClaimPropertySet{AccessModes: once, VolumeMode: &file}},
		"one without a mode, one is asked": {nil, []cdiv1.ClaimPropertySet{{AccessModes: many}}, &file, nil, cdiv1.ClaimPropertySet{AccessModes: once, VolumeMode: &file}},
		"the mode that is asked for": {nil, []cdiv1.ClaimPropertySet{{AccessModes: once, VolumeMode: &device}, {AccessModes: many, VolumeMode: &file}}, &file, nil,
			cdiv1.ClaimPropertySet{AccessModes: many, VolumeMode: &file}},
		"the access that is asked for": {nil, []cdiv1.ClaimPropertySet{{AccessModes: once, VolumeMode: &file}, {AccessModes: many, VolumeMode: &device}}, nil, many,
			cdiv1.ClaimPropertySet{AccessModes: many, VolumeMode: &device}},
		"one of several ways of access is asked for": {nil, []cdiv1.ClaimPropertySet{{AccessModes: many, VolumeMode: &file}, {AccessModes: both, VolumeMode: &device}}, nil, once,
			cdiv1.ClaimPropertySet{AccessModes: both, VolumeMode: &device}},
		"several are asked for": {nil, []cdiv1.ClaimPropertySet{{AccessModes: many, VolumeMode: &device}, {AccessModes: once, VolumeMode: &file}}, nil, both,
			cdiv1.ClaimPropertySet{AccessModes: many, VolumeMode: &device}},
		"an access that no set has": {nil, []cdiv1.ClaimPropertySet{{AccessModes: many}, {AccessModes: many, VolumeMode: &device}, {AccessModes: both, VolumeMode: &file}}, nil, alone,
			cdiv1.ClaimPropertySet{AccessModes: many, VolumeMode: &device}},
		"a mode that no set has": {nil, []cdiv1.ClaimPropertySet{{AccessModes: many, VolumeMode: &device}, {AccessModes: once, VolumeMode: &device}}, &file, nil,
			cdiv1.ClaimPropertySet{AccessModes: many, VolumeMode: &device}},
		"the administrator's goes first": {[]cdiv1.ClaimPropertySet{{AccessModes: many, VolumeMode: &device}}, []cdiv1.ClaimPropertySet{{AccessModes: many, VolumeMode: &file}}, nil, nil,
			cdiv1.ClaimPropertySet{AccessModes: many, VolumeMode: &device}},
	} {
		o := Observed{Profile: &cdiv1.StorageProfile{Spec: cdiv1.StorageProfileSpec{ClaimPropertySets: test.spec}, Status: cdiv1.StorageProfileStatus{ClaimPropertySets: test.status}}}
		if diff := cmp.Diff(test.want, propertySet(o, test.modes, test.mode)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestWhichClassesWaitForTheirFirstConsumer(t *testing.T) {
	for name, test := range map[string]struct {
		class *storagev1.StorageClass
		want  bool
	}{
		"none":                  {nil, false},
		"one that says no":      {class(storagev1.VolumeBindingImmediate), false},
		"one that says yes":     {class(storagev1.VolumeBindingWaitForFirstConsumer), true},
		"one that says nothing": {&storagev1.StorageClass{}, false},
	} {
		if got := waits(test.class); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
