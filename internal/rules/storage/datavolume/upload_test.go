package datavolume

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

func TestAClaimTakesOneUploadOfItsOwn(t *testing.T) {
	ready := running()
	ready.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	tests := map[string]struct {
		claim    func(*corev1.PersistentVolumeClaim)
		worker   *corev1.PodStatus
		creates  bool
		deletes  bool
		phase    string
		podReady string
	}{
		"its worker is made":                  {creates: true, phase: "Pending", podReady: "false"},
		"not while it waits for its consumer": {claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
		"unless the worker shall be the first": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Status.Phase, c.Annotations[layout.AnnImmediate] = corev1.ClaimPending, ""
			}, creates: true, phase: "Pending", podReady: "false",
		},
		"a worker that listens is told of": {worker: &ready, phase: "Running", podReady: "true"},
		"one that does not listen yet":     {worker: new(running()), phase: "Running", podReady: "false"},
		"one that has listened and ended": {
			worker: &corev1.PodStatus{Phase: corev1.PodPending, Conditions: ready.Conditions}, phase: "Pending", podReady: "false",
		},
		"one that has the image, too": {worker: new(completed()), phase: "Succeeded", podReady: "false"},
		"then it goes": {
			claim: func(c *corev1.PersistentVolumeClaim) { c.Annotations[layout.AnnPodPhase] = "Succeeded" }, worker: new(completed()), deletes: true,
		},
		"and no other comes": {claim: func(c *corev1.PersistentVolumeClaim) { c.Annotations[layout.AnnPodPhase] = "Succeeded" }},
		"an image that is none ends it": {
			worker: new(restarting(1, transfer.Result{Reason: transfer.ReasonInvalidImage, Message: "no image"})), phase: "Failed", podReady: "false",
		},
		"a claim that is deleted is let go": {
			claim:  func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon} },
			worker: &ready, deletes: true,
		},
		"one that is not marked any more, too": {
			claim:  func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, layout.AnnUploadTarget) },
			worker: &ready, deletes: true,
		},
		"and one that a DataVolume has taken over": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&cdiv1.DataVolume{}, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
			},
			worker: &ready, deletes: true,
		},
		"which then gets no worker": {
			claim: func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, layout.AnnUploadTarget) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := ObservedUpload{
				Claim: &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "1-2", Annotations: map[string]string{layout.AnnUploadTarget: ""}},
					Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
				},
				Class: class(storagev1.VolumeBindingWaitForFirstConsumer), Config: ConfigOf(nil),
			}
			if test.claim != nil {
				test.claim(o.Claim)
			}
			if test.worker != nil {
				o.Worker = uploading(true, *test.worker)
			}
			first := DecideUpload(o)
			if asks := first.Needs == NeedClaim; asks != test.creates || first.CreateWorker != nil {
				t.Errorf("asks for %q, creates %v", first.Needs, first.CreateWorker)
			}
			o.Confirmed = true
			if asks := DecideUpload(o).Needs == NeedUsers; asks != test.creates {
				t.Errorf("asks who uses the claim: %v", asks)
			}
			o.UsersAsked = true
			p := DecideUpload(o)
			if p.Needs != "" || (p.CreateWorker != nil) != test.creates || p.DeleteWorker != test.deletes ||
				p.Annotations[layout.AnnPodPhase] != test.phase || p.Annotations[layout.AnnPodReady] != test.podReady {
				t.Errorf("creates %v, deletes %v, annotates %v", p.CreateWorker != nil, p.DeleteWorker, p.Annotations)
			}
		})
	}
}

func TestTheClaimOfAnUploadSaysHowFarItIs(t *testing.T) {
	ready := running()
	ready.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	tests := map[string]struct {
		phase  cdiv1.DataVolumePhase
		worker *corev1.PodStatus
		// says is "phase ready", or empty when nothing is to be written.
		says string
	}{
		"nothing before there is a worker":    {phase: cdiv1.PVCBound},
		"that its worker starts":              {phase: cdiv1.UploadScheduled, worker: &corev1.PodStatus{Phase: corev1.PodPending}, says: "Pending false"},
		"that an upload is taken":             {phase: cdiv1.UploadReady, worker: &ready, says: "Running true"},
		"that it is filled":                   {phase: cdiv1.UploadReady, worker: new(completed()), says: "Succeeded false"},
		"the same when the worker is gone":    {phase: cdiv1.Succeeded, says: "Succeeded false"},
		"why it has failed, from the failure": {phase: cdiv1.Failed, says: "Failed false"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := Observed{
				DataVolume: newDV(cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, inPhase(test.phase)),
				Class:      class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon,
			}
			o.Claim = claimOf(o, corev1.ClaimBound)
			if test.worker != nil {
				o.Worker = podOf(o.DataVolume, *test.worker)
			}
			got := decide(o).AnnotateClaim
			if said := strings.TrimSpace(got[layout.AnnPodPhase] + " " + got[layout.AnnPodReady]); said != test.says {
				t.Errorf("the claim says %q, want %q", said, test.says)
			}
			for name, value := range got {
				o.Claim.Annotations[name] = value
			}
			if again := decide(o).AnnotateClaim; len(again) > 0 {
				t.Errorf("what the claim says already is written again: %v", again)
			}
		})
	}
	dv := newDV(cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}})
	if _, asked := newClaim(Observed{DataVolume: dv}, methodUpload).Annotations[layout.AnnUploadTarget]; !asked {
		t.Error("a claim is not known for one that takes an upload")
	}
}

