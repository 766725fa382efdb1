package datavolume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/objectevent"
)

func TestWhoseEventsAreAskedFor(t *testing.T) {
	const claim, worker, nobody = "the claim's", "the worker's", "nobody's"
	unbound := func(age time.Duration) func(*Observed) {
		return func(o *Observed) {
			o.Claim = claimOf(*o, corev1.ClaimPending)
			o.Claim.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		}
	}
	bound := func(o *Observed) {
		unbound(time.Hour)(o)
		o.Claim.Status.Phase = corev1.ClaimBound
	}
	works := func(age time.Duration, edits ...func(*corev1.Pod)) func(*Observed) {
		return func(o *Observed) {
			o.Worker = podOf(o.DataVolume, corev1.PodStatus{Phase: corev1.PodPending})
			o.Worker.Spec.NodeName, o.Worker.CreationTimestamp = "node", metav1.NewTime(noon.Add(-age))
			for _, edit := range edits {
				edit(o.Worker)
			}
		}
	}
	waiting := func(o *Observed) { o.Class = class(storagev1.VolumeBindingWaitForFirstConsumer) }
	for name, test := range map[string]struct {
		phase cdiv1.DataVolumePhase
		edits []func(*Observed)
		want  string
	}{
		"the claim is not bound":                 {cdiv1.Pending, []func(*Observed){unbound(3 * time.Second)}, claim},
		"the claim is new":                       {cdiv1.Pending, []func(*Observed){unbound(3*time.Second - 1)}, nobody},
		"there is no claim":                      {cdiv1.Pending, nil, nobody},
		"the claim is bound, and no worker made": {cdiv1.PVCBound, []func(*Observed){bound}, nobody},
		"the worker does not start":              {cdiv1.ImportScheduled, []func(*Observed){bound, works(3*time.Second + 1)}, worker},
		"the worker is new":                      {cdiv1.ImportScheduled, []func(*Observed){bound, works(3 * time.Second)}, nobody},
		"the worker has no node":                 {cdiv1.ImportScheduled, []func(*Observed){bound, works(time.Hour, func(p *corev1.Pod) { p.Spec.NodeName = "" })}, nobody},
		"the worker has started":                 {cdiv1.ImportInProgress, []func(*Observed){bound, works(time.Hour, func(p *corev1.Pod) { p.Status = running() })}, nobody},
		"the worker's status says why it does not start": {cdiv1.ImportScheduled, []func(*Observed){bound, works(time.Hour, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
		})}, nobody},
		"the worker is there, the claim is not bound": {cdiv1.Pending, []func(*Observed){unbound(time.Hour), works(0)}, nobody},
		"the claim waits for its first consumer":      {cdiv1.WaitForFirstConsumer, []func(*Observed){unbound(time.Hour), waiting}, nobody},
		"the first consumer has its node": {cdiv1.WaitForFirstConsumer, []func(*Observed){unbound(time.Hour), waiting, func(o *Observed) {
			metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "volume.kubernetes.io/selected-node", "node")
		}}, claim},
		"the worker is the first consumer, and has its node": {cdiv1.Pending, []func(*Observed){unbound(time.Hour), waiting, func(o *Observed) {
			metav1.SetMetaDataAnnotation(&o.Claim.ObjectMeta, "volume.kubernetes.io/selected-node", "node")
		}, works(time.Hour, func(p *corev1.Pod) { p.Spec.NodeName = "" })}, claim},
		"it has succeeded": {cdiv1.Succeeded, []func(*Observed){unbound(time.Hour)}, nobody},
		"it has failed":    {cdiv1.Failed, []func(*Observed){unbound(time.Hour)}, nobody},
		"it is being deleted": {cdiv1.Pending, []func(*Observed){unbound(time.Hour), func(o *Observed) {
			o.DataVolume.DeletionTimestamp = &metav1.Time{Time: noon}
		}}, nobody},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: newDV(httpSource(), inPhase(test.phase)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
			for _, edit := range test.edits {
				edit(&o)
			}
			got := nobody
			switch object := Stuck(o); object {
			case nil:
			case metav1.Object(o.Claim):
				got = claim
			case metav1.Object(o.Worker):
				got = worker
			}
			if got != test.want {
				t.Errorf("asked are %s, want %s", got, test.want)
			}
		})
	}
}

