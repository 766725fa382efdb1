package datavolume

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/object/objectevent"
)

const file, device = corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock

// ofSnapshot is a DataVolume that requests a claim of a mode from a snapshot of 1 GiB, by spec.storage or by spec.pvc.
func ofSnapshot(namespace string, taken, wanted corev1.PersistentVolumeMode, byPVC bool) Observed {
	o := Observed{
		DataVolume: newDV(cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "snap"}}),
		Class:      class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon,
		Source: Source{SnapshotExists: true, SnapshotReady: true, SnapshotDriver: "local.csi.drydock.dev", SnapshotMode: taken, RestoreSize: 1 << 30},
	}
	o.DataVolume.Spec.Storage = &cdiv1.StorageSpec{VolumeMode: &wanted}
	if byPVC {
		asksFor("2Gi", wanted)(&o)
	}
	annotated(AnnCloneAllowed, AllowedSource(o.DataVolume))(o.DataVolume)
	return o
}

// cluster executes plans, and then lets the driver and the kubelet act.
type cluster struct {
	Observed
	did    []string
	phases []cdiv1.DataVolumePhase
}

func (c *cluster) round() Plan {
	p := decide(c.Observed)
	if p.AddFinalizer {
		c.note("finalizer")
		c.DataVolume.Finalizers = []string{Finalizer}
		return p
	}
	if p.CreateClaim != nil {
		c.note("claim")
		c.Claim = p.CreateClaim
		c.Claim.Status.Phase = corev1.ClaimBound
	}
	if p.CreateRestored != nil {
		c.note("restored in %s as %s", p.CreateRestored.Namespace, *p.CreateRestored.Spec.VolumeMode)
		c.Restored = p.CreateRestored
		c.Restored.Status.Phase = corev1.ClaimPending
	}
	if p.CreateWorker != nil {
		c.note("worker")
		c.Worker = podOf(c.DataVolume, running())
		c.Worker.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if p.CreateSourcePod != nil {
		c.note("reader of %s in %s", p.CreateSourcePod.Claim.Name, p.CreateSourcePod.Namespace)
		c.SourcePod = &corev1.Pod{Status: running()}
	}
	c.DataVolume.Status = p.Status
	if n := len(c.phases); n == 0 || c.phases[n-1] != p.Status.Phase {
		c.phases = append(c.phases, p.Status.Phase)
	}
	c.remove(p)
	return p
}

func (c *cluster) remove(p Plan) {
	if p.DeleteWorker {
		c.note("no worker")
		c.Worker = nil
	}
	if p.DeleteSourcePod {
		c.note("no reader")
		c.SourcePod = nil
	}
	if p.DeleteRestored {
		c.note("nothing restored")
		c.Restored = nil
	}
	if p.RemoveFinalizer {
		c.note("no finalizer")
		c.DataVolume.Finalizers = nil
	}
}

func (c *cluster) note(format string, args ...any) {
	c.did = append(c.did, fmt.Sprintf(format, args...))
}

// settle repeats rounds until one does nothing.
func (c *cluster) settle() {
	for range 30 {
		before := fmt.Sprint(c.did, c.phases)
		c.round()
		if fmt.Sprint(c.did, c.phases) == before {
			return
		}
	}
}

// The driver restores a snapshot only to its own mode and namespace. Any other claim must be filled with a copy of a
// restored claim, of which nothing may be left.
func TestASnapshotOfAnotherModeOrNamespaceIsCopied(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	copied := func(namespace string, mode corev1.PersistentVolumeMode) string {
		made := fmt.Sprintf("restored in %s as %s, worker, reader of %s-snapshot in %s, no worker, no reader, nothing restored", namespace, mode, uid, namespace)
		if namespace != "ns" {
			made = "finalizer, " + made + ", no finalizer"
		}
		return "claim, " + made
	}
	for name, test := range map[string]struct {
		namespace     string
		taken, wanted corev1.PersistentVolumeMode
		want          string
	}{
		"a file system of a file system":                    {"ns", file, file, "claim"},
		"a device of a device":                              {"ns", device, device, "claim"},
		"a file system of a device":                         {"ns", device, file, copied("ns", device)},
		"a device of a file system":                         {"ns", file, device, copied("ns", file)},
		"of which mode it was is not known":                 {"ns", "", device, "claim"},
		"a file system of one elsewhere":                    {"golden", file, file, copied("golden", file)},
		"a file system of a device elsewhere":               {"golden", device, file, copied("golden", device)},
		"a device of what is not known, which is elsewhere": {"golden", "", device, copied("golden", device)},
	} {
		for _, byPVC := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by pvc: %v", name, byPVC), func(t *testing.T) {
				c := cluster{Observed: ofSnapshot(test.namespace, test.taken, test.wanted, byPVC)}
				c.settle()
				if c.Restored != nil {
					if c.Worker != nil {
						t.Error("the worker does not wait for the claim that it copies")
					}
					c.Restored.Status.Phase = corev1.ClaimBound
					c.settle()
					c.Worker.Status = completed()
					c.settle()
				}
				if got := strings.Join(c.did, ", "); got != test.want {
					t.Errorf("it does %s; want %s", got, test.want)
				}
				path := methodOf(Observed{DataVolume: c.DataVolume, Claim: c.Claim, Source: c.Source, Class: c.Class, Config: c.Config}).path(false)
				if !slices.Equal(c.phases, path) {
					t.Errorf("its phases are %v, want %v", c.phases, path)
				}
			})
		}
	}
}

