package datavolume

import (
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// unready is the Ready condition of a DataVolume on its way. Why the worker
// failed stays there while it is tried again: a reader then sees both, and
// it is how the loop knows what it has told.
func (d *decision) unready(running condition) condition {
	switch f := d.worker.failure; {
	case f != nil:
		return isFalse(string(f.Reason), f.Message)
	case running.status == corev1.ConditionTrue:
		return isFalse(ReasonTransferRunning, "")
	}
	return isFalse("", "")
}

// reportFailure makes an event of a worker's failure that will be tried again: one
// for each reason, not one for each try, which may go on for days. What the
// scheduler, the kubelet and the storage driver say has events of theirs.
func (d *decision) reportFailure() {
	f := d.worker.failure
	if f == nil {
		return
	}
	if told := Condition(d.DataVolume, cdiv1.DataVolumeReady); told != nil && told.Reason == string(f.Reason) {
		return
	}
	d.plan.Event = &Event{corev1.EventTypeWarning, string(f.Reason), f.Message}
}
