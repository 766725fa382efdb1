package datavolume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

// cloning is a DataVolume of 2 GiB that clones a claim of that size in its namespace, on storage whose driver clones.
func cloning() Observed {
	o := Observed{
		DataVolume: newDV(cloneOf("ns", "image"), inPhase(cdiv1.Pending)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon,
	}
	asksFor("2Gi", corev1.PersistentVolumeFilesystem)(&o)
	o.Source.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "image", Namespace: "ns"}}
	o.Source.Claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
	}
	o.Source.Volume = &corev1.PersistentVolume{}
	o.Source.Volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "local.csi.drydock.dev"}
	return o
}

// named is the name of a DataVolume and its claim.
var named = metav1.ObjectMeta{Name: "disk", Namespace: "ns"}

// asksFor makes the DataVolume request a claim by spec.pvc.
func asksFor(size string, mode corev1.PersistentVolumeMode) func(*Observed) {
	return func(o *Observed) {
		o.DataVolume.Spec.Storage = nil
		o.DataVolume.Spec.PVC = &corev1.PersistentVolumeClaimSpec{VolumeMode: &mode, Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		}}
	}
}

func ofDevice(o *Observed) { o.Source.Claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }

func TestWhichClonesTheDriverMakes(t *testing.T) {
	const file, device = corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	firstConsumer := func(o *Observed) { o.Class = class(storagev1.VolumeBindingWaitForFirstConsumer) }
	onANode := func(o *Observed) { o.Source.Volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{} }
	atOnce := func(o *Observed) { annotated(layout.AnnImmediate, "")(o.DataVolume) }
	of := func(driver string) func(*Observed) {
		return func(o *Observed) { o.Class.Provisioner, o.Source.Volume.Spec.CSI.Driver = driver, driver }
	}
	profile := func(spec, status *cdiv1.CDICloneStrategy) func(*Observed) {
		return func(o *Observed) {
			o.Profile = &cdiv1.StorageProfile{Spec: cdiv1.StorageProfileSpec{CloneStrategy: spec}, Status: cdiv1.StorageProfileStatus{CloneStrategy: status}}
		}
	}
	byDriver, byCopy := new(cdiv1.CloneStrategyCsiClone), new(cdiv1.CloneStrategyHostAssisted)
	for name, test := range map[string]struct {
		edits []func(*Observed)
		want  method
	}{
		"a file system of the same size":            {nil, methodClone},
		"a larger file system":                      {[]func(*Observed){asksFor("3Gi", file)}, methodCopy},
		"a smaller file system":                     {[]func(*Observed){asksFor("1Gi", file)}, methodCopy},
		"a device of the same size":                 {[]func(*Observed){asksFor("2Gi", device), ofDevice}, methodClone},
		"a larger device":                           {[]func(*Observed){asksFor("3Gi", device), ofDevice}, methodClone},
		"a smaller device":                          {[]func(*Observed){asksFor("1Gi", device), ofDevice}, methodCopy},
		"a device of a file system":                 {[]func(*Observed){asksFor("2Gi", device)}, methodCopy},
		"a file system of a device":                 {[]func(*Observed){ofDevice}, methodCopy},
		"an archive":                                {[]func(*Observed){func(o *Observed) { o.DataVolume.Spec.ContentType = cdiv1.DataVolumeArchive }}, methodCopy},
		"a source on one node, the clone anywhere":  {[]func(*Observed){firstConsumer, onANode}, methodCopy},
		"a source anywhere, the clone as well":      {[]func(*Observed){firstConsumer}, methodClone},
		"a clone that is wanted at once":            {[]func(*Observed){firstConsumer, atOnce}, methodCopy},
		"bound at once, from a source on one node":  {[]func(*Observed){onANode}, methodClone},
		"bound at once, as everything of the class": {[]func(*Observed){atOnce}, methodClone},
		"a driver of which nothing is known":        {[]func(*Observed){of("other")}, methodCopy},
		"a driver that the profile says clones":     {[]func(*Observed){of("other"), profile(byDriver, nil)}, methodClone},
		"a driver that is found to clone":           {[]func(*Observed){of("other"), profile(nil, byDriver)}, methodClone},
		"the profile says otherwise":                {[]func(*Observed){profile(byCopy, nil)}, methodCopy},
		"the administrator's word goes first":       {[]func(*Observed){profile(byCopy, byDriver)}, methodCopy},
		"a profile that says nothing":               {[]func(*Observed){profile(nil, nil)}, methodClone},
		"the source is elsewhere":                   {[]func(*Observed){func(o *Observed) { o.Source.Claim.Namespace = "golden" }}, methodCopy},
		"the source's volume is not known":          {[]func(*Observed){func(o *Observed) { o.Source.Volume = nil }}, methodCopy},
		"the source is no volume of a driver":       {[]func(*Observed){func(o *Observed) { o.Source.Volume.Spec.CSI = nil }}, methodCopy},
		"the source is another driver's":            {[]func(*Observed){func(o *Observed) { o.Source.Volume.Spec.CSI.Driver = "rbd.csi.ceph.com" }}, methodCopy},
		"the class is not known":                    {[]func(*Observed){func(o *Observed) { o.Class = nil }}, methodCopy},
		"the source is not known":                   {[]func(*Observed){func(o *Observed) { o.Source.Claim = nil }}, methodCopy},
		"the claim has begun as a copy":             {[]func(*Observed){func(o *Observed) { o.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: named} }}, methodCopy},
		"the claim has begun as a clone": {[]func(*Observed){of("other"), func(o *Observed) {
			o.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: named, Spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{}}}
		}}, methodClone},
		"the claim has begun as a clone, in the newer field": {[]func(*Observed){of("other"), func(o *Observed) {
			o.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: named, Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{}}}
		}}, methodClone},
	} {
		t.Run(name, func(t *testing.T) {
			o := cloning()
			for _, edit := range test.edits {
				edit(&o)
			}
			if got := methodOf(o); got != test.want {
				t.Errorf("it is filled by %s, want %s", got, test.want)
			}
		})
	}
}