// A claim gets no volume from its provisioner. However the volume is to be filled, the loop must look again without an
// event, and the DataVolume's Bound condition must say why it waits.
func TestAClaimWithoutAVolumeSaysWhy(t *testing.T) {
	refused := &objectevent.Warning{Reason: "ProvisioningFailed", Message: "the volume's mode is another"}
	restored := newDV(cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "snap"}}, inPhase(cdiv1.CloneFromSnapshotSourceInProgress))
	for name, test := range map[string]struct {
		dv      *cdiv1.DataVolume
		how     method
		age     time.Duration
		warning *objectevent.Warning
		bound   string
		after   time.Duration
	}{
		"the claim of a snapshot is new":      {restored, methodRestore, 0, nil, "False Pending: PVC disk Pending", 5 * time.Second},
		"nobody says why it waits":            {restored, methodRestore, time.Minute, nil, "False Pending: PVC disk Pending", 6 * time.Second},
		"its provisioner says why":            {restored, methodRestore, time.Minute, refused, "False ProvisioningFailed: the volume's mode is another", 6 * time.Second},
		"it has waited for long":              {restored, methodRestore, 5 * time.Minute, refused, "False ProvisioningFailed: the volume's mode is another", 30 * time.Second},
		"it has waited for a day":             {restored, methodRestore, 24 * time.Hour, refused, "False ProvisioningFailed: the volume's mode is another", time.Minute},
		"the claim of an import":              {newDV(httpSource(), inPhase(cdiv1.Pending)), methodImport, time.Hour, refused, "False ProvisioningFailed: the volume's mode is another", time.Minute},
		"the claim of an import, unexplained": {newDV(httpSource(), inPhase(cdiv1.Pending)), methodImport, time.Hour, nil, "False Pending: PVC disk Pending", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: test.dv, Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon, Warning: test.warning}
			o.Source = Source{SnapshotExists: true, SnapshotReady: true}
			o.Claim = newClaim(o, test.how)
			o.Claim.Status.Phase, o.Claim.CreationTimestamp = corev1.ClaimPending, metav1.NewTime(noon.Add(-test.age))
			p := decide(o)
			c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeBound)
			if got := string(c.Status) + " " + c.Reason + ": " + c.Message; got != test.bound || p.After != test.after {
				t.Errorf("Bound=%s, looked at again after %v; want Bound=%s, %v", got, p.After, test.bound, test.after)
			}
		})
	}
}

// Who uses a claim is listed at each look.
func TestALongWaitIsLookedAtLessOften(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 8 * time.Second: 5 * time.Second, time.Minute: 15 * time.Second, time.Hour: time.Minute} {
		o := Observed{DataVolume: newDV(httpSource(), inPhase(cdiv1.PVCBound)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon, UsedBy: "pod web"}
		o.Claim = claimOf(o, corev1.ClaimBound)
		o.DataVolume.Status = decide(o).Status
		o.Now = noon.Add(waited)
		if p := decide(o); p.After != want {
			t.Errorf("after %v it is looked at again in %v, want %v", waited, p.After, want)
		}
		Condition(o.DataVolume, cdiv1.DataVolumeRunning).Reason = ReasonSourceInUse
		if p := decide(o); p.After != retry {
			t.Errorf("after %v of waiting for something else it is looked at again in %v", waited, p.After)
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{layout.AnnUploadTarget: ""}}}
		claim.Status.Phase = corev1.ClaimBound
		if p := DecideUpload(ObservedUpload{Claim: claim, Confirmed: true, UsersAsked: true, UsedBy: "pod web", Waited: waited}); p.After != want {
			t.Errorf("after %v a claim for an upload is looked at again in %v, want %v", waited, p.After, want)
		}
	}
}
