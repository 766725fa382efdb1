package datavolume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

// The worker must be deleted, and Ready must stay true to the claim.
func TestWhatIsDoneAfterTheEnd(t *testing.T) {
	worker := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		pod := podOf(newDV(httpSource()), completed())
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	goes := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }
	for name, test := range map[string]struct {
		dv     *cdiv1.DataVolume
		worker *corev1.Pod
		claim  corev1.PersistentVolumeClaimPhase
		does   string
		ready  string
	}{
		"its worker goes":               {newDV(httpSource(), inPhase(cdiv1.Succeeded)), worker(), corev1.ClaimBound, "delete worker", "True"},
		"its worker is going":           {newDV(httpSource(), inPhase(cdiv1.Succeeded)), worker(goes), corev1.ClaimBound, "", "True"},
		"its worker is to stay":         {newDV(httpSource(), inPhase(cdiv1.Succeeded), annotated(AnnRetain, "true")), worker(), corev1.ClaimBound, "", "True"},
		"its worker is not to stay":     {newDV(httpSource(), inPhase(cdiv1.Succeeded), annotated(AnnRetain, "false")), worker(), corev1.ClaimBound, "delete worker", "True"},
		"its worker is gone":            {newDV(httpSource(), inPhase(cdiv1.Succeeded)), nil, corev1.ClaimBound, "", "True"},
		"its claim has lost its volume": {newDV(httpSource(), inPhase(cdiv1.Succeeded)), nil, corev1.ClaimLost, "", "False"},
		"its claim is gone":             {newDV(httpSource(), inPhase(cdiv1.Succeeded)), nil, "", "", "False"},
		"it has failed":                 {newDV(httpSource(), inPhase(cdiv1.Failed)), worker(), corev1.ClaimBound, "delete worker", ""},
		"it has failed without a claim": {newDV(httpSource(), inPhase(cdiv1.Failed)), nil, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: test.dv, Worker: test.worker, Config: ConfigOf(nil), Now: noon}
			if test.claim != "" {
				o.Claim = claimOf(o, test.claim)
			}
			p := decide(o)
			ready := ""
			if c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeReady); c != nil {
				ready = string(c.Status)
			}
			if actions(p) != test.does || ready != test.ready || p.Status.Phase != test.dv.Status.Phase {
				t.Errorf("does %q, Ready=%s in %s; want %q, Ready=%s in %s", actions(p), ready, p.Status.Phase, test.does, test.ready, test.dv.Status.Phase)
			}
		})
	}
}

func TestWhatBecomesOfADataVolumeWhoseClaimGoes(t *testing.T) {
	going := func(o *Observed) {
		o.Claim = claimOf(*o, corev1.ClaimBound)
		o.Claim.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	for name, test := range map[string]struct {
		phase cdiv1.DataVolumePhase
		edit  func(*Observed)
		want  cdiv1.DataVolumePhase
		does  string
	}{
		"it was bound and is gone":                      {cdiv1.PVCBound, func(*Observed) {}, cdiv1.Failed, ""},
		"it was never bound: another is made":           {cdiv1.Pending, func(*Observed) {}, cdiv1.Pending, "create claim"},
		"it waited for its consumer: another is made":   {cdiv1.WaitForFirstConsumer, func(*Observed) {}, cdiv1.WaitForFirstConsumer, "create claim"},
		"it was bound and is being deleted":             {cdiv1.PVCBound, going, cdiv1.Failed, ""},
		"it is being deleted before anything was begun": {cdiv1.Pending, going, cdiv1.Pending, ""},
		"its worker must let go of it": {cdiv1.Pending, func(o *Observed) {
			going(o)
			o.Worker = podOf(o.DataVolume, running())
		}, cdiv1.Pending, "delete worker"},
		"its worker is letting go of it": {cdiv1.Pending, func(o *Observed) {
			going(o)
			o.Worker = podOf(o.DataVolume, running())
			o.Worker.DeletionTimestamp = &metav1.Time{Time: noon}
		}, cdiv1.Pending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: newDV(httpSource(), inPhase(test.phase)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
			test.edit(&o)
			if p := decide(o); p.Status.Phase != test.want || actions(p) != test.does {
				t.Errorf("%s, does %q; want %s, %q", p.Status.Phase, actions(p), test.want, test.does)
			}
		})
	}
}

func TestWhichClassAClaimIsMadeFor(t *testing.T) {
	named := func(name string) func(*cdiv1.DataVolume) {
		return func(dv *cdiv1.DataVolume) { dv.Spec.Storage.StorageClassName = &name }
	}
	for name, test := range map[string]struct {
		dv    *cdiv1.DataVolume
		class *storagev1.StorageClass
		does  string
	}{
		"the one that is named":         {newDV(httpSource(), inPhase(cdiv1.Pending), named("fast")), class(storagev1.VolumeBindingImmediate), "create claim"},
		"the one that is named is none": {newDV(httpSource(), inPhase(cdiv1.Pending), named("fast")), nil, ""},
		"none, on purpose":              {newDV(httpSource(), inPhase(cdiv1.Pending), named("")), nil, "create claim"},
		"the usual one":                 {newDV(httpSource(), inPhase(cdiv1.Pending)), class(storagev1.VolumeBindingImmediate), "create claim"},
		"none is usual":                 {newDV(httpSource(), inPhase(cdiv1.Pending)), nil, "create claim"},
	} {
		p := decide(Observed{DataVolume: test.dv, Class: test.class, Config: ConfigOf(nil), Now: noon})
		if actions(p) != test.does {
			t.Errorf("%s: does %q, want %q", name, actions(p), test.does)
		}
		if made := p.CreateClaim; made != nil && test.class != nil && *made.Spec.StorageClassName != "fast" {
			t.Errorf("%s: the claim is of class %s", name, *made.Spec.StorageClassName)
		}
	}
}

// Only the driver's clone needs an unused source when its claim is made: a copy reads it later.
func TestWhoWaitsForTheSourcesWritersWithItsClaim(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*Observed)
		does string
	}{
		"the driver's clone of a source in use":             {func(o *Observed) { o.Source.UsedBy = "p" }, ""},
		"the driver's clone of a source that is not filled": {func(o *Observed) { o.Source.Unfilled = "image" }, ""},
		"the driver's clone of a source at rest":            {func(*Observed) {}, "create claim"},
		"a copy of a source in use":                         {func(o *Observed) { o.Source.UsedBy, o.Source.Volume = "p", nil }, "create claim"},
	} {
		o := cloning()
		test.edit(&o)
		if p := decide(o); actions(p) != test.does {
			t.Errorf("%s: does %q, want %q", name, actions(p), test.does)
		}
	}
}

