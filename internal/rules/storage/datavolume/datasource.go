package datavolume

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

const reasonReady = "Ready"

// DataSourceStatus returns the status: the source, and whether a DataVolume could use it now.
func DataSourceStatus(source *cdiv1.DataSource, reference ResolvedReference, s Source, now time.Time) cdiv1.DataSourceStatus {
	out := *source.Status.DeepCopy()
	out.Source = *source.Spec.Source.DeepCopy()
	ready := condition{status: corev1.ConditionFalse, reason: reference.Reason, message: reference.Message}
	if reference.Source != nil {
		ready = isTrue(reasonReady, "DataSource is ready to be consumed")
		if stop := notConsumable(source.Namespace, reference.Source, s); stop != nil {
			ready = isFalse(stop.reason, stop.message)
		}
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	next := cdiv1.DataSourceCondition{Type: cdiv1.DataSourceReady, ConditionState: cdiv1.ConditionState{
		Status: ready.status, Reason: ready.reason, Message: ready.message, LastTransitionTime: at, LastHeartbeatTime: at,
	}}
	i := slices.IndexFunc(out.Conditions, func(c cdiv1.DataSourceCondition) bool { return c.Type == cdiv1.DataSourceReady })
	if i < 0 {
		out.Conditions = append(out.Conditions, next)
		return out
	}
	last := &out.Conditions[i]
	if last.Status == next.Status {
		next.LastTransitionTime = last.LastTransitionTime
		if last.Reason == next.Reason && last.Message == next.Message {
			return out
		}
	}
	*last = next
	return out
}

func notConsumable(namespace string, of *cdiv1.DataVolumeSource, s Source) *obstacle {
	o := Observed{Source: s, DataVolume: &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: cdiv1.DataVolumeSpec{Source: of},
	}}
	switch stop := unknownSource(o); {
	case stop != nil:
		return stop
	case s.Unfilled != "":
		return &obstacle{reason: ReasonSourceNotReady, message: fmt.Sprintf("the claim is not filled yet by its DataVolume %s", s.Unfilled)}
	case AwaitsUpload(s.Claim):
		return &obstacle{reason: ReasonSourceNotReady, message: uploadAwaited(s.Claim)}
	}
	return nil
}