// A claim that is filled with a copy must have room for the disk.
func TestHowLargeTheCopyOfASnapshotIs(t *testing.T) {
	for name, test := range map[string]struct {
		taken, wanted corev1.PersistentVolumeMode
		want          int64
	}{
		"a file system of a device": {device, file, withOverhead(1<<30, ConfigOf(nil).overheadOf("fast"))},
		"a device of a file system": {file, device, 1 << 30},
		"as it was":                 {file, file, 1 << 30},
	} {
		o := ofSnapshot("golden", test.taken, test.wanted, false)
		claim := newClaim(o, methodOf(o))
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if size.Value() != test.want || claim.Spec.DataSource != nil {
			t.Errorf("%s: %d bytes, restored from %v; want %d bytes of a copy", name, size.Value(), claim.Spec.DataSource, test.want)
		}
		o.Claim = claim
		restored := newRestored(o)
		size = restored.Spec.Resources.Requests[corev1.ResourceStorage]
		if size.Value() != 1<<30 || restored.Spec.DataSource.Name != "snap" {
			t.Errorf("%s: the snapshot is restored to %+v", name, restored.Spec)
		}
	}
}

// A snapshot of another namespace must be copied only with the right to clone from there.
func TestACopyOfASnapshotNeedsTheRightToClone(t *testing.T) {
	o := ofSnapshot("golden", file, file, false)
	o.DataVolume.Status.Phase = cdiv1.Pending
	o.DataVolume.Annotations = nil
	if p := decide(o); p.Status.Phase != cdiv1.Failed || actions(p) != "" {
		t.Errorf("without the right it is %s and does %q", p.Status.Phase, actions(p))
	}
}