func TestASourcePodThatEndedIsMadeAgain(t *testing.T) {
	for name, test := range map[string]struct {
		pod  func(*corev1.Pod)
		does string
	}{
		"it sends":                  {func(p *corev1.Pod) { p.Status = running() }, ""},
		"it was ended from outside": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "delete source"},
		"it was ended from outside, and is going": {func(p *corev1.Pod) {
			p.Status.Phase, p.DeletionTimestamp = corev1.PodFailed, &metav1.Time{Time: noon}
		}, ""},
	} {
		o := cloning()
		o.DataVolume.Status.Phase = cdiv1.CloneInProgress
		o.Source.Volume = nil
		o.Claim = claimOf(o, corev1.ClaimBound)
		o.Worker = podOf(o.DataVolume, running())
		o.SourcePod = &corev1.Pod{}
		test.pod(o.SourcePod)
		if p := decide(o); actions(p) != test.does {
			t.Errorf("%s: does %q, want %q", name, actions(p), test.does)
		}
	}
}

// The driver makes the volume before the claim is bound, and its work ends with the binding.
func TestTheDriverIsAtWorkBeforeTheClaimIsBound(t *testing.T) {
	clone := cloning()
	clone.DataVolume.Status.Phase = cdiv1.CloneScheduled
	clone.Claim = newClaim(clone, methodClone)
	clone.Claim.Status.Phase = corev1.ClaimPending
	restore := Observed{
		DataVolume: newDV(cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "snap"}}, inPhase(cdiv1.CloneScheduled)),
		Class:      class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon,
		Source: Source{SnapshotExists: true, SnapshotReady: true},
	}
	restore.Claim = newClaim(restore, methodRestore)
	restore.Claim.Status.Phase = corev1.ClaimPending
	imports := Observed{DataVolume: newDV(httpSource(), inPhase(cdiv1.Pending)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
	imports.Claim = claimOf(imports, corev1.ClaimPending)
	// No consumer will come whose node the driver could take, and the DataVolume asks not to wait.
	nobody := restore
	nobody.DataVolume = newDV(cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "snap"}}, inPhase(cdiv1.Pending), annotated(layout.AnnImmediate, ""))
	nobody.Class = class(storagev1.VolumeBindingWaitForFirstConsumer)
	nobody.Claim = newClaim(nobody, methodRestore)
	nobody.Claim.Status.Phase = corev1.ClaimPending
	for name, test := range map[string]struct {
		o    Observed
		want cdiv1.DataVolumePhase
		says string
	}{
		"a clone":    {clone, cdiv1.CSICloneInProgress, "True TransferRunning: the storage driver makes the volume"},
		"a snapshot": {restore, cdiv1.CloneFromSnapshotSourceInProgress, "True TransferRunning: the storage driver makes the volume"},
		"a snapshot for which no consumer is waited":    {nobody, cdiv1.Pending, "False : "},
		"an import waits, as its worker needs a volume": {imports, cdiv1.Pending, "False Pending: the claim is waiting for its volume"},
	} {
		status := decide(test.o).Status
		c := Condition(&cdiv1.DataVolume{Status: status}, cdiv1.DataVolumeRunning)
		if got := string(c.Status) + " " + c.Reason + ": " + c.Message; status.Phase != test.want || got != test.says {
			t.Errorf("%s: %s, Running=%s; want %s, Running=%s", name, status.Phase, got, test.want, test.says)
		}
	}
}

