package datavolume

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	conditions "github.com/openshift/custom-resource-status/conditions/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
)

// Reasons of a CDI object's conditions.
const (
	reasonServed  = "DrydockServesDataVolumes"
	reasonAnother = "AnotherObjectCounts"
)

// Installation is what follows from the cluster's CDI objects, where Drydock serves DataVolumes.
type Installation struct {
	// Config is the spec that the CDIConfig is to have; nil leaves it to whoever writes it.
	Config *cdiv1.CDIConfigSpec
	// Changed are the objects whose status is to be another one, as they are to be.
	Changed []*cdiv1.CDI
}

// PlanInstallation decides what CDI objects do: the oldest one's spec.config is the CDIConfig's spec, and each is told how it is
// served by this version. An object that is being deleted, or that CDI's own operator has, is left alone.
func PlanInstallation(all []cdiv1.CDI, version string, now time.Time) Installation {
	ours := slices.DeleteFunc(slices.Clone(all), func(o cdiv1.CDI) bool { return o.DeletionTimestamp != nil || OperatedByCDI(&o) })
	slices.SortFunc(ours, func(a, b cdiv1.CDI) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var out Installation
	for i := range ours {
		to := ours[i].DeepCopy()
		if i == 0 {
			out.Config = to.Spec.Config.DeepCopy()
			served(&to.Status, version, now)
		} else {
			passedOver(&to.Status, ours[0].Name, now)
		}
		if !equality.Semantic.DeepEqual(ours[i].Status, to.Status) {
			out.Changed = append(out.Changed, to)
		}
	}
	return out
}

// OperatedByCDI reports whether CDI's own operator has taken a CDI object over. Drydock never names an operator's version.
func OperatedByCDI(o *cdiv1.CDI) bool { return o.Status.OperatorVersion != "" }

// served is the status of the object that counts.
func served(status *cdiv1.CDIStatus, version string, now time.Time) {
	status.Phase, status.ObservedVersion = sdkapi.PhaseDeployed, version
	say(status, conditions.ConditionAvailable, corev1.ConditionTrue, reasonServed, "Drydock serves DataVolumes; CDI is not installed", now)
	say(status, conditions.ConditionProgressing, corev1.ConditionFalse, reasonServed, "", now)
	say(status, conditions.ConditionDegraded, corev1.ConditionFalse, reasonServed, "", now)
}

// passedOver is the status of an object beside the one that counts.
func passedOver(status *cdiv1.CDIStatus, counts string, now time.Time) {
	message := fmt.Sprintf("the cluster's CDI object is %s, which is older: change that one, or delete it", counts)
	status.Phase, status.ObservedVersion = sdkapi.PhaseError, ""
	say(status, conditions.ConditionAvailable, corev1.ConditionFalse, reasonAnother, message, now)
	say(status, conditions.ConditionProgressing, corev1.ConditionFalse, reasonAnother, "", now)
	say(status, conditions.ConditionDegraded, corev1.ConditionTrue, reasonAnother, message, now)
}

// say sets a condition. Its heartbeat is its last change: nothing is written while nothing changes.
func say(status *cdiv1.CDIStatus, kind conditions.ConditionType, is corev1.ConditionStatus, reason, message string, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	want := conditions.Condition{Type: kind, Status: is, Reason: reason, Message: message, LastHeartbeatTime: at, LastTransitionTime: at}
	i := slices.IndexFunc(status.Conditions, func(c conditions.Condition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, want)
		return
	}
	was := &status.Conditions[i]
	if was.Status == is {
		want.LastTransitionTime = was.LastTransitionTime
	}
	if was.Status == is && was.Reason == reason && was.Message == message {
		want.LastHeartbeatTime = was.LastHeartbeatTime
	}
	*was = want
}