func TestWhyASnapshotCannotBeRestored(t *testing.T) {
	of := func(namespace string) func(*Observed) {
		return func(o *Observed) { o.DataVolume.Spec.Source.Snapshot.Namespace = namespace }
	}
	size := func(asked string, restored int64) func(*Observed) {
		return func(o *Observed) {
			o.DataVolume.Spec.Storage.Resources.Requests = corev1.ResourceList{}
			if asked != "" {
				o.DataVolume.Spec.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(asked)
			}
			o.Source.RestoreSize = restored
		}
	}
	for name, test := range map[string]struct {
		edit      func(*Observed)
		want      string
		permanent bool
	}{
		"it can":                        {func(*Observed) {}, "", false},
		"its namespace is named":        {of("ns"), "", false},
		"it is in another namespace":    {of("golden"), "", false},
		"it does not exist":             {func(o *Observed) { o.Source.SnapshotExists = false }, "CloneSourceNotFound: the VolumeSnapshot ns/snap does not exist", false},
		"it is not ready":               {func(o *Observed) { o.Source.SnapshotReady = false }, "CloneSourceNotReady: the VolumeSnapshot ns/snap is not ready to use yet", false},
		"it is another driver's":        {func(o *Observed) { o.Source.SnapshotDriver = "x" }, "ErrIncompatiblePVC: the VolumeSnapshot ns/snap is of the driver x, the class fast of local.csi.drydock.dev: name a class of the snapshot's driver", true},
		"its driver is not known":       {func(o *Observed) { o.Source.SnapshotDriver = "" }, "", false},
		"the class is not known":        {func(o *Observed) { o.Class = nil }, "", false},
		"less is asked for than it has": {size("1Gi", 2<<30), "ErrIncompatiblePVC: the VolumeSnapshot ns/snap needs 2Gi, the DataVolume asks for 1Gi", true},
		"as much is asked for":          {size("2Gi", 2<<30), "", false},
		"less is asked for than the file system has that its disk is copied from": {func(o *Observed) {
			size("1Gi", 2<<30)(o)
			o.Source.SnapshotMode, o.DataVolume.Spec.Storage.VolumeMode = corev1.PersistentVolumeFilesystem, new(corev1.PersistentVolumeBlock)
		}, "", false},
		"less is asked for than the device has that is copied": {func(o *Observed) {
			size("1Gi", 2<<30)(o)
			o.Source.SnapshotMode = corev1.PersistentVolumeBlock
		}, "ErrIncompatiblePVC: the VolumeSnapshot ns/snap needs 2Gi, the DataVolume asks for 1Gi", true},
		"more is asked for":    {size("3Gi", 2<<30), "", false},
		"no size is asked for": {size("", 2<<30), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{
				DataVolume: newDV(cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "snap"}}),
				Class:      class(storagev1.VolumeBindingImmediate),
				Source:     Source{SnapshotExists: true, SnapshotReady: true, SnapshotDriver: "local.csi.drydock.dev"},
			}
			test.edit(&o)
			got, permanent := "", false
			if stop := unknownSource(o); stop != nil {
				got, permanent = stop.reason+": "+stop.message, stop.permanent
			}
			if got != test.want || permanent != test.permanent {
				t.Errorf("it says %q, for good %v; want %q, %v", got, permanent, test.want, test.permanent)
			}
		})
	}
}