// After some phases the next step is due at once; the others end with somebody else's step.
func TestWhenThereIsMoreToDoAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		phase  cdiv1.DataVolumePhase
		worker *corev1.PodStatus
		want   cdiv1.DataVolumePhase
		again  bool
	}{
		"it is Pending now, and gets its claim":          {"", nil, cdiv1.Pending, true},
		"its claim is bound now, and it gets its worker": {cdiv1.Pending, nil, cdiv1.PVCBound, true},
		"its worker is scheduled now, and starts":        {cdiv1.PVCBound, &corev1.PodStatus{Phase: corev1.PodPending}, cdiv1.ImportScheduled, false},
		"its worker runs now":                            {cdiv1.ImportScheduled, new(running()), cdiv1.ImportInProgress, false},
		"its worker was scheduled, and runs already":     {cdiv1.PVCBound, new(running()), cdiv1.ImportScheduled, true},
		"its worker has completed, and goes":             {cdiv1.ImportInProgress, new(completed()), cdiv1.Succeeded, true},
		"its worker runs on":                             {cdiv1.ImportInProgress, new(running()), cdiv1.ImportInProgress, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: newDV(httpSource(), inPhase(test.phase)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
			o.Claim = claimOf(o, corev1.ClaimBound)
			if test.worker != nil {
				o.Worker = podOf(o.DataVolume, *test.worker)
			}
			if p := decide(o); p.Status.Phase != test.want || p.Again != test.again {
				t.Errorf("%s, again at once: %v; want %s, %v", p.Status.Phase, p.Again, test.want, test.again)
			}
		})
	}
}

// A worker must be asked for its progress while it runs in one phase; a change of phase must be written first.
func TestWhenAWorkerIsAskedHowFarItIs(t *testing.T) {
	for name, test := range map[string]struct {
		phase    cdiv1.DataVolumePhase
		worker   corev1.PodStatus
		progress *transfer.Progress
		want     Question
	}{
		"it runs":                      {cdiv1.ImportInProgress, running(), nil, NeedProgress},
		"it was asked":                 {cdiv1.ImportInProgress, running(), &transfer.Progress{}, ""},
		"it runs, which is to be said": {cdiv1.ImportScheduled, running(), nil, ""},
		"it has not started":           {cdiv1.ImportScheduled, corev1.PodStatus{Phase: corev1.PodPending}, nil, ""},
		"it has completed":             {cdiv1.ImportInProgress, completed(), nil, ""},
	} {
		o := Observed{DataVolume: newDV(httpSource(), inPhase(test.phase)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
		o.Confirmed, o.Progress = true, test.progress
		o.Claim, o.Worker = claimOf(o, corev1.ClaimBound), podOf(o.DataVolume, test.worker)
		if got := Decide(o).Needs; got != test.want {
			t.Errorf("%s: it needs %q, want %q", name, got, test.want)
		}
	}
}

// A worker that no connection reaches still works. The DataVolume must say why its progress is unknown and no upload
// arrives, after its network has had time to be made.
func TestAWorkerThatCanNotBeReachedSaysWhatMayKeepDrydockFromIt(t *testing.T) {
	for name, test := range map[string]struct {
		ran         time.Duration
		unreachable bool
		want        string
	}{
		"it has just begun":      {reachable, true, ""},
		"it has run for a while": {reachable + time.Second, true, "a NetworkPolicy of the namespace ns may keep Drydock from its pods"},
		"it answers":             {time.Hour, false, ""},
	} {
		status := running()
		status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(noon.Add(-test.ran))
		o := Observed{DataVolume: newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
		o.Confirmed, o.Progress, o.Unreachable = true, &transfer.Progress{}, test.unreachable
		o.Claim, o.Worker = claimOf(o, corev1.ClaimBound), podOf(o.DataVolume, status)
		p := Decide(o)
		c := lastCondition(p.Status.Conditions, cdiv1.DataVolumeRunning)
		if c == nil || c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, test.want) || (test.want == "") != (c.Message == "") {
			t.Errorf("%s: the condition Running is %+v, want %q", name, c, test.want)
		}
	}
}
