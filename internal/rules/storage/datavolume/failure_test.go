package datavolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// A worker is retried for days; its owner must get one event per reason.
func TestAFailureIsToldOncePerReason(t *testing.T) {
	o := Observed{
		DataVolume: newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), Class: class(storagev1.VolumeBindingImmediate),
		Config: ConfigOf(nil), Now: noon,
	}
	o.Claim = claimOf(o, corev1.ClaimBound)
	o.Progress = &transfer.Progress{}
	refused := func(message string) transfer.Result {
		return transfer.Result{Reason: transfer.ReasonSourceRefused, Message: message}
	}
	runsAfter := func(last transfer.Result) corev1.PodStatus {
		status := restarting(2, last)
		status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		return status
	}
	unreachable := transfer.Result{Reason: transfer.ReasonSourceUnreachable, Message: "no route to host"}
	for _, step := range []struct {
		what   string
		worker corev1.PodStatus
		// event is "type reason: message"; ready is the Ready condition's "reason: message".
		event, ready string
	}{
		{"it runs", running(), "", "TransferRunning: "},
		{"it fails", restarting(1, refused("404 Not Found")), "Warning SourceRefused: 404 Not Found", "SourceRefused: 404 Not Found"},
		{"it is looked at again", restarting(1, refused("404 Not Found")), "", "SourceRefused: 404 Not Found"},
		{"it is tried again", runsAfter(refused("404 Not Found")), "", "SourceRefused: 404 Not Found"},
		{"and fails likewise", restarting(2, refused("410 Gone")), "", "SourceRefused: 410 Gone"},
		{"it fails otherwise", restarting(3, unreachable), "Warning SourceUnreachable: no route to host", "SourceUnreachable: no route to host"},
		{"a failure is seen only when it runs again", runsAfter(refused("403")), "Warning SourceRefused: 403", "SourceRefused: 403"},
		{"it fills the claim", completed(), "Normal ImportSucceeded: Successfully filled PVC disk", ": "},
	} {
		o.Worker = podOf(o.DataVolume, step.worker)
		plan := decide(o)
		event := ""
		if e := plan.Event; e != nil {
			event = e.Type + " " + e.Reason + ": " + e.Message
		}
		if event != step.event {
			t.Errorf("%s: the event is %q, want %q", step.what, event, step.event)
		}
		o.DataVolume.Status = plan.Status
		ready := Condition(o.DataVolume, cdiv1.DataVolumeReady)
		if said := ready.Reason + ": " + ready.Message; said != step.ready {
			t.Errorf("%s: Ready says %q, want %q", step.what, said, step.ready)
		}
	}
}

// If a container image can't be pulled the conditions must say ImagePullFailed, whoever pulls it; for another source
// they must name the failure.
func TestAnImageThatCantBePulledIsSaidToBe(t *testing.T) {
	image := cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://example.com/disk:1")}}
	byNode := cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://example.com/disk:1"), PullMethod: new(cdiv1.RegistryPullNode)}}
	failed := func(reason transfer.Reason) corev1.PodStatus {
		return restarting(1, transfer.Result{Reason: reason, Message: "x"})
	}
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "x"}}}}}
	}
	for name, c := range map[string]struct {
		source cdiv1.DataVolumeSource
		worker corev1.PodStatus
		want   string
	}{
		"the registry refuses it":          {image, failed(transfer.ReasonSourceRefused), "ImagePullFailed"},
		"the registry does not answer":     {image, failed(transfer.ReasonSourceUnreachable), "ImagePullFailed"},
		"the registry is not trusted":      {image, failed(transfer.ReasonUntrusted), "ImagePullFailed"},
		"the claim is too small for it":    {image, failed(transfer.ReasonNoSpace), "NoSpace"},
		"the node can't pull it":           {byNode, waiting("ErrImagePull"), "ImagePullFailed"},
		"the node tries it later":          {byNode, waiting("ImagePullBackOff"), "ImagePullFailed"},
		"the worker can't be made":         {byNode, waiting("CreateContainerError"), "CreateContainerError"},
		"the worker's own image is absent": {image, waiting("ErrImagePull"), "ErrImagePull"},
		"a file is not there":              {httpSource(), failed(transfer.ReasonSourceRefused), "SourceRefused"},
	} {
		o := Observed{
			DataVolume: newDV(c.source, inPhase(cdiv1.ImportInProgress)), Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon,
		}
		o.Claim = claimOf(o, corev1.ClaimBound)
		o.Worker = podOf(o.DataVolume, c.worker)
		o.DataVolume.Status = decide(o).Status
		if got := Condition(o.DataVolume, cdiv1.DataVolumeRunning); got == nil || got.Reason != c.want || got.Message != "x" {
			t.Errorf("%s: Running says %+v, want the reason %s", name, got, c.want)
		}
	}
}

// A failure that ends or stops the DataVolume must have an event of its own.
func TestAFailureForGoodIsToldAsSuch(t *testing.T) {
	o := Observed{
		DataVolume: newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), Class: class(storagev1.VolumeBindingImmediate),
		Config: ConfigOf(nil), Now: noon,
	}
	o.Claim = claimOf(o, corev1.ClaimBound)
	for reason, want := range map[transfer.Reason]string{
		transfer.ReasonTooLarge:      "ImportFailed",
		transfer.ReasonSourceRefused: "SourceRefused",
	} {
		o.Worker = podOf(o.DataVolume, restarting(1, transfer.Result{Reason: reason, Message: "20 GiB"}))
		e := decide(o).Event
		if e == nil || *e != (Event{corev1.EventTypeWarning, want, "20 GiB"}) {
			t.Errorf("%s: the event is %+v, want a warning %s", reason, e, want)
		}
	}
}