func TestWhatTheWorkerOfAnUploadIsToDo(t *testing.T) {
	const block, file = corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	for name, test := range map[string]struct {
		content string
		mode    corev1.PersistentVolumeMode
		want    transfer.Task
	}{
		"an image in a file":            {"", file, transfer.Task{Kind: transfer.KindUpload, KeepContent: true, Preallocate: true}},
		"an image, in so many words":    {"kubevirt", file, transfer.Task{Kind: transfer.KindUpload, KeepContent: true, Preallocate: true}},
		"an image on a device":          {"", block, transfer.Task{Kind: transfer.KindUpload, KeepContent: true, Preallocate: true, Block: true}},
		"an archive in the file system": {"archive", file, transfer.Task{Kind: transfer.KindUpload, KeepContent: true, Preallocate: true, Archive: true}},
	} {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "1-2", Annotations: map[string]string{layout.AnnUploadTarget: ""}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: &test.mode},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		if test.content != "" {
			claim.Annotations[layout.AnnContentType] = test.content
		}
		config := ConfigOf(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{Preallocation: new(true)}})
		made := DecideUpload(ObservedUpload{Claim: claim, Confirmed: true, UsersAsked: true, Config: config}).CreateWorker
		if made == nil {
			t.Errorf("%s: no worker is made", name)
			continue
		}
		if diff := cmp.Diff(test.want, made.Task); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if c := made.Certificate; c == nil || !c.Server || c.Namespace != "ns" || made.Component != ComponentUpload {
			t.Errorf("%s: the worker is %+v with the certificate %+v, want one that serves", name, made, c)
		}
	}
}

func TestAClaimInUseTakesNoUpload(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", Annotations: map[string]string{layout.AnnUploadTarget: ""}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	p := DecideUpload(ObservedUpload{Claim: claim, Confirmed: true, UsersAsked: true, UsedBy: "pod virt-launcher-vm", Config: ConfigOf(nil)})
	want := uploadAnnotations(corev1.PodPending, false, ReasonClaimInUse, "pod virt-launcher-vm is using the claim disk: the claim is filled when that has ended")
	want[layout.AnnOverwrite] = layout.AnnOverwriteRefused
	if diff := cmp.Diff(UploadPlan{Annotations: want, After: retry}, p); diff != "" {
		t.Error(diff)
	}
}

// An upload must replace content only on request, or if it began to write that content itself.
func TestWhenAnUploadReplacesContent(t *testing.T) {
	ready := running()
	ready.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	const before = "the UID of a worker"
	for name, test := range map[string]struct {
		mark, says string
		worker     *corev1.PodStatus
		keeps      bool
		// notes are the claim's expected annotations, with its mark if that is the worker's UID.
		notes string
	}{
		"nobody has asked":                         {"", "", nil, true, "false"},
		"nobody has, and that is known":            {"", "false", nil, true, "false"},
		"it is asked for":                          {"", "true", nil, false, "true"},
		"it was, for the upload before":            {"", layout.AnnOverwriteDone, nil, true, layout.AnnOverwriteDone},
		"a worker before has found it empty":       {before, before, nil, false, before},
		"and the claim was marked anew":            {"", before, nil, true, before},
		"or anew after that":                       {"another's", before, nil, true, before},
		"the worker has found it empty":            {"", "", &ready, false, "uid"},
		"again, since the claim was marked anew":   {"", before, &ready, false, "uid"},
		"that has been said":                       {before, before, &ready, false, before},
		"what was asked for is for this marking":   {"", "true", new(running()), false, "uid"},
		"what was asked for once more is, too":     {before, "true", &ready, false, "uid"},
		"a worker that does not listen":            {"", "false", new(running()), false, "false"},
		"the claim is filled, once more":           {before, before, new(completed()), false, layout.AnnOverwriteDone},
		"the claim is filled, and nothing is said": {"", "", new(completed()), false, layout.AnnOverwriteDone},
	} {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", Annotations: map[string]string{layout.AnnUploadTarget: test.mark}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		if test.says != "" {
			claim.Annotations[layout.AnnOverwrite] = test.says
		}
		o := ObservedUpload{Claim: claim, Confirmed: true, UsersAsked: true, Config: ConfigOf(nil)}
		if test.worker != nil {
			o.Worker = uploading(true, *test.worker)
		}
		p := DecideUpload(o)
		if (p.CreateWorker != nil) != (test.worker == nil) || p.CreateWorker != nil && p.CreateWorker.Task.KeepContent != test.keeps {
			t.Errorf("%s: it makes %+v", name, p.CreateWorker)
		}
		maps.Copy(claim.Annotations, p.Annotations)
		mark := test.mark
		if test.notes == "uid" {
			mark = "uid"
		}
		if claim.Annotations[layout.AnnOverwrite] != test.notes || claim.Annotations[layout.AnnUploadTarget] != mark {
			t.Errorf("%s: the claim says %v", name, claim.Annotations)
		}
	}
}