// A clone of an unfinished source must be reported, with a warning only if somebody has to act.
func TestWhatPassesByItselfIsNoWarning(t *testing.T) {
	of := func(source cdiv1.DataVolumeSource) Observed {
		o := cloning()
		o.DataVolume = newDV(source, inPhase(cdiv1.Pending))
		asksFor("2Gi", corev1.PersistentVolumeFilesystem)(&o)
		return o
	}
	copied := func(o *Observed) {
		o.Source.Volume, o.DataVolume.Status.Phase = nil, cdiv1.CloneScheduled
		o.Claim = claimOf(*o, corev1.ClaimBound)
	}
	snapshot := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "snap"}}
	for name, test := range map[string]struct {
		source cdiv1.DataVolumeSource
		edit   func(*Observed)
		want   string
	}{
		"the source does not exist": {cloneOf("ns", "image"), func(o *Observed) { o.Source.Claim = nil }, "Warning CloneSourceNotFound"},
		"the source does not exist yet": {cloneOf("ns", "image"), func(o *Observed) {
			o.Source.Claim, o.DataVolume.CreationTimestamp = nil, metav1.NewTime(noon.Add(-arrival+time.Second))
		}, "Normal CloneSourceNotReady"},
		"the source has not come": {cloneOf("ns", "image"), func(o *Observed) {
			o.Source.Claim, o.DataVolume.CreationTimestamp = nil, metav1.NewTime(noon.Add(-arrival))
			o.DataVolume.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Reason: ReasonSourceNotReady}}
		}, "Warning CloneSourceNotFound"},
		"the source is not bound yet": {cloneOf("ns", "image"), func(o *Observed) { o.Source.Claim.Status.Phase = corev1.ClaimPending }, "Normal CloneSourceNotReady"},
		"the source is not filled yet": {cloneOf("ns", "image"), func(o *Observed) {
			copied(o)
			o.Source.Unfilled = "image"
		}, "Normal CloneSourceNotReady"},
		"the source's worker has filled it and ends": {cloneOf("ns", "image"), func(o *Observed) {
			copied(o)
			o.Source.UsedBy = "importer-image"
		}, "Normal CloneSourceNotReady"},
		"somebody uses the source": {cloneOf("ns", "image"), func(o *Observed) {
			copied(o)
			o.Source.UsedBy = "pod"
		}, "Warning CloneSourceInUse"},
		"the snapshot does not exist": {snapshot, func(*Observed) {}, "Warning CloneSourceNotFound"},
		"the snapshot does not exist yet": {snapshot, func(o *Observed) {
			o.DataVolume.CreationTimestamp = metav1.NewTime(noon)
		}, "Normal CloneSourceNotReady"},
		"the DataSource does not exist yet": {snapshot, func(o *Observed) {
			o.DataVolume.Spec.Source, o.DataVolume.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "image"}
			o.DataVolume.CreationTimestamp, o.Reference = metav1.NewTime(noon), ResolveReference(nil, "ns", "image")
		}, "Normal CloneSourceNotReady"},
		"the snapshot is not ready yet": {snapshot, func(o *Observed) { o.Source.SnapshotExists = true }, "Normal CloneSourceNotReady"},
		"the claim of before is being deleted": {httpSource(), func(o *Observed) {
			o.Claim = claimOf(*o, corev1.ClaimBound)
			o.Claim.DeletionTimestamp = &metav1.Time{Time: noon}
		}, "Normal Pending"},
		"a claim of somebody else's is there": {httpSource(), func(o *Observed) {
			o.Claim = claimOf(*o, corev1.ClaimBound)
			o.Claim.OwnerReferences = nil
		}, "Warning ErrResourceExists"},
		"the worker of before is being deleted": {httpSource(), func(o *Observed) {
			o.DataVolume.Status.Phase = cdiv1.ImportInProgress
			o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, running())
			o.Worker.DeletionTimestamp = &metav1.Time{Time: noon}
		}, "Normal WorkerGone"},
	} {
		t.Run(name, func(t *testing.T) {
			o := of(test.source)
			test.edit(&o)
			got := ""
			if e := decide(o).Event; e != nil {
				got = e.Type + " " + e.Reason
			}
			if got != test.want {
				t.Errorf("the event is %q, want %q", got, test.want)
			}
		})
	}
}