// The restored claim can be missing, another's, or without a volume, at any moment.
func TestWhatACopyOfASnapshotWaitsFor(t *testing.T) {
	now := metav1.NewTime(noon)
	phase := func(p corev1.PersistentVolumeClaimPhase) func(*Observed) {
		return func(o *Observed) { o.Restored.Status.Phase = p }
	}
	waiting := func(o *Observed) {
		o.Class = class(storagev1.VolumeBindingWaitForFirstConsumer)
		phase(corev1.ClaimPending)(o)
	}
	selected := func(o *Observed) {
		waiting(o)
		metav1.SetMetaDataAnnotation(&o.Restored.ObjectMeta, annSelectedNode, "node")
		o.Warning = &objectevent.Warning{Reason: "ProvisioningFailed", Message: "no room"}
	}
	workers := func(o *Observed) {
		o.Worker, o.SourcePod = podOf(o.DataVolume, running()), &corev1.Pod{}
	}
	for name, test := range map[string]struct {
		edits []func(*Observed)
		does  string
		says  string
	}{
		"it is restored":               {nil, "create worker, create source", ""},
		"it has no volume yet":         {[]func(*Observed){phase(corev1.ClaimPending)}, "", "the VolumeSnapshot is being restored to the claim ns/11111111-2222-3333-4444-555555555555-snapshot, from which it is copied"},
		"its provisioner says why":     {[]func(*Observed){phase(corev1.ClaimPending), func(o *Observed) { o.Warning = &objectevent.Warning{Reason: "ProvisioningFailed", Message: "no room"} }}, "", "no room"},
		"it waits for its reader":      {[]func(*Observed){waiting}, "create worker, create source", ""},
		"its reader gets no volume":    {[]func(*Observed){selected, workers}, "", "no room"},
		"it is somebody else's":        {[]func(*Observed){func(o *Observed) { o.Restored.Annotations = nil }}, "", "the claim ns/11111111-2222-3333-4444-555555555555-snapshot exists and is not of this DataVolume: delete it"},
		"it has other content":         {[]func(*Observed){func(o *Observed) { o.Restored.Spec.DataSource.Kind = "PersistentVolumeClaim" }}, "", "the claim ns/11111111-2222-3333-4444-555555555555-snapshot exists and is not of this DataVolume: delete it"},
		"it has no source":             {[]func(*Observed){func(o *Observed) { o.Restored.Spec.DataSource = nil }}, "", "the claim ns/11111111-2222-3333-4444-555555555555-snapshot exists and is not of this DataVolume: delete it"},
		"it is being deleted":          {[]func(*Observed){func(o *Observed) { o.Restored.DeletionTimestamp = &now }}, "", "the claim ns/11111111-2222-3333-4444-555555555555-snapshot, from which the VolumeSnapshot is copied, is being deleted; another is made when it is gone"},
		"it is deleted while read":     {[]func(*Observed){workers, func(o *Observed) { o.Restored.DeletionTimestamp = &now }}, "", ""},
		"it is gone":                   {[]func(*Observed){func(o *Observed) { o.Restored = nil }}, "create restored", ""},
		"it is gone with the snapshot": {[]func(*Observed){func(o *Observed) { o.Restored, o.Source.SnapshotExists = nil, false }}, "", "the VolumeSnapshot ns/snap does not exist"},
		"the snapshot is gone":         {[]func(*Observed){func(o *Observed) { o.Source.SnapshotExists = false }}, "create worker, create source", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := ofSnapshot("ns", file, device, true)
			o.DataVolume.Status.Phase = cdiv1.PVCBound
			o.Claim = claimOf(o, corev1.ClaimBound)
			o.Restored = newRestored(o)
			o.Restored.Status.Phase, o.Restored.CreationTimestamp = corev1.ClaimBound, metav1.NewTime(noon.Add(-time.Minute))
			for _, edit := range test.edits {
				edit(&o)
			}
			p := decide(o)
			got := strings.Split(actions(p), ", ")
			slices.Sort(got)
			want := strings.Split(test.does, ", ")
			slices.Sort(want)
			c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeRunning)
			if !slices.Equal(got, want) || test.says != "" && c.Message != test.says {
				t.Errorf("it does %q and says %q; want %q and %q", got, c.Message, want, test.says)
			}
		})
	}
}

// The finalizer must stay until nothing is left in the other namespace.
func TestADataVolumeThatGoesTakesWhatWasRestoredAlong(t *testing.T) {
	o := ofSnapshot("golden", file, device, true)
	o.DataVolume.Finalizers, o.DataVolume.DeletionTimestamp = []string{Finalizer}, &metav1.Time{Time: noon}
	o.DataVolume.Status.Phase = cdiv1.CloneInProgress
	o.Claim = claimOf(o, corev1.ClaimBound)
	again := func() cluster {
		c := cluster{Observed: o}
		c.DataVolume, c.Restored = o.DataVolume.DeepCopy(), newRestored(o)
		return c
	}
	c := again()
	c.SourcePod = &corev1.Pod{}
	c.settle()
	if got := strings.Join(c.did, ", "); got != "no reader, nothing restored, no finalizer" {
		t.Errorf("it does %s", got)
	}
	c = again()
	c.Restored.DeletionTimestamp = &metav1.Time{Time: noon}
	c.settle()
	if got := strings.Join(c.did, ", "); got != "" {
		t.Errorf("while the claim goes it does %s", got)
	}
	c = again()
	c.Restored.Annotations[AnnTarget] = "ns/other"
	c.settle()
	if got := strings.Join(c.did, ", "); got != "no finalizer" {
		t.Errorf("beside a claim of somebody else's it does %s", got)
	}
}

func TestWhichClaimMayBeRestored(t *testing.T) {
	elsewhere := newDV(httpSource())
	elsewhere.Spec.Source, elsewhere.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian", Namespace: new("golden")}
	const name = "11111111-2222-3333-4444-555555555555-snapshot"
	for _, test := range []struct {
		dv   *cdiv1.DataVolume
		want string
	}{
		{newDV(httpSource()), "/"},
		{newDV(cloneOf("golden", "image")), "/"},
		{ofSnapshot("", file, file, true).DataVolume, "ns/" + name},
		{ofSnapshot("golden", file, file, true).DataVolume, "golden/" + name},
		{elsewhere, "golden/" + name},
	} {
		if got := RestoredKey(test.dv).String(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.dv.Spec, got, test.want)
		}
	}
}