// uploading is the pod of an upload's worker, whose task says whether it keeps content.
func uploading(keeps bool, status corev1.PodStatus) *corev1.Pod {
	task, err := json.Marshal(transfer.Task{Kind: transfer.KindUpload, KeepContent: keeps})
	if err != nil {
		panic(err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: status, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "OTHER", Value: "{"}, {Name: transfer.TaskEnv, Value: string(task)}}}},
	}}
}

// For example, a worker of an earlier version has not asked whether the claim is empty.
func TestAnUploadsWorkerIsReplacedThatAnswersOtherwiseThanTheClaim(t *testing.T) {
	ready := running()
	ready.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	hasContent := restarting(1, transfer.Result{Reason: transfer.ReasonHasContent, Message: "the claim has content"})
	invalid := restarting(1, transfer.Result{Reason: transfer.ReasonInvalidImage, Message: "no image"})
	for name, test := range map[string]struct {
		says     string
		pod      *corev1.Pod
		replaced bool
		phase    string
	}{
		"one that asks, of a claim that keeps content":      {"false", uploading(true, ready), false, "Running"},
		"one that does not ask":                             {"false", uploading(false, ready), true, "Pending"},
		"one that does not ask, and nothing is said":        {"", uploading(false, ready), true, "Pending"},
		"one of which nothing is known":                     {"", &corev1.Pod{Status: ready}, true, "Pending"},
		"one that does not ask, and has not begun":          {"", uploading(false, corev1.PodStatus{}), true, "Pending"},
		"one that need not ask":                             {"true", uploading(false, ready), false, "Running"},
		"one that asks needlessly":                          {"true", uploading(true, ready), false, "Running"},
		"one that has not asked and filled the claim":       {"", uploading(false, completed()), false, "Succeeded"},
		"one that has not asked and refused the image":      {"", uploading(false, invalid), false, "Failed"},
		"one that has asked and refused the claim":          {"false", uploading(true, hasContent), false, "Failed"},
		"one that has, and by now the claim is to be taken": {"true", uploading(true, hasContent), true, "Pending"},
	} {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", Annotations: map[string]string{layout.AnnUploadTarget: "", layout.AnnOverwrite: test.says}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		p := DecideUpload(ObservedUpload{Claim: claim, Worker: test.pod, Config: ConfigOf(nil)})
		_, notes := p.Annotations[layout.AnnOverwrite]
		if p.DeleteWorker != test.replaced || p.Annotations[layout.AnnPodPhase] != test.phase || test.replaced && notes {
			t.Errorf("%s: deletes %v, annotates %v", name, p.DeleteWorker, p.Annotations)
		}
	}
}

// The permission of one upload, and its result, must be removed with its mark.
func TestAClaimThatIsNotMarkedAnyMoreForgetsItsUpload(t *testing.T) {
	said := func() map[string]string {
		return map[string]string{layout.AnnOverwrite: "true", layout.AnnPodPhase: "Failed", layout.AnnPodReady: "false",
			layout.AnnRunningReason: "InvalidImage", layout.AnnRunningMessage: "no image", layout.AnnContentType: "kubevirt"}
	}
	for name, test := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		left map[string]string
	}{
		"it was marked": {func(*corev1.PersistentVolumeClaim) {}, map[string]string{layout.AnnContentType: "kubevirt"}},
		"it has never been": {func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, layout.AnnOverwrite) },
			map[string]string{layout.AnnPodPhase: "Failed", layout.AnnPodReady: "false", layout.AnnRunningReason: "InvalidImage",
				layout.AnnRunningMessage: "no image", layout.AnnContentType: "kubevirt"}},
		"a DataVolume has it": {func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&cdiv1.DataVolume{}, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
		}, said()},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: said()}}
		test.edit(claim)
		p := DecideUpload(ObservedUpload{Claim: claim})
		for _, forgotten := range p.Forget {
			delete(claim.Annotations, forgotten)
		}
		if diff := cmp.Diff(test.left, claim.Annotations); diff != "" || len(p.Annotations) > 0 {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