// The driver of a claim's source says nothing about the claim: only a snapshot's counts.
func TestWhatIsKnownOfASnapshotDoesNotStopTheCloneOfAClaim(t *testing.T) {
	o := cloning()
	o.Source.SnapshotDriver, o.Source.RestoreSize = "other", 5<<30
	if stop := unknownSource(o); stop != nil {
		t.Errorf("it says %+v", stop)
	}
}

func TestWhenWritersAreAskedFor(t *testing.T) {
	bound := func(o *Observed) {
		o.DataVolume.Status.Phase = cdiv1.CloneInProgress
		o.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: named, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
		o.Claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o.DataVolume, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	}
	copied := func(o *Observed) { o.Source.Volume = nil }
	worker := func(o *Observed) { o.Worker = podOf(o.DataVolume, running()) }
	sends := func(o *Observed) { o.SourcePod = &corev1.Pod{Status: running()} }
	for name, test := range map[string]struct {
		edits []func(*Observed)
		want  bool
	}{
		"the driver's clone is to be made": {nil, true},
		"the driver's clone is made": {[]func(*Observed){bound, func(o *Observed) {
			o.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{}
		}}, false},
		"the claim of a copy is to be made":  {[]func(*Observed){copied}, false},
		"who fills the copy is to be made":   {[]func(*Observed){copied, bound}, true},
		"who reads the source is to be made": {[]func(*Observed){copied, bound, worker}, true},
		"the copy is under way":              {[]func(*Observed){copied, bound, worker, sends}, false},
		"an import reads nobody else's disk": {[]func(*Observed){func(o *Observed) { o.DataVolume.Spec.Source = new(httpSource()) }}, false},
	} {
		o := cloning()
		o.Confirmed, o.WarningAsked, o.UsersAsked, o.Progress = true, true, true, &transfer.Progress{}
		for _, edit := range test.edits {
			edit(&o)
		}
		if got := Decide(o).Needs; (got == NeedWriters) != test.want {
			t.Errorf("%s: it needs %q", name, got)
		}
		if o.Source.WritersAsked = true; Decide(o).Needs != "" {
			t.Errorf("%s: it needs %q after that", name, Decide(o).Needs)
		}
	}
}

func TestWhatADataVolumeReads(t *testing.T) {
	ref := &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian", Namespace: new("golden")}
	for name, test := range map[string]struct {
		spec cdiv1.DataVolumeSpec
		want string
	}{
		"nothing":           {cdiv1.DataVolumeSpec{}, "//"},
		"the web":           {cdiv1.DataVolumeSpec{Source: new(httpSource())}, "//"},
		"a claim":           {cdiv1.DataVolumeSpec{Source: new(cloneOf("golden", "image"))}, "golden/pvc/image"},
		"a claim beside it": {cdiv1.DataVolumeSpec{Source: new(cloneOf("", "image"))}, "ns/pvc/image"},
		"a snapshot":        {cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "s"}}}, "golden/snapshot/s"},
		"a DataSource":      {cdiv1.DataVolumeSpec{SourceRef: ref}, "golden/" + kindSourceRef + "/debian"},
		"a DataSource beside it": {cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian"}},
			"ns/sourceRef/debian"},
		"a DataSource whose namespace is empty": {cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian", Namespace: new("")}},
			"ns/sourceRef/debian"},
		"what a DataSource was found to be of": {cdiv1.DataVolumeSpec{SourceRef: ref, Source: new(cloneOf("golden", "image"))}, "golden/pvc/image"},
	} {
		namespace, kind, object := SourceOf(&test.spec, "ns")
		if got := strings.Join([]string{namespace, kind, object}, "/"); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestWorkersAreNamedForWhatTheyDo(t *testing.T) {
	for name, test := range map[string]struct {
		spec cdiv1.DataVolumeSpec
		want string
	}{
		"an import":    {cdiv1.DataVolumeSpec{Source: new(httpSource())}, "importer-disk"},
		"no source":    {cdiv1.DataVolumeSpec{}, "importer-disk"},
		"an upload":    {cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}}, "cdi-upload-disk"},
		"a copy":       {cdiv1.DataVolumeSpec{Source: new(cloneOf("golden", "image"))}, "cdi-upload-disk"},
		"a snapshot":   {cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "snap"}}}, "cdi-upload-disk"},
		"a DataSource": {cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{}}, "cdi-upload-disk"},
	} {
		if got := WorkerName(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: test.spec}); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
